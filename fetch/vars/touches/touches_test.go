package touches

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"kprobe/probe/insn"
)

// inStack is a function whose canonical frame address is off bytes above the stack pointer; inFrame above RBP.
func inStack(off int64) Function {
	return Function{CFA: func(uint64) (insn.Reg, int64, bool) { return insn.RSP, off, true }}
}

func inFrame(off int64) Function {
	return Function{CFA: func(uint64) (insn.Reg, int64, bool) { return insn.RBP, off, true }, GNU: true}
}

func code(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLook has code of each kind, and what it does to the frame. The code lies at 0x100.
func TestLook(t *testing.T) {
	const at = 0x100
	for _, c := range []struct {
		name, code string
		f          Function
		want       Touches
	}{
		{"a store and a load", "c7 44 24 08 01 00 00 00 8b 44 24 08", inStack(32), // movl $1,8(%rsp); mov 8(%rsp),%eax
			Touches{List: []Touch{{Span: Span{-24, -20}, PC: at}, {Span: Span{-24, -20}, PC: at + 8}}}},
		{"eight bytes", "48 89 7c 24 10", inStack(32), Touches{List: []Touch{{Span: Span{-16, -8}, PC: at}}}}, // mov %rdi,16(%rsp)
		{"by the frame pointer", "0f b6 45 f0", inFrame(16), Touches{List: []Touch{{Span: Span{-32, -31}, PC: at}}}},
		{"another register", "8b 47 08", inStack(32), Touches{}},                                                                // mov 8(%rdi),%eax
		{"RBP as an ordinary pointer", "8b 45 08", inStack(32), Touches{}},                                                      // mov 8(%rbp),%eax
		{"an address", "48 8d 7c 24 08 e8 00 00 00 00", inStack(32), Touches{List: []Touch{{Span{-24, -24}, at, true, false}}}}, // lea 8(%rsp),%rdi; call
		{"an end", "48 8d 54 24 10 48 39 d0 75 fb c3", inStack(32), Touches{List: []Touch{{Span{-16, -16}, at, true, true}}}},   // lea 16(%rsp),%rdx; cmp %rdx,%rax; jne
		{"an index", "8b 44 84 08", inStack(32), Touches{List: []Touch{{Span{-24, -24}, at, true, false}}, Indexed: true}},      // mov 8(%rsp,%rax,4),%eax
		{"a copied register", "48 89 e7", inStack(32), Touches{List: []Touch{{Span{-32, -32}, at, true, false}}}},               // mov %rsp,%rdi
		{"a copy plus a constant", "48 89 e8 48 83 e8 10", inFrame(16), Touches{List: []Touch{{Span{-16, -16}, at, true, false}, // mov %rbp,%rax; sub $16,%rax
			{Span{-32, -32}, at + 3, true, false}}}},
		{"a push", "50", inStack(16), Touches{List: []Touch{{Span: Span{-24, -16}, PC: at}}}},
		{"a push of the stack pointer", "54", inStack(16), Touches{Unknown: true, List: []Touch{{Span: Span{-24, -16}, PC: at}}}},
		{"room", "48 83 ec 20", inStack(8), Touches{}},                          // sub $32,%rsp
		{"an aligned stack", "48 83 e4 e0", inStack(8), Touches{Unknown: true}}, // and $-32,%rsp
		{"a sum of addresses", "48 01 e0", inStack(8), Touches{Unknown: true}},  // add %rsp,%rax
		{"no instruction", "06", inStack(8), Touches{Unknown: true}},
		{"half of one", "48 8b", inStack(8), Touches{Unknown: true}},
		{"a frame that counts from no register", "8b 44 24 08", Function{CFA: func(uint64) (insn.Reg, int64, bool) { return insn.NoReg, 0, false }}, Touches{Unknown: true}},
	} {
		var got Touches
		got.Look(c.f, code(t, c.code), at)
		got.copies = nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestCopiesLast: what is known of a copied register lasts from one part of the code to the next.
func TestCopiesLast(t *testing.T) {
	var got Touches
	got.Look(inFrame(16), code(t, "48 89 e8"), 0x100)    // mov %rbp,%rax
	got.Look(inFrame(16), code(t, "48 83 c0 f8"), 0x200) // add $-8,%rax
	if want := (Touch{Span{-24, -24}, 0x200, true, false}); len(got.List) != 2 || got.List[1] != want || got.Unknown {
		t.Errorf("%+v, want %+v as the second", got, want)
	}
}

// TestAccessSize: no access is taken for a smaller one.
func TestAccessSize(t *testing.T) {
	for text, want := range map[string]int64{
		"88 07":             1,       // mov %al,(%rdi)
		"66 89 07":          2,       // mov %ax,(%rdi)
		"89 07":             4,       // mov %eax,(%rdi)
		"48 89 07":          8,       // mov %rax,(%rdi)
		"0f b7 07":          2,       // movzwl (%rdi),%eax
		"f3 0f 11 07":       4,       // movss %xmm0,(%rdi)
		"f2 0f 11 07":       8,       // movsd %xmm0,(%rdi)
		"0f 11 07":          16,      // movups %xmm0,(%rdi)
		"c5 fa 11 07":       4,       // vmovss %xmm0,(%rdi)
		"c5 fc 11 07":       32,      // vmovups %ymm0,(%rdi)
		"62 f1 7c 48 11 07": 64,      // vmovups %zmm0,(%rdi)
		"ff 17":             8,       // call *(%rdi)
		"db 3f":             10,      // fstpt (%rdi)
		"0f ae 07":          1 << 14, // fxsave (%rdi)
	} {
		b := code(t, text)
		i, err := insn.Decode(b)
		if err != nil {
			t.Fatal(text, err)
		}
		if got := accessSize(i, b); got != want {
			t.Errorf("%s accesses %d bytes, want %d", text, got, want)
		}
	}
}

// FuzzLook has any code: it is read to its end, or said to be unknown.
func FuzzLook(f *testing.F) {
	f.Add([]byte{0x48, 0x8d, 0x7c, 0x24, 8, 0x48, 0x39, 0xd0}, int64(32))
	f.Fuzz(func(t *testing.T, code []byte, off int64) {
		var got Touches
		got.Look(inStack(off%4096), code, 0x100)
		for _, a := range got.List {
			if a.Low > a.High || a.PC < 0x100 || a.PC >= 0x100+uint64(len(code)) || a.Taken && a.Low != a.High {
				t.Errorf("%x: %+v", code, a)
			}
		}
	})
}
