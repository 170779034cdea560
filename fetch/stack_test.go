package fetch

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/symbols"
	"kprobe/symbols/unwind"
)

func TestStackSuffix(t *testing.T) {
	for _, c := range []struct {
		text  string
		stack int
		args  int
		back  string // in canonical form; "" is the text
	}{
		{"p:kprobes/e f stack", 64, 0, ""},
		{"p:kprobes/e f arg1=%di stack=8", 8, 1, ""},
		{"p:kprobes/e f stack=64", 64, 0, "p:kprobes/e f stack"},
		{"r5:kprobes/e f a=$retval stack=127", 127, 1, ""},
		{"j:kprobes/e f stack", 64, 1, ""},
		{"p:kprobes/e f a=%di stack if a == 3", 64, 1, ""},
		{"p:kprobes/e f stack=stack", 0, 1, ""},                                 // a variable
		{"p:kprobes/e f stack stack", 64, 1, "p:kprobes/e f stack=stack stack"}, // both
		{"p:kprobes/e f stack=$stack", 0, 1, ""},
	} {
		d, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		want := c.text
		if c.back != "" {
			want = c.back
		}
		if d.Stack != c.stack || len(d.Args) != c.args || d.String() != want {
			t.Errorf("%s: stack %d, %d arguments, %s", c.text, d.Stack, len(d.Args), d)
		}
		if again, err := Parse(d.String()); err != nil || again.Stack != d.Stack {
			t.Errorf("%s: read back: %v", d, err)
		}
	}
	for text, col := range map[string]int{"p f stack=0": 10, "p f a=%di stack=128": 16, "p f stack=99999999999999999999": 10} {
		_, err := Parse(text)
		var se *SyntaxError
		if !errors.As(err, &se) || se.Code != BadStackNum || se.Col != col {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestStackOfAnEvent(t *testing.T) {
	parse := func(s string) *Def {
		d, err := Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a, b := parse("p:e f stack"), parse("p:e f")
	if err := a.SameShape(b); err != nil {
		t.Errorf("one place with a stack and one without: %v", err)
	}
	if err := a.SameShape(parse("p:e f stack")); err == nil {
		t.Error("the same probe twice")
	}
	if d := parse("-:e f stack"); !d.Deletes(a) || d.Deletes(b) {
		t.Error("a stack tells definitions apart")
	}
	if d := parse("-:e f"); !d.Deletes(a) || !d.Deletes(b) {
		t.Error("without a stack both are meant")
	}
}

// stackMemory is memory from base on that ends.
type stackMemory struct {
	base  uint64
	b     []byte
	reads int
}

func (m *stackMemory) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	m.reads++
	off := uint64(at) - m.base
	if off > uint64(len(m.b)) || uint64(len(b)) > uint64(len(m.b))-off {
		return 0, errors.New("not mapped")
	}
	return copy(b, m.b[off:]), nil
}

func TestStackCopy(t *testing.T) {
	d, err := Parse("p f a=%di stack=16 if a == 5")
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	const base = 0x7000_0000
	mem := &stackMemory{base: base, b: make([]byte, 6*4096)}
	for i := range mem.b {
		mem.b[i] = byte(i * 7)
	}
	var regs Regs
	for i := range regs.GPR {
		regs.GPR[i] = uint64(i) << 40
	}
	regs.GPR[SP], regs.GPR[DI] = base+4096, 6
	c := &Context{Regs: &regs, Mem: mem}
	if _, pass := p.Eval(c, nil); pass || mem.reads != 0 {
		t.Errorf("a filter that says no read the stack %d times", mem.reads)
	}
	regs.GPR[DI] = 5
	for _, at := range []struct{ sp, n uint64 }{
		{base + 4096, 8192},
		{base + 4*4096, 8192}, // the last page is the stack's last
		{base + 5*4096 + 1000, 4096 - 1000 + StackBelow},
		{base + 6*4096 - 8, 8 + StackBelow},
		{base + 64, 0}, // the red zone isn't there
	} {
		regs.GPR[SP] = at.sp
		rec, pass := p.Eval(c, nil)
		if !pass || len(rec) != p.Fixed {
			t.Fatalf("%d bytes of %d, %v", len(rec), p.Fixed, pass)
		}
		var stack unwind.Stack
		r, ok := p.Unwind(rec, 0x401000, &stack)
		if !ok || r.V[unwind.SP] != at.sp || r.V[unwind.PC] != 0x401000 || r.V[3] != BX<<40 || r.V[6] != BP<<40 || stack.Base != at.sp-StackBelow {
			t.Fatalf("%+v %v, from %#x", r, ok, stack.Base)
		}
		if want := at.n &^ 7; uint64(len(stack.Bytes)) != want {
			t.Errorf("from %#x: %d bytes, want %d", at.sp, len(stack.Bytes), want)
		}
		for off := uint64(0); off+8 <= uint64(len(stack.Bytes)); off += 8 {
			w, ok := stack.Word(stack.Base + off)
			if want := binary.LittleEndian.Uint64(mem.b[stack.Base+off-base:]); !ok || w != want {
				t.Fatalf("word at %#x: %#x %v, want %#x", stack.Base+off, w, ok, want)
			}
		}
	}
	if _, ok := p.Unwind(make([]byte, p.Fixed-1), 0, new(unwind.Stack)); ok {
		t.Error("a short record has a stack")
	}
	rec, _ := p.Eval(c, nil)
	binary.LittleEndian.PutUint64(rec[p.Stack.Slot+StackCount:], 1<<60) // hostile
	var stack unwind.Stack
	if _, ok := p.Unwind(rec, 0, &stack); !ok || len(stack.Bytes) != p.Stack.Bytes {
		t.Error("more of the stack than was copied")
	}
	if !strings.Contains(d.String(), " stack=16 if ") {
		t.Error(d.String())
	}
}

// The stack ends within the copy, whatever its size.
func TestStackCopyAtItsEnd(t *testing.T) {
	for frames := 1; frames <= MaxStack; frames++ {
		prog, err := mustParse(t, "p f stack="+strconv.Itoa(frames)).Compile(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, left := range []int{0, 8, 100, 4095, 4096, 5000} {
			const end = 0x7000_0000
			c := testContext()
			c.Mem = stackEnd(end)
			c.Regs.GPR[SP] = uint64(end - left + StackBelow)
			rec, _ := prog.Eval(c, nil)
			got := int(binary.LittleEndian.Uint64(rec[prog.Stack.Slot+StackCount:]))
			if want := min(left, prog.Stack.Bytes) &^ 7; got != want {
				t.Errorf("%d frames, %d bytes of stack: %d copied, want %d", frames, left, got, want)
			}
		}
	}
}

// stackEnd is memory up to an address.
type stackEnd uint64

func (s stackEnd) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	if uint64(at)+uint64(len(b)) > uint64(s) {
		return 0, syscall.EFAULT
	}
	return len(b), nil
}

// TestStackCopySignal: of a handler's own stack and of the one that the signal
// interrupted both pieces are copied, and nothing that only looks like it.
func TestStackCopySignal(t *testing.T) {
	d, err := Parse("p f stack=8")
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	const base, alt, altSize, sp, outer, code = 0x7000_0000, 0x7000_1000, 0x2000, 0x7000_1800, 0x7000_9000, 0x7000_f000
	le := binary.LittleEndian
	put := func(m *stackMemory, at, v uint64) { le.PutUint64(m.b[at-base:], v) }
	frame := func(m *stackMemory, at, saved uint64) {
		put(m, at, code)
		put(m, at+8, 7)
		put(m, at+24, alt)
		put(m, at+32, 0)
		put(m, at+40, altSize)
		put(m, at+48+8*15, saved)
		put(m, at+48+8*18, 0x2b_0000_0000_0033)
	}
	for _, tt := range []struct {
		name string
		make func(*stackMemory)
		end  uint64 // of the first piece; 0 is that there is one alone
	}{
		{"none", func(*stackMemory) {}, 0},
		{"one", func(m *stackMemory) { frame(m, sp+440, outer) }, sp + 440 + SigFrameEnd},
		{"nested", func(m *stackMemory) { frame(m, sp+184, sp+440); frame(m, sp+824, outer) }, sp + 824 + SigFrameEnd},
		{"elsewhere", func(m *stackMemory) { frame(m, sp+440, outer); put(m, sp+440+24, outer) }, 0},
		{"no code", func(m *stackMemory) { frame(m, sp+440, outer); put(m, sp+440, code+1) }, 0},
		{"no memory", func(m *stackMemory) { frame(m, sp+440, outer); put(m, sp+440, 1<<40) }, 0},
		{"a segment", func(m *stackMemory) { frame(m, sp+440, outer); put(m, sp+440+48+8*18, 0x23) }, 0},
	} {
		mem := &stackMemory{base: base, b: make([]byte, 0x10000)}
		for at := uint64(outer - StackBelow); at < outer+8192; at += 8 {
			put(mem, at, at)
		}
		put(mem, code, SigReturn)
		tt.make(mem)
		var regs Regs
		regs.GPR[SP] = sp
		rec, _ := p.Eval(&Context{Regs: &regs, Mem: mem}, nil)
		var stack unwind.Stack
		if _, ok := p.Unwind(rec, 0, &stack); !ok {
			t.Fatal("no stack")
		}
		if tt.end == 0 {
			if len(stack.Bytes) != p.Stack.Bytes || len(stack.More) != 0 {
				t.Errorf("%s: %d and %d bytes", tt.name, len(stack.Bytes), len(stack.More))
			}
			continue
		}
		if stack.Base+uint64(len(stack.Bytes)) != tt.end || stack.MoreBase != outer-StackBelow || len(stack.Bytes)+len(stack.More) != p.Stack.Bytes {
			t.Errorf("%s: to %#x, %d bytes from %#x", tt.name, stack.Base+uint64(len(stack.Bytes)), len(stack.More), stack.MoreBase)
		}
		for at := stack.MoreBase; at < stack.MoreBase+uint64(len(stack.More)); at += 8 {
			if v, ok := stack.Word(at); !ok || v != at {
				t.Fatalf("%s: %#x at %#x, %v", tt.name, v, at, ok)
			}
		}
		if _, ok := stack.Word(stack.MoreBase - 8); ok {
			t.Errorf("%s: what was not copied is there", tt.name)
		}
	}
}
