package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// exits makes a site of each instruction by which a Go function is left. A
// jump into another function leaves it too: its hit is recorded before that
// function runs.
func (tg *target) exits(f *assess.Function, w symbols.Site, p *placed) ([]patchRequest, error) {
	var out []patchRequest
	for _, x := range f.Sweep.Exits() {
		if x.Kind != insn.ExitRet && x.Kind != insn.ExitTail && x.Kind != insn.ExitCondTail {
			continue
		}
		at := w
		at.Addr = symbols.Addr(x.Addr)
		at.Offset = x.Addr - uint64(f.Start)
		at.Vaddr = f.Fn.Start + symbols.Vaddr(at.Offset)
		at.Name = fmt.Sprintf("%s+%#x", w.Name, at.Offset)
		found, err := tg.prove(at)
		if err != nil {
			return nil, err
		}
		out = append(out, patchRequest{Place: &found, p: p, kind: wantExit, conditional: x.Kind == insn.ExitCondTail})
	}
	if len(out) == 0 {
		return nil, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: "the function never returns"}
	}
	return out, nil
}

// describeExits notes how the function is left: what its returns pop, and
// whether it may jump on to other functions.
func (p *placed) describeExits(f *assess.Function) {
	for _, x := range f.Leaving().Exits {
		switch x.Kind {
		case insn.ExitRet:
			p.pop = uint64(x.Pop)
		case insn.ExitTail, insn.ExitCondTail:
			p.tails = true
		}
	}
}

// jccTaken reports whether a conditional jump with this opcode's condition
// would be taken with these flags (Intel SDM vol. 1, table B-1).
func jccTaken(opcode byte, flags uint64) bool {
	const cf, pf, zf, sf, of = 1 << 0, 1 << 2, 1 << 6, 1 << 7, 1 << 11
	less := flags&sf != 0 != (flags&of != 0)
	var t bool
	switch opcode & 15 >> 1 {
	case 0:
		t = flags&of != 0
	case 1:
		t = flags&cf != 0
	case 2:
		t = flags&zf != 0
	case 3:
		t = flags&(cf|zf) != 0
	case 4:
		t = flags&sf != 0
	case 5:
		t = flags&pf != 0
	case 6:
		t = less
	case 7:
		t = less || flags&zf != 0
	}
	return t != (opcode&1 != 0)
}

const (
	// maxReturns is how many return instructions of a function and of those that
	// it jumps to are patched at most, maxParts of how many functions and parts.
	maxReturns = 128
	maxParts   = 48
)

// part is code by which a function may return: its own, or of a function that
// it jumps to.
type part struct {
	*assess.Function
	site symbols.Site // of its start
	to   symbols.Addr // where the jump leads by which it was found
}

// leaver finds the exits of functions, in one state of the process: what it has found of
// an instruction, and of where a jump leads, it knows for the next function that comes
// there. Hundreds of functions may end in a jump to the same one.
type leaver struct {
	tg     *target
	proven map[symbols.Addr]*assess.Place
	ends   map[symbols.Addr]jumpEnd // by where direct jumps lead
}

// jumpEnd is where a direct jump leads.
type jumpEnd struct {
	part
	called bool // it may be called, too
	err    error
}

func newLeaver(tg *target) *leaver {
	return &leaver{tg: tg, proven: map[symbols.Addr]*assess.Place{}, ends: map[symbols.Addr]jumpEnd{}}
}

// prove is target.prove.
func (v *leaver) prove(from part, addr uint64) (*assess.Place, error) {
	if x := v.proven[symbols.Addr(addr)]; x != nil {
		return x, nil
	}
	x, err := v.tg.proveStart(siteIn(from, addr)) // the sweep has it
	if err != nil {
		return nil, err
	}
	v.proven[symbols.Addr(addr)] = &x
	return &x, nil
}

// end is where an exit of a part leads.
func (v *leaver) end(from part, x insn.Exit) jumpEnd {
	to := symbols.Addr(x.To)
	if e, ok := v.ends[to]; ok && !x.Indirect {
		return e
	}
	var e jumpEnd
	if e.part, e.err = v.tg.jumpsTo(from, x); e.err == nil {
		e.called = !v.tg.jumpedTo(e.part)
	}
	if !x.Indirect {
		v.ends[to] = e
	}
	return e
}

