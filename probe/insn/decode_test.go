package insn

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// unhex reads bytes in hexadecimal, spaces allowed.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecodeFields(t *testing.T) {
	for _, c := range []struct {
		name, code string
		want       Inst // the fields that are places
		flags      Flags
		read       RegSet
		written    RegSet
	}{
		{"mov reg", "48 89 e5", Inst{Len: 3, OpcodeOff: 1, ModRMOff: 2}, 0, Set(RSP), Set(RBP)},
		{"mov load disp8", "48 8b 45 f8", Inst{Len: 4, OpcodeOff: 1, ModRMOff: 2, DispOff: 3, DispLen: 1}, MemRead, Set(RBP), Set(RAX)},
		{"sib", "4a 8b 84 24 00 10 00 00", Inst{Len: 8, OpcodeOff: 1, ModRMOff: 2, SIBOff: 3, DispOff: 4, DispLen: 4}, MemRead, Set(RSP, R12), Set(RAX)},
		{"sib without base", "48 8b 04 25 00 10 00 00", Inst{Len: 8, OpcodeOff: 1, ModRMOff: 2, SIBOff: 3, DispOff: 4, DispLen: 4}, MemRead, 0, Set(RAX)},
		{"rip store immediate", "c7 05 01 00 00 00 02 00 00 00", Inst{Len: 10, ModRMOff: 1, DispOff: 2, DispLen: 4, ImmOff: 6, ImmLen: 4}, RIPRel | MemWrite, 0, 0},
		{"rip compare 16", "66 81 3d 01 00 00 00 34 12", Inst{Len: 9, OpcodeOff: 1, ModRMOff: 2, DispOff: 3, DispLen: 4, ImmOff: 7, ImmLen: 2}, RIPRel | MemRead, 0, 0},
		{"movabs", "48 b8 01 02 03 04 05 06 07 08", Inst{Len: 10, OpcodeOff: 1, ImmOff: 2, ImmLen: 8}, 0, 0, Set(RAX)},
		{"66 movabs keeps 64", "66 48 b8 01 02 03 04 05 06 07 08", Inst{Len: 11, OpcodeOff: 2, ImmOff: 3, ImmLen: 8}, 0, 0, Set(RAX)},
		{"moffs", "48 a1 01 02 03 04 05 06 07 08", Inst{Len: 10, OpcodeOff: 1, ImmOff: 2, ImmLen: 8}, MemRead, 0, Set(RAX)},
		{"moffs 67", "67 a1 01 02 03 04", Inst{Len: 6, OpcodeOff: 1, ImmOff: 2, ImmLen: 4}, MemRead, 0, Set(RAX)},
		{"enter", "c8 10 00 01", Inst{Len: 4, ImmOff: 1, ImmLen: 3}, MemRead | MemWrite | WritesSP, Set(RSP, RBP), Set(RSP, RBP)},
		{"ah is rax", "88 e3", Inst{Len: 2, ModRMOff: 1}, 0, Set(RAX), Set(RBX)},
		{"spl with rex", "40 88 e3", Inst{Len: 3, OpcodeOff: 1, ModRMOff: 2}, 0, Set(RSP), Set(RBX)},
		{"call", "e8 fb ff ff ff", Inst{Len: 5, ImmOff: 1, ImmLen: 4}, RelBranch | Call | MemWrite | WritesSP, Set(RSP), Set(RSP)},
		{"jcc", "0f 84 00 00 00 00", Inst{Len: 6, OpcodeOff: 1, ImmOff: 2, ImmLen: 4}, RelBranch | CondBranch, 0, 0},
		{"loop", "e2 fe", Inst{Len: 2, ImmOff: 1, ImmLen: 1}, RelBranch | CondBranch | Loop, Set(RCX), Set(RCX)},
		{"ret", "c3", Inst{Len: 1}, Ret | Stops | MemRead | WritesSP, Set(RSP), Set(RSP)},
		{"jmp got", "ff 25 00 10 00 00", Inst{Len: 6, ModRMOff: 1, DispOff: 2, DispLen: 4}, Jmp | IndirectJmp | Stops | RIPRel | MemRead, 0, 0},
		{"call reg", "41 ff d3", Inst{Len: 3, OpcodeOff: 1, ModRMOff: 2}, Call | IndirectCall | MemWrite | WritesSP, Set(RSP, R11), Set(RSP)},
		{"endbr64", "f3 0f 1e fa", Inst{Len: 4, OpcodeOff: 2, ModRMOff: 3}, CET | Nop, 0, 0},
		{"rdsspq", "f3 48 0f 1e c8", Inst{Len: 5, OpcodeOff: 3, ModRMOff: 4}, 0, Set(RAX), Set(RAX)},
		{"pause", "f3 90", Inst{Len: 2, OpcodeOff: 1}, Nop, 0, 0},
		{"xchg r8", "41 90", Inst{Len: 2, OpcodeOff: 1}, 0, Set(RAX, R8), Set(RAX, R8)},
		{"nop with memory", "0f 1f 44 00 00", Inst{Len: 5, OpcodeOff: 1, ModRMOff: 2, SIBOff: 3, DispOff: 4, DispLen: 1}, Nop, Set(RAX), 0},
		{"syscall", "0f 05", Inst{Len: 2, OpcodeOff: 1}, Syscall | MemRead | MemWrite, Set(RAX, RDI, RSI, RDX), Set(RAX, RCX, R11)},
		{"rep movsb", "f3 a4", Inst{Len: 2, OpcodeOff: 1}, RepString | MemRead | MemWrite, Set(RSI, RDI, RCX), Set(RSI, RDI, RCX)},
		{"lock xadd", "f0 48 0f c1 03", Inst{Len: 5, OpcodeOff: 3, ModRMOff: 4}, Lock | MemRead | MemWrite, Set(RAX, RBX), Set(RAX)},
		{"cmpxchg16b", "f0 48 0f c7 0b", Inst{Len: 5, OpcodeOff: 3, ModRMOff: 4}, Lock | MemRead | MemWrite, Set(RAX, RBX, RCX, RDX), Set(RAX, RDX)},
		{"mov cr ignores mod", "0f 20 05", Inst{Len: 3, OpcodeOff: 1, ModRMOff: 2}, Priv, 0, Set(RBP)},
		{"vzeroupper", "c5 f8 77", Inst{Len: 3, OpcodeOff: 2}, 0, 0, 0},
		{"vex rip", "c5 f9 6f 05 10 00 00 00", Inst{Len: 8, OpcodeOff: 2, ModRMOff: 3, DispOff: 4, DispLen: 4}, RIPRel | MemRead, 0, 0},
		{"vex3 andn", "c4 e2 e0 f2 c8", Inst{Len: 5, OpcodeOff: 3, ModRMOff: 4}, 0, Set(RAX, RBX), Set(RCX)},
		{"evex rip imm", "62 f3 75 08 25 15 00 00 00 00 d8", Inst{Len: 11, OpcodeOff: 4, ModRMOff: 5, DispOff: 6, DispLen: 4, ImmOff: 10, ImmLen: 1}, RIPRel | MemRead, 0, 0},
		{"xop id", "8f ea 78 10 d8 34 12 00 00", Inst{Len: 9, OpcodeOff: 3, ModRMOff: 4, ImmOff: 5, ImmLen: 4}, 0, Set(RAX), Set(RBX)},
		{"pop rm is no xop", "8f 00", Inst{Len: 2, ModRMOff: 1}, Pop | MemRead | MemWrite | WritesSP, Set(RAX, RSP), Set(RSP)},
		{"3dnow", "0f 0f c8 9e", Inst{Len: 4, OpcodeOff: 2, ModRMOff: 2, ImmOff: 3, ImmLen: 1}, 0, 0, 0},
		{"extrq", "66 0f 78 c0 02 01", Inst{Len: 6, OpcodeOff: 2, ModRMOff: 3, ImmOff: 4, ImmLen: 2}, Priv, Set(RAX), Set(RAX)},
		{"66 call", "66 e8 00 00 00 00", Inst{Len: 6, OpcodeOff: 1, ImmOff: 2, ImmLen: 4}, Op16Branch | RelBranch | Call | MemWrite | WritesSP, Set(RSP), Set(RSP)},
	} {
		t.Run(c.name, func(t *testing.T) {
			code := unhex(t, c.code)
			i, err := Decode(append(code, 0xcc, 0xcc))
			if err != nil {
				t.Fatal(err)
			}
			got := Inst{Len: i.Len, OpcodeOff: i.OpcodeOff, ModRMOff: i.ModRMOff, SIBOff: i.SIBOff,
				DispOff: i.DispOff, DispLen: i.DispLen, ImmOff: i.ImmOff, ImmLen: i.ImmLen}
			if c.name == "3dnow" {
				c.want.OpcodeOff = got.OpcodeOff
			}
			if got != c.want {
				t.Errorf("places %+v\nwant   %+v", got, c.want)
			}
			if i.Flags&^(Push) != c.flags {
				t.Errorf("flags %b, want %b", i.Flags, c.flags)
			}
			if r := i.RegsRead(); r != c.read {
				t.Errorf("reads %v, want %v", r, c.read)
			}
			if r := i.RegsWritten(); r != c.written {
				t.Errorf("writes %v, want %v", r, c.written)
			}
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct {
		name, code string
		err        error
	}{
		{"nothing", "", ErrTruncated},
		{"only prefixes", "66 66 48", ErrTruncated},
		{"no ModRM", "48 89", ErrTruncated},
		{"half a displacement", "48 8b 05 00 00", ErrTruncated},
		{"half an immediate", "e8 00 00 00", ErrTruncated},
		{"vex without opcode", "c5 f8", ErrTruncated},
		{"evex without opcode", "62 f1 7c 48", ErrTruncated},
		{"fifteen prefixes", "66666666666666666666666666666690", ErrUndefined},
		{"sixteen bytes", "6666666666666666666666488b0500000000", ErrUndefined},
		{"push es", "06 90", ErrUndefined},
		{"far call of 32-bit mode", "9a 00 00 00 00 00 00", ErrUndefined},
		{"lea of a register", "8d c0", ErrUndefined},
		{"lock mov", "f0 48 89 03", ErrUndefined},
		{"lock add to a register", "f0 01 c0", ErrUndefined},
		{"undefined 0f", "0f 04 00", ErrUndefined},
		{"undefined 0f38", "0f 38 ff c0", ErrUndefined},
		{"fe /7", "fe f8", ErrUndefined},
		{"66 before vex", "66 c5 f8 77 c0", ErrUndefined},
		{"rex before vex", "48 c5 f8 77 c0", ErrUndefined},
		{"rex2", "d5 00 01 c0", ErrReserved},
		{"evex map 4", "62 f4 7c 08 01 c0", ErrReserved},
		{"3dnow without suffix's meaning", "0f 0f c0 00", ErrUndefined},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Decode(unhex(t, c.code)); !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
		})
	}
}

