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
	return Of(kind, code, at, sweep)
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

// TestRoom says where there is stack.
func TestRoom(t *testing.T) {
	code := checked(cmpSP, jbe)
	end := uint64(6 + len(body))
	plain := body
	setsG := cat(loadG, body)
	readsR12 := cat([]byte{0x4c, 0x89, 0xe0}, body)           // mov rax, r12
	setsR12 := cat([]byte{0x41, 0xbc, 0, 0, 0, 0}, readsR12)  // mov r12d, 0
	loops := append(slices.Clone(body[:4]), 0xeb, 0xfa, 0xc3) // jmp to the start
	afterCall := cat(more, loadG, body)                       // r14 after a call is its own affair
	for name, c := range map[string]struct {
		kind symbols.GoKind
		code []byte
		off  uint64
		exit bool
		want Room
	}{
		"another language":      {symbols.GoForeign, plain, 2, false, Plenty},
		"the check":             {symbols.GoCompiled, code, 0, false, None},
		"the check's branch":    {symbols.GoCompiled, code, 4, false, LookKeep},
		"a C function's check":  {symbols.GoUnknown, code, 4, false, None},
		"the body's start":      {symbols.GoCompiled, code, 6, false, Checked},
		"the body's end":        {symbols.GoCompiled, code, end - 1, true, Checked},
		"where it is grown":     {symbols.GoCompiled, code, end, false, Look},
		"and it starts over":    {symbols.GoCompiled, code, end + 5, true, Look},
		"with g from elsewhere": {symbols.GoCompiled, checked(cat(loadCX, cmpCX), jbe), 15 + uint64(len(body)), false, None},
		"what r12 is for":       {symbols.GoCompiled, checked(cat(lea8, cmpR12), jbe), 5, false, None},
		"and behind":            {symbols.GoCompiled, checked(cat(lea8, cmpR12), jbe), 9, false, LookKeep},
		"checked assembly":      {symbols.GoUnknown, code, 6, false, Checked},
		"an entry":              {symbols.GoCompiled, plain, 0, false, Look},
		"an exit":               {symbols.GoCompiled, plain, 4, true, Look},
		"a middle":              {symbols.GoCompiled, plain, 1, false, LookKeep},
		"a middle that has r12": {symbols.GoCompiled, setsR12, 8, false, None},
		"one that has r13":      {symbols.GoCompiled, cat([]byte{0x45, 0x31, 0xed}, plain), 3, false, None},
		"one that sets r14":     {symbols.GoCompiled, setsG, 10, false, None},
		"assembly":              {symbols.GoUnknown, plain, 0, false, None},
		"it sets the goroutine": {symbols.GoCompiled, setsG, 0, false, None},
		"and so behind a call":  {symbols.GoCompiled, afterCall, 0, false, Look},
		"it reads r12":          {symbols.GoCompiled, readsR12, 0, false, None},
		"it sets and reads r12": {symbols.GoCompiled, setsR12, 0, false, Look},
		"it jumps to its start": {symbols.GoCompiled, loops, 0, false, LookKeep},
		"the exit of a loop":    {symbols.GoCompiled, loops, 6, true, LookKeep},
	} {
		room, why := of(t, c.kind, c.code).Room(c.off, c.exit)
		if room != c.want || (why == "") != (room != None) {
			t.Errorf("%s: %v %q, want %v", name, room, why, c.want)
		}
	}
}

// TestLeaves tells the instructions that end a call.
func TestLeaves(t *testing.T) {
	code := []byte{
		0x90,       // 0: nop
		0xeb, 0xfd, // 1: jmp 0
		0x74, 0x10, // 3: je out
		0xe8, 0, 1, 0, 0, // 5: call
		0xff, 0xe0, // 10: jmp rax
		0xeb, 1, // 12: jmp 15, the first byte behind
		0xc3, // 14: ret
	}
	sweep, err := insn.Sweep(code, at, insn.SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for off, want := range map[uint64]bool{0: false, 1: false, 2: false, 3: false, 5: false, 10: false, 12: true, 14: true, 15: false} {
		if got := Leaves(sweep, at, uint64(len(code)), at+off); got != want {
			t.Errorf("%d: %v", off, got)
		}
	}
	// Backwards out of the function.
	if sweep, err = insn.Sweep([]byte{0xeb, 0xf0}, at, insn.SweepOptions{}); err != nil {
		t.Fatal(err)
	}
	if !Leaves(sweep, at, 2, at) {
		t.Error("a jump to before the function doesn't leave it")
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
		for _, x := range sweep.Targets() {
			if x.Call && more[x.To] {
				calls = x.From - start
			}
		}
		g := Of(f.GoKind(fn.Start), code, start, sweep)
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