// leavings finds the return instructions by which a function may return, as what
// is to be armed: none of one that never does. The error says why they are not all
// known.
func (v *leaver) leavings(w patchRequest) (*exitProbe, error) {
	l := &exitProbe{probe: w.p, suspects: map[int]detour.Instance{}}
	f, err := v.tg.leaving(w.Site)
	if err != nil {
		return nil, err
	}
	parts := []part{{Function: f, site: w.Site}}
	for i := 0; i < len(parts); i++ { // grows
		from := parts[i]
		for _, x := range from.Leaving().Exits {
			switch {
			case x.Kind == insn.ExitTrap || x.Kind == insn.ExitNoReturn:
			case x.Kind == insn.ExitRet:
				if err := l.add(v, w, from, x); err != nil {
					return nil, err
				}
			default:
				to := v.end(from, x)
				if errors.Is(to.err, errNowhere) {
					continue
				}
				if l.opens(v, w, from, x, to.err) {
					continue
				}
				if to.err != nil {
					return nil, fmt.Errorf("at %s+%#x it jumps %w", from.Fn.Symbol.Name, x.Addr-uint64(from.Start), to.err)
				}
				if err := l.passes(v, w, from, x, to, parts); err != nil {
					return nil, err
				}
				if !contains(parts, to.Start) {
					parts = append(parts, to.part)
				}
			}
		}
		if len(l.exits) > maxReturns || len(parts) > maxParts {
			return nil, errors.New("it jumps to too many functions")
		}
	}
	if len(l.exits) == 0 && slices.ContainsFunc(parts, func(p part) bool { return !p.Leaving().Closed }) {
		return nil, errors.New("it has no exit")
	}
	return l, nil // without any it never returns
}

func contains(parts []part, start symbols.Addr) bool {
	for _, p := range parts {
		if p.Start == start {
			return true
		}
	}
	return false
}

// errNowhere is for a jump that is never taken: compilers write one to the end of
// a function behind a call that doesn't return (__builtin_unreachable).
var errNowhere = errors.New("to the padding behind a function")

// openJumpError says of a jump that only the program knows where it leads.
type openJumpError struct{ how string }

// Error implements error.
func (e *openJumpError) Error() string { return e.how }

// behind reports whether an address is that of the padding behind a function.
func behind(f *symbols.File, v symbols.Vaddr) bool {
	before, ok := f.FuncAt(v - 1)
	if !ok || before.End != v {
		return false
	}
	for at := v; at < v+maxPadding; at++ {
		if _, ok := f.FuncAt(at); ok {
			code, err := f.Text(v, int(at-v))
			return err == nil && insn.OnlyPadding(code)
		}
	}
	return false
}

// maxPadding is more than compilers align functions by.
const maxPadding = 64

// jumpsTo is the part that an exit leads to: another part of the function, as
// the compiler puts what is rarely run somewhere else, or another function.
func (tg *target) jumpsTo(from part, x insn.Exit) (part, error) {
	to := symbols.Addr(x.To)
	if x.Indirect {
		jump, _ := tg.proveStart(siteIn(from, x.Addr))
		a, ok := jump.Inst.RIPTarget(x.Addr, jump.Code)
		if !ok {
			return part{}, &openJumpError{"where a register says"}
		}
		var err error
		if to, err = tg.fixedPointer(symbols.Addr(a)); err != nil {
			return part{}, err
		}
	}
	for range 2 { // through a PLT stub
		m := tg.space.ModuleAt(to)
		if m == nil || m.File == nil {
			return part{}, errors.New("to code that no file backs")
		}
		v := m.Vaddr(to)
		fn, ok := m.File.FuncAt(v)
		switch {
		case !ok && behind(m.File, v):
			return part{}, errNowhere
		case !ok || fn.End <= fn.Start:
			return part{}, errors.New("to code that no function is known at")
		case m.File.IsGo() || strings.HasPrefix(m.Name, "ld-"):
			return part{}, fmt.Errorf("into %s", m.Name)
		}
		w := symbols.Site{Addr: to, Module: m, Vaddr: v, Func: fn, Name: fn.Symbol.Name}
		if next, stub, err := tg.behindStub(w); err != nil {
			return part{}, err
		} else if stub {
			to = next
			continue
		}
		f, err := tg.leaving(w)
		if err != nil {
			return part{}, err
		}
		if why := peculiar(plainName(fn.Symbol.Name)); why != "" && why != asksCaller {
			return part{}, fmt.Errorf("to %s: %s", fn.Symbol.Name, why)
		}
		w.Addr, w.Vaddr = f.Start, fn.Start
		return part{f, w, to}, nil
	}
	return part{}, errors.New("through stubs")
}