// TestLikelyLength: of an instruction that isn't known the length is as good as
// known where its kind tells it, so that a sweep goes on behind it.
func TestLikelyLength(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		want uint8
	}{
		"vex, map 1":            {"c5f8ff 4508 909090", 5},
		"vex, map 2: no byte":   {"c4e278 ee 4508 909090", 6},
		"vex, map 3: a byte":    {"c4e378 ee 4508 07 9090", 7},
		"xop, map 8: a byte":    {"8fe878 00 4508 07 9090", 7},
		"xop, map 9: no byte":   {"8fe978 00 4508 909090", 6},
		"evex, displacement":    {"62f27c48 ee 4508 909090", 7},
		"evex, map 3: a byte":   {"62f37c48 ee c0 07 9090", 7},
		"legacy, a single byte": {"06 9090", 1},
	} {
		i, err := Decode(unhex(t, c.code))
		if !errors.Is(err, ErrUndefined) || i.Len != c.want {
			t.Errorf("%s: %d bytes, %v; want %d", name, i.Len, err, c.want)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		name, code  string
		branch, rip uint64
	}{
		{"jmp back", "eb fe", 0x1000, 0},
		{"call forth", "e8 00 01 00 00", 0x1105, 0},
		{"jcc back", "0f 85 fa ff ff ff", 0x1000, 0},
		{"lea back", "48 8d 05 f9 ff ff ff", 0, 0x1000},
		{"cmp with immediate", "80 3d 00 00 00 00 01", 0, 0x1007},
		{"eip", "67 8b 05 00 f0 ff ff", 0, 0x0007},
		{"eip below zero", "67 8b 05 00 e0 ff ff", 0, 0xfffff007},
		{"mov", "48 89 e5", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			code := unhex(t, c.code)
			i, err := Decode(code)
			if err != nil {
				t.Fatal(err)
			}
			if a, ok := i.Target(0x1000, code); a != c.branch || ok != (c.branch != 0) {
				t.Errorf("branches to %#x, %v, want %#x", a, ok, c.branch)
			}
			if a, ok := i.RIPTarget(0x1000, code); a != c.rip || ok != (c.rip != 0) {
				t.Errorf("means %#x, %v, want %#x", a, ok, c.rip)
			}
			if _, ok := i.Target(0x1000, nil); ok {
				t.Error("a target without code")
			}
		})
	}
}
