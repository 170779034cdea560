package gocode

import (
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

// at is where the functions of the tests are taken to lie.
const at = 0x401000

func of(t *testing.T, kind symbols.GoKind, code []byte) *Func {
	t.Helper()
	sweep, err := insn.Sweep(code, at, insn.SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &function{code, at, sweep}
	return f.known(kind, -8, func() alive { return f.trace(at, kind, leftBehind(kind), around{}) })
}

// around is what tests know of other functions: the address at+0x1000 is assembly
// that uses r11 and the flags, all others are compiled.
type around struct{}

const assembly = at + 0x1000

func (around) handed() lives { return allLives &^ scratch }

func (around) uses(v symbols.Vaddr) lives {
	if v == assembly {
		return 1<<insn.R11 | flags
	}
	return allLives
}

func (around) kind(v symbols.Vaddr) symbols.GoKind {
	if v == assembly {
		return symbols.GoAssembled
	}
	return symbols.GoCompiled
}

func leftBehind(kind symbols.GoKind) lives {
	if kind == symbols.GoCompiled {
		return allLives &^ scratch
	}
	return allLives &^ noResult
}

var (
	cmpSP  = []byte{0x49, 0x3b, 0x66, 0x10}       // cmp rsp, [r14+16]
	cmpSPc = []byte{0x49, 0x3b, 0x66, 0x18}       // cmp rsp, [r14+24]
	cmpR12 = []byte{0x4d, 0x3b, 0x66, 0x10}       // cmp r12, [r14+16]
	lea8   = []byte{0x4c, 0x8d, 0x64, 0x24, 0xf0} // lea r12, [rsp-16]
	lea32  = []byte{0x4c, 0x8d, 0xa4, 0x24, 0, 0xf0, 0xff, 0xff}
	movR12 = []byte{0x49, 0x89, 0xe4}             // mov r12, rsp
	subR12 = []byte{0x49, 0x81, 0xec, 0, 0, 1, 0} // sub r12, 0x10000
	loadG  = []byte{0x64, 0x4c, 0x8b, 0x34, 0x25, 0xf8, 0xff, 0xff, 0xff}
	loadCX = []byte{0x64, 0x48, 0x8b, 0x0c, 0x25, 0xf8, 0xff, 0xff, 0xff}
	cmpCX  = []byte{0x48, 0x3b, 0x61, 0x10}       // cmp rsp, [rcx+16]
	body   = []byte{0x90, 0x31, 0xc0, 0x90, 0xc3} // nop; xor eax, eax; nop; ret
	more   = []byte{0xe8, 0, 1, 0, 0}             // call
	jbe    = byte(0x76)
	jb     = byte(0x72)
)

// checked makes a function that starts with check, branches to its end, and from
// there back to its start.
func checked(check []byte, cond byte) []byte {
	code := cat(check, []byte{cond, byte(len(body))}, body, more)
	return append(code, 0xeb, byte(-(len(code) + 2)))
}

// TestChecks has the forms of the check found, and what only looks like one not.
func TestChecks(t *testing.T) {
	wrap := func(low int) []byte { return cat(movR12, subR12, []byte{jb, byte(low)}, cmpR12) }
	other := checked(cmpSP, jbe)
	other[len(other)-1]++ // it jumps back behind the start
	short := checked(cmpSP, jbe)
	twice := checked(cmpSP, jbe)
	twice = append(twice[:len(twice)-2], 0xeb, 0xf9, 0xeb, 0)
	twice[len(twice)-1] = byte(-len(twice))
	for name, c := range map[string]struct {
		code []byte
		want uint64 // the body's start, 0: no check
	}{
		"small":            {checked(cmpSP, jbe), 6},
		"small, for C":     {checked(cmpSPc, jbe), 6},
		"medium":           {checked(cat(lea8, cmpR12), jbe), 11},
		"large":            {checked(cat(lea32, cmpR12), jbe), 14},
		"wraps":            {checked(wrap(6+len(body)), jbe), 18},
		"old convention":   {checked(cat(loadG, cmpSP), jbe), 15},
		"older convention": {checked(cat(loadCX, cmpCX), jbe), 15},

		"another condition":      {checked(cmpSP, 0x77), 0},
		"another word of g":      {checked([]byte{0x49, 0x3b, 0x66, 0x20}, jbe), 0},
		"not what was computed":  {checked(cat(lea8, cmpSP), jbe), 0},
		"nothing was computed":   {checked(cmpR12, jbe), 0},
		"wraps elsewhere":        {checked(wrap(3), jbe), 0},
		"doesn't start over":     {other, 0},
		"goes back to the body":  {twice, 0},
		"no branch":              {cat(cmpSP, body), 0},
		"no room for the branch": {short[:7], 0},
		"branches out":           {cat(cmpSP, []byte{jbe, 0x7f}, body), 0},
		"no check":               {body, 0},
		"cut off":                {lea8[:4], 0},
	} {
		g := of(t, symbols.GoCompiled, c.code)
		if g.Entry() != c.want {
			t.Errorf("%s: the body starts at %d, want %d", name, g.Entry(), c.want)
		}
		if keeps := c.want != 0 && name != "older convention"; g.KeepsG() != keeps || of(t, symbols.GoAssembled, c.code).KeepsG() {
			t.Errorf("%s: the goroutine is in r14: %v", name, g.KeepsG())
		}
		if c.want != 0 && g.slow != c.want+uint64(len(body)) {
			t.Errorf("%s: the body ends at %d", name, g.slow)
		}
	}
}

// TestStack says where there is stack, and what a detour may look with.
func TestStack(t *testing.T) {
	const (
		r10 = insn.R10
		r11 = insn.R11
		r12 = insn.R12
		r13 = insn.R13
	)
	set := insn.Set
	code := checked(cmpSP, jbe)
	medium := checked(cat(lea8, cmpR12), jbe)
	end := uint64(6 + len(body))
	plain := body
	setsG := cat(loadG, body)
	setsR12 := []byte{0x41, 0xbc, 0, 0, 0, 0, 0x4c, 0x89, 0xe0, 0x31, 0xc9, 0xc3} // mov r12d, 0; mov rax, r12; xor ecx, ecx; ret
	loops := append(slices.Clone(body[:4]), 0xeb, 0xfa, 0xc3)                     // jmp to the start
	uses13 := cat([]byte{0x45, 0x85, 0xed}, plain)                                // test r13d, r13d
	calls := func(to uint64, code ...byte) []byte {                               // nop; call; code
		d := uint32(to - (at + 6))
		return cat([]byte{0x90, 0xe8, byte(d), byte(d >> 8), byte(d >> 16), byte(d >> 24)}, code)
	}
	jumps := []byte{0x90, 0xff, 0xe0} // nop; jmp rax
	for name, c := range map[string]struct {
		kind  symbols.GoKind
		code  []byte
		off   uint64
		want  Room
		free  insn.RegSet // what must be free
		keeps insn.RegSet // and what must not
		flags bool
		tls   bool
	}{
		"another language":            {symbols.GoForeign, plain, 2, Plenty, 0, 0, false, false},
		"what nobody knows":           {symbols.GoUnknown, plain, 2, None, 0, 0, false, false},
		"the check's branch":          {symbols.GoCompiled, code, 4, Look, set(r12, r13), set(insn.RBX), false, false},
		"the body's start":            {symbols.GoCompiled, code, 6, Checked, 0, 0, false, false},
		"the body's end":              {symbols.GoCompiled, code, end - 1, Checked, 0, 0, false, false},
		"where it is grown":           {symbols.GoCompiled, code, end, Look, set(r12, r13), 0, true, false},
		"and it starts over":          {symbols.GoCompiled, code, end + 5, Look, set(r12, r13), set(insn.RAX), true, false},
		"with g from elsewhere":       {symbols.GoCompiled, checked(cat(loadCX, cmpCX), jbe), 15 + uint64(len(body)), Look, set(r12, r13), 0, true, true},
		"what r12 is for":             {symbols.GoCompiled, medium, 5, Look, set(r13), set(r12), true, false},
		"and behind":                  {symbols.GoCompiled, medium, 9, Look, set(r12, r13), 0, false, false},
		"checked assembly":            {symbols.GoAssembled, code, 6, Checked, 0, 0, false, false},
		"an entry":                    {symbols.GoCompiled, plain, 0, Look, set(r12, r13), set(insn.RBX, r10), true, false},
		"an exit":                     {symbols.GoCompiled, plain, 4, Look, set(r12, r13), set(insn.RBX, r10), true, false},
		"a middle, before flags":      {symbols.GoCompiled, plain, 1, Look, set(r12, r13), 0, true, false},
		"what is overwritten":         {symbols.GoCompiled, setsR12, 9, Look, set(insn.RCX, r12, r13), set(insn.RDX), true, false},
		"what is used":                {symbols.GoCompiled, setsR12, 6, Look, set(r13), set(r12), true, false},
		"r13 is used":                 {symbols.GoCompiled, uses13, 0, Look, set(r12), set(r13), true, false},
		"one that sets r14":           {symbols.GoCompiled, setsG, 0, Look, set(r12, r13), 0, true, true},
		"it jumps to its start":       {symbols.GoCompiled, loops, 0, Look, set(r12, r13), 0, true, false},
		"assembly":                    {symbols.GoAssembled, plain, 0, Look, set(r10, r11), set(r12, r13, insn.RBX), true, true},
		"and its return":              {symbols.GoAssembled, plain, 4, Look, set(r10, r11), set(r12, r13, insn.RAX), true, true},
		"it calls compiled functions": {symbols.GoAssembled, calls(at+0x2000, 0xc3), 0, Look, set(r12, r13), set(r10, r11), true, true},
		"it calls what uses r11":      {symbols.GoAssembled, calls(assembly, 0xc3), 0, None, 0, 0, false, false},
		"and behind the call":         {symbols.GoAssembled, calls(assembly, 0xc3), 6, Look, set(r10, r11), 0, true, true},
		"a compiled one calls that":   {symbols.GoCompiled, calls(assembly, 0xc3), 0, Look, set(r12, r13), set(r11), true, false},
		"who knows where to":          {symbols.GoAssembled, jumps, 0, None, 0, 0, false, false},
		"and what is cut off":         {symbols.GoAssembled, plain[:3], 0, None, 0, 0, false, false},
	} {
		s, why := of(t, c.kind, c.code).Stack(c.off)
		if s.Room != c.want || (why == "") != (s.Room != None) {
			t.Errorf("%s: %+v %q, want %v", name, s, why, c.want)
			continue
		}
		if s.Free&c.free != c.free || s.Free&c.keeps != 0 || c.want == Look && s.Flags != c.flags || (s.TLS == -8) != c.tls {
			t.Errorf("%s: free are %v, flags %v, goroutine in fs:%d", name, s.Free, s.Flags, s.TLS)
		}
		if s.Free.Has(insn.RSP) || s.Free.Has(insn.RAX) || s.Free.Has(insn.R14) {
			t.Errorf("%s: free are %v", name, s.Free)
		}
	}
	f := of(t, symbols.GoAssembled, plain)
	f.tls = 0
	if s, why := f.Stack(0); s.Room != None || why == "" {
		t.Errorf("nobody knows the goroutine: %+v", s)
	}
}

// TestStackCheck: the check is found in all functions that have one, as the
// assembler's own words say: those that call runtime.morestack.
func TestStackCheck(t *testing.T) {
	path := fixture.Build(t, "probe_go.go")
	f, err := symbols.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	more := map[uint64]bool{}
	e, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	syms, err := e.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if strings.HasPrefix(s.Name, "runtime.morestack") {
			more[s.Value] = true
		}
	}
	program := NewProgram(f)
	found, missed, wrong, compiled := 0, 0, 0, 0
	for _, fn := range f.Funcs() {
		start := uint64(fn.Start)
		if more[start] || fn.End <= fn.Start {
			continue
		}
		code, err := f.Text(fn.Start, int(fn.End-fn.Start))
		if err != nil {
			t.Fatal(err)
		}
		sweep, err := insn.Sweep(code, start, insn.SweepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		calls := uint64(0)
		for x := range sweep.Targets() {
			if x.Call && more[x.To] {
				calls = x.From - start
			}
		}
		g := Of(program, fn.Start, code, start, sweep)
		if g.kind == symbols.GoCompiled {
			compiled++
		}
		switch {
		case g.checked == 0 && calls != 0:
			missed++
			t.Logf("%s has a check that was not found", fn.Symbol.Name)
		case g.checked != 0 && (calls == 0 || calls < g.slow):
			wrong++
			t.Errorf("%s has no check, one was found at %#x", fn.Symbol.Name, g.checked)
		case g.checked != 0:
			found++
		}
	}
	if found < 1000 || missed*200 > found || compiled < found {
		t.Errorf("%d checks were found, %d not; %d compiled functions", found, missed, compiled)
	}
	t.Logf("%d found, %d not", found, missed)
}