// behindStub is where a stub of a procedure linkage table leads to; stub is
// false for other code.
func (tg *target) behindStub(w symbols.Site) (to symbols.Addr, stub bool, err error) {
	if !strings.HasPrefix(w.Module.File.Section(w.Vaddr), ".plt") {
		return 0, false, nil
	}
	code, err := w.Module.File.Text(w.Vaddr, 16)
	if err != nil {
		return 0, true, err
	}
	for off := 0; off < len(code); {
		i, err := insn.Decode(code[off:])
		if err != nil {
			break
		}
		at := uint64(w.Addr) + uint64(off)
		if a, ok := i.RIPTarget(at, code[off:]); ok && i.Is(insn.IndirectJmp) {
			to, err := tg.boundPointer(symbols.Addr(a), w)
			return to, true, err
		}
		if !i.Is(insn.CET) && !i.Is(insn.Nop) {
			break
		}
		off += int(i.Len)
	}
	return 0, true, errors.New("through a stub that is not understood")
}

// boundPointer reads the pointer that a stub goes by. The loader binds it once:
// until then it leads back into the table, and the function will be the one of
// the stub's name, if there is one only.
func (tg *target) boundPointer(a symbols.Addr, stub symbols.Site) (symbols.Addr, error) {
	var word [8]byte
	if _, err := tg.proc.ReadMemory(word[:], a); err != nil {
		return 0, err
	}
	to := symbols.Addr(le64(word[:]))
	m := tg.space.ModuleAt(to)
	if m != stub.Module || !strings.HasPrefix(m.File.Section(m.Vaddr(to)), ".plt") {
		return to, nil
	}
	name, _ := strings.CutSuffix(stub.Func.Symbol.Name, "@plt")
	found := symbols.Addr(0)
	for _, m := range tg.space.Modules() {
		if m.File == nil {
			continue
		}
		for _, s := range m.File.Lookup(name) {
			if s.Binding == symbols.Local {
				continue
			}
			if s.Kind == symbols.KindPLT {
				continue
			}
			if s.Kind != symbols.KindFunc || found != 0 && found != m.Addr(s.Vaddr) {
				return 0, fmt.Errorf("to %s, which is not bound yet", name)
			}
			found = m.Addr(s.Vaddr)
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("to %s, which nothing defines yet", name)
	}
	return found, nil
}

// fixedPointer reads a pointer that the program can't change any more.
func (tg *target) fixedPointer(a symbols.Addr) (symbols.Addr, error) {
	in := tg.space.ModuleAt(a)
	if in == nil {
		return 0, &openJumpError{"through a pointer in no file"}
	}
	for _, m := range in.Maps {
		if a >= m.Start && a+8 <= m.End && !m.Write {
			var word [8]byte
			if _, err := tg.proc.ReadMemory(word[:], a); err != nil {
				return 0, err
			}
			return symbols.Addr(le64(word[:])), nil
		}
	}
	return 0, &openJumpError{"through a pointer that may change"}
}

// siteIn is the site of an instruction of a part.
func siteIn(p part, addr uint64) symbols.Site {
	off := addr - uint64(p.Start)
	w := p.site
	w.Addr, w.Offset, w.Func = symbols.Addr(addr), off, p.Fn
	w.Vaddr = p.Fn.Start + symbols.Vaddr(off)
	w.Name = fmt.Sprintf("%s+%#x", p.Fn.Symbol.Name, off)
	return w
}

// passes makes a site of a jump to a function that may be called, too, and of that
// one's entry, unless it is a part already (detour.Passing).
func (l *exitProbe) passes(v *leaver, w patchRequest, from part, x insn.Exit, to jumpEnd, parts []part) error {
	if !to.called || to.Start == parts[0].Start {
		return nil
	}
	add := func(in part, addr uint64, way detour.Passing, conditional bool) error {
		at, err := v.prove(in, addr)
		if err != nil {
			return err
		}
		if conditional && at.Inst.Opcode&^0xf != 0x70 && at.Inst.Opcode&^0xf != 0x80 {
			return fmt.Errorf("%s jumps by a condition that is no flag's", at.Site.Name)
		}
		l.exits = append(l.exits, patchRequest{Place: at, p: w.p, kind: wantExit, passing: way, conditional: conditional})
		return nil
	}
	switch d := to.to - to.Start; {
	case d == 0:
		if err := add(from, x.Addr, detour.PassesOn, x.Kind == insn.ExitCondTail); err != nil {
			return err
		}
	case d <= endbrLen:
		return fmt.Errorf("a jump leads to %s, behind its start", to.site.Name)
	}
	if contains(parts, to.Start) {
		return nil
	}
	if to.Leaving().StartsOver {
		return fmt.Errorf("%s jumps to its own entry", to.site.Name)
	}
	return add(to.part, uint64(to.Start), detour.Arrives, false)
}

// opens makes a site of a jump of which only the program knows where it leads, if that
// can be asked when it is taken (detour.BuildOnward); err is why it isn't known.
func (l *exitProbe) opens(v *leaver, w patchRequest, from part, x insn.Exit, err error) bool {
	var open *openJumpError
	if !errors.As(err, &open) || x.Kind != insn.ExitTail || !v.tg.countsAnywhere(w.p) {
		return false
	}
	at, perr := v.prove(from, x.Addr)
	if perr != nil {
		return false
	}
	to := jumpChain(at.Inst, at.Code, x.Addr)
	if to == nil {
		return false
	}
	if l.open == "" {
		l.open = fmt.Sprintf("at %s it jumps %v", at.Site.Name, err)
	}
	l.exits = append(l.exits, patchRequest{Place: at, p: w.p, kind: wantExit, passing: detour.PassesOn, open: to})
	return true
}

// counts reports whether a hit of the probe is nothing but one more.
func (p *placed) counts() bool {
	return !p.target.s.records(p.user) && p.prog.Filter == nil && p.bins == nil && !p.controlled()
}

// countsAnywhere reports whether returns of a probe are counted only, and a tracer is
// there, so that any return may be theirs.
func (tg *target) countsAnywhere(p *placed) bool {
	return p.counts() && !p.goABI && !tg.s.opts.Detach
}

// jumpChain is the address that a jump through a register or memory leads to; nil where
// that can't be told by a register's value.
func jumpChain(i insn.Inst, code []byte, at uint64) *fetch.Chain {
	if i.Prefixes&(insn.PrefixAddrSize|insn.PrefixOpSize|insn.PrefixFS|insn.PrefixGS) != 0 {
		return nil
	}
	if a, ok := i.RIPTarget(at, code); ok {
		return &fetch.Chain{Source: fetch.SourceImm, Imm: a, Loads: []fetch.Load{{}}}
	}
	base, index, _, disp, memory := i.Mem(code)
	switch {
	case memory && index == insn.NoReg && base < 16:
		return &fetch.Chain{Source: fetch.SourceReg, Reg: fetch.Reg(base), Loads: []fetch.Load{{Off: disp}}}
	case !memory:
		if r, ok := i.RegOperand(); ok {
			return &fetch.Chain{Source: fetch.SourceReg, Reg: fetch.Reg(r)}
		}
	}
	return nil
}

// endbrLen is the length of endbr64.
const endbrLen = 4

// add makes a site of a return instruction.
func (l *exitProbe) add(v *leaver, w patchRequest, from part, x insn.Exit) error {
	if x.Indirect {
		return fmt.Errorf("%s is a far return", siteIn(from, x.Addr).Name)
	}
	at, err := v.prove(from, x.Addr)
	if err != nil {
		return err
	}
	l.exits = append(l.exits, patchRequest{Place: at, p: w.p, kind: wantExit, pop: x.Pop})
	return nil
}
