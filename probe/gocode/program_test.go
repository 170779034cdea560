package gocode

import (
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// TestConventions looks at functions of Go's runtime whose conventions are known, at
// their entries and returns.
func TestConventions(t *testing.T) {
	file, err := symbols.OpenFile(fixture.Build(t, "go_asm.go"))
	if err != nil {
		t.Fatal(err)
	}
	p := NewProgram(file)
	byName := map[string]symbols.Func{}
	shares := map[symbols.GoKind][2]int{}
	stack := func(fn symbols.Func) (g *Func, f *function) {
		code, err := file.Text(fn.Start, int(fn.End-fn.Start))
		if err != nil {
			t.Fatal(err)
		}
		sweep, err := insn.Sweep(code, uint64(fn.Start), insn.SweepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return Of(p, fn.Start, code, uint64(fn.Start), sweep), &function{code, uint64(fn.Start), sweep}
	}
	for fn := range file.EachFunc() {
		byName[fn.Symbol.Name] = fn
		if kind := file.GoKind(fn.Start); fn.End > fn.Start && (kind == symbols.GoAssembled || kind == symbols.GoCompiled) {
			g, _ := stack(fn)
			s, _ := g.Stack(g.Entry())
			n := shares[kind]
			if n[0]++; s.Room != None {
				n[1]++
			}
			shares[kind] = n
		}
	}
	for kind, n := range shares {
		t.Logf("kind %d: %d of %d entries have stack", kind, n[1], n[0])
	}
	if n := shares[symbols.GoCompiled]; n[0] < 1000 || n[0] != n[1] {
		t.Errorf("%d of %d compiled functions", n[1], n[0])
	}
	if n := shares[symbols.GoAssembled]; n[0] < 100 || n[1]*100 < n[0]*85 {
		t.Errorf("%d of %d functions in assembly", n[1], n[0])
	}
	set := insn.Set
	for name, c := range map[string]struct {
		entry, ret Room
		free, kept insn.RegSet // at the entry
		freeAtRet  insn.RegSet
		keptAtRet  insn.RegSet
	}{
		"runtime.memmove":              {Look, Look, set(insn.R10, insn.R11), set(insn.RAX, insn.RBX, insn.RCX), set(insn.R10), set(insn.RAX)},
		"runtime.memclrNoHeapPointers": {Look, Look, set(insn.R10, insn.R11), set(insn.RBX), set(insn.R11), set(insn.RBX)},
		// They keep all registers, whoever runs them.
		"runtime.asyncPreempt.abi0": {None, None, 0, 0, 0, 0},
		"gcWriteBarrier":            {None, None, 0, 0, 0, 0},
		// C calls these.
		"setg_gcc": {Look, Look, set(insn.R11), set(insn.RBX, insn.R12, insn.R13, insn.R15), set(insn.R10), set(insn.RBX, insn.R12, insn.R13, insn.R15)},
		// Wrappers that assembly calls: r14 may be anything.
		"runtime.newstack.abi0": {Look, None, set(insn.R12, insn.R13), 0, 0, 0},
	} {
		fn, ok := byName[name]
		if !ok {
			t.Errorf("there is no %s", name)
			continue
		}
		g, f := stack(fn)
		s, why := g.Stack(0)
		if s.Room != c.entry || s.Free&c.free != c.free || s.Free&c.kept != 0 || s.Room == Look && s.TLS != -8 {
			t.Errorf("%s: %+v %v %s", name, s, s.Free, why)
		}
		for at, i := range f.sweep.All() {
			if !i.Flags.Any(insn.Ret) {
				continue
			}
			s, why := g.Stack(at - f.start)
			if s.Room != c.ret || s.Free&c.freeAtRet != c.freeAtRet || s.Free&c.keptAtRet != 0 {
				t.Errorf("%s+%#x: %+v %v %s", name, at-f.start, s, s.Free, why)
			}
		}
	}
}

// TestThroughTables: what is alive behind a call through a table of functions is no
// functions' to change.
func TestThroughTables(t *testing.T) {
	for name, c := range map[string]struct {
		code []byte
		want bool
	}{
		"a table":               {[]byte{0xff, 0x14, 0xcb, 0xc3}, true},                    // call [rbx+rcx*8]
		"one by a register":     {[]byte{0x48, 0x8b, 0x14, 0xcb, 0xff, 0xd2, 0xc3}, true},  // mov rdx, [rbx+rcx*8]; call rdx
		"a closure":             {[]byte{0x48, 0x8b, 0x3f, 0xff, 0xd7, 0xc3}, false},       // mov rdi, [rdi]; call rdi
		"a closure, in memory":  {[]byte{0xff, 0x12, 0xc3}, false},                         // call [rdx]
		"another register only": {[]byte{0x48, 0x8b, 0x14, 0xcb, 0xff, 0xd1, 0xc3}, false}, // mov rdx, [rbx+rcx*8]; call rcx
	} {
		sweep, err := insn.Sweep(c.code, at, insn.SweepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f := &function{c.code, at, sweep}
		for a, i := range sweep.All() {
			if i.Flags.Any(insn.IndirectCall) && f.fromTable(a, i) != c.want {
				t.Errorf("%s: %v", name, !c.want)
			}
		}
	}
}
