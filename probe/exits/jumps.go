package exits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/insn"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// part is code by which a function may return: its own, or of a function that
// it jumps to.
type part struct {
	*assess.Function
	site symbols.Site // of its start
	to   symbols.Addr // where the jump leads by which it was found
	own  bool         // of the function itself, whose parts lie apart
}

// at is the site of an instruction of the part.
func (p *part) at(addr uint64) symbols.Site {
	off := addr - uint64(p.Start)
	w := p.site
	w.Addr, w.Offset, w.Func = symbols.Addr(addr), off, p.Fn
	w.Vaddr = p.Fn.Start + symbols.Vaddr(off)
	w.Named = ""
	return w
}

func contains(parts []part, start symbols.Addr) bool {
	for i := range parts {
		if parts[i].Start == start {
			return true
		}
	}
	return false
}

// jumpEnd is where a direct jump leads.
type jumpEnd struct {
	part
	called bool // it may be called, too
	err    error
}

// endsOf is where an exit of a part leads, or all of where it may: there is at least one.
func (f *Finder) endsOf(from part, x insn.Exit) []jumpEnd {
	to, known := symbols.Addr(x.To), !x.Indirect && x.Kind != insn.ExitFall
	if list, ok := f.ends[to]; ok && known {
		return list
	}
	parts, err := f.jumpsTo(from, x)
	list := []jumpEnd{{err: err}}
	if err == nil {
		list = list[:0]
	}
	for _, p := range parts {
		list = append(list, jumpEnd{part: p, called: !f.jumpedTo(p)})
	}
	if known {
		f.ends[to] = list
	}
	return list
}

// jumpedTo reports whether a part is never called.
func (f *Finder) jumpedTo(to part) bool {
	return survey.NotCalled(to.site, func() (*insn.Function, error) {
		in, err := f.rule.Function(to.site)
		if err != nil {
			return nil, err
		}
		return in.Sweep, nil
	}) != ""
}

// errNowhere is for a jump that is never taken: compilers write one to the end of
// a function behind a call that doesn't return (__builtin_unreachable).
var errNowhere = errors.New("to the padding behind a function")

// openJumpError says of a jump that only the program knows where it leads.
type openJumpError struct {
	how string
	// pointer is the address of the pointer by which a stub of a procedure linkage table goes that the
	// jump leads to; 0: it leads to none.
	pointer symbols.Addr
}

// Error implements error.
func (e *openJumpError) Error() string { return e.how }

// behind reports whether an address is that of the padding behind a function.
func behind(file *symbols.File, v symbols.Vaddr) bool {
	before, ok := file.FuncAt(v - 1)
	if !ok || before.End != v {
		return false
	}
	for at := v; at < v+maxPadding; at++ {
		if _, ok := file.FuncAt(at); ok {
			code, err := file.Text(v, int(at-v))
			return err == nil && insn.OnlyPadding(code)
		}
	}
	return false
}

// behindPadding is where control comes that runs on behind a function: through no-ops to the next one.
// Where that isn't known, it is the same address.
func (f *Finder) behindPadding(end symbols.Addr) symbols.Addr {
	m := f.space.ModuleAt(end)
	if m == nil || m.File == nil {
		return end
	}
	v := m.Vaddr(end)
	code, _ := m.File.Text(v, maxPadding)
	for off := 0; off < len(code); {
		if fn, ok := m.File.FuncAt(v + symbols.Vaddr(off)); ok && fn.Start == v+symbols.Vaddr(off) {
			return end + symbols.Addr(off)
		}
		i, err := insn.Decode(code[off:])
		if err != nil || !i.Is(insn.Nop) {
			break
		}
		off += int(i.Len)
	}
	return end
}

// maxPadding is more than compilers align functions by.
const maxPadding = 64

// jumpsTo is the part that an exit leads to: another part of the function, as
// the compiler puts what is rarely run somewhere else, or another function. Where the
// loader will say which of several functions of a name it is there are several parts.
func (f *Finder) jumpsTo(from part, x insn.Exit) ([]part, error) {
	to := symbols.Addr(x.To)
	if x.Kind == insn.ExitFall {
		to = f.behindPadding(to)
	} else if x.Indirect {
		jump, _ := f.rule.Start(from.at(x.Addr))
		in := jump.Inst()
		a, ok := in.RIPTarget(x.Addr, jump.Code())
		if !ok {
			return nil, &openJumpError{how: "where a register says"}
		}
		var err error
		if to, err = f.fixedPointer(symbols.Addr(a)); err != nil {
			return nil, err
		}
	}
	parts, err := f.partsAt(to, true)
	var foreign *foreignError
	if x.Indirect && errors.As(err, &foreign) {
		return nil, &openJumpError{how: err.Error()}
	}
	return parts, err
}

// foreignError names a module whose functions are not patched where they return.
type foreignError struct{ module string }

// Error implements error.
func (e *foreignError) Error() string { return "into " + e.module }

// onlyPart is the part of a list of one; otherwise it has no function.
func onlyPart(list []part) part {
	if len(list) != 1 {
		return part{}
	}
	return list[0]
}

// partsAt are the parts that a jump to an address leads to, if stubs is set through a stub
// of a procedure linkage table.
func (f *Finder) partsAt(to symbols.Addr, stubs bool) ([]part, error) {
	m := f.space.ModuleAt(to)
	if m == nil || m.File == nil {
		return nil, errors.New("to code that no file backs")
	}
	v := m.Vaddr(to)
	fn, ok := m.File.FuncAt(v)
	switch {
	case !ok && behind(m.File, v):
		return nil, errNowhere
	case !ok || fn.End <= fn.Start:
		return nil, errors.New("to code that no function is known at")
	case m.File.IsGo() || strings.HasPrefix(m.Name, "ld-"):
		return nil, &foreignError{m.Name}
	}
	w := symbols.Site{Addr: to, Module: m, Vaddr: v, Func: &fn}
	if next, pointer, stub, err := f.behindStub(w); err != nil {
		return nil, err
	} else if stub && !stubs {
		return nil, errors.New("through stubs")
	} else if stub {
		var list []part
		for _, to := range next {
			more, err := f.partsAt(to, false)
			var foreign *foreignError
			if errors.As(err, &foreign) {
				return nil, &openJumpError{err.Error(), pointer}
			} else if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
		return list, nil
	}
	in, err := f.leaving(w)
	if err != nil {
		return nil, err
	}
	if why := Patchable(fn.Symbol.Name); why != "" {
		return nil, fmt.Errorf("to %s: %s", fn.Symbol.Name, why)
	}
	w.Addr, w.Vaddr, w.Func = in.Start, fn.Start, in.Fn
	return []part{{Function: in, site: w, to: to}}, nil
}

// behindStub is where a stub of a procedure linkage table leads to, by a pointer; stub is
// false for other code.
func (f *Finder) behindStub(w symbols.Site) (to []symbols.Addr, pointer symbols.Addr, stub bool, err error) {
	if !strings.HasPrefix(w.Module.File.Section(w.Vaddr), ".plt") {
		return nil, 0, false, nil
	}
	code, err := w.Module.File.Text(w.Vaddr, 16)
	if err != nil {
		return nil, 0, true, err
	}
	for off := 0; off < len(code); {
		i, err := insn.Decode(code[off:])
		if err != nil {
			break
		}
		at := uint64(w.Addr) + uint64(off)
		if a, ok := i.RIPTarget(at, code[off:]); ok && i.Is(insn.IndirectJmp) {
			to, err := f.boundPointer(symbols.Addr(a), w)
			return to, symbols.Addr(a), true, err
		}
		if !i.Is(insn.CET) && !i.Is(insn.Nop) {
			break
		}
		off += int(i.Len)
	}
	return nil, 0, true, errors.New("through a stub that is not understood")
}

// mostDefined is how many functions of a name there may be for a stub.
const mostDefined = 4

// boundPointer reads the pointer that a stub goes by. The loader binds it once:
// until then it leads back into the table, and the function will be the one of
// the stub's name, or one of those. It is an *openJumpError if these are not known.
func (f *Finder) boundPointer(a symbols.Addr, stub symbols.Site) ([]symbols.Addr, error) {
	var word [8]byte
	if _, err := f.memory.ReadMemory(word[:], a); err != nil {
		return nil, err
	}
	to := symbols.Addr(binary.LittleEndian.Uint64(word[:]))
	m := f.space.ModuleAt(to)
	if m != stub.Module || !strings.HasPrefix(m.File.Section(m.Vaddr(to)), ".plt") {
		return []symbols.Addr{to}, nil
	}
	name, _ := strings.CutSuffix(stub.Func.Symbol.Name, "@plt")
	var found []symbols.Addr
	for _, m := range f.space.Modules() {
		if m.File == nil {
			continue
		}
		for _, s := range m.File.Lookup(name) {
			if s.Binding == symbols.Local || s.Kind == symbols.KindPLT {
				continue
			}
			at := m.Addr(s.Vaddr)
			if slices.Contains(found, at) {
				continue
			}
			if found = append(found, at); s.Kind != symbols.KindFunc || len(found) > mostDefined {
				return nil, &openJumpError{fmt.Sprintf("to %s, which is not bound yet", name), a}
			}
		}
	}
	if len(found) == 0 {
		return nil, &openJumpError{fmt.Sprintf("to %s, which nothing defines yet", name), a}
	}
	return found, nil
}

// fixedPointer reads a pointer that the program can't change any more.
func (f *Finder) fixedPointer(a symbols.Addr) (symbols.Addr, error) {
	in := f.space.ModuleAt(a)
	if in == nil {
		return 0, &openJumpError{how: "through a pointer in no file"}
	}
	for _, m := range in.Maps {
		if a >= m.Start && a+8 <= m.End && !m.Write {
			var word [8]byte
			if _, err := f.memory.ReadMemory(word[:], a); err != nil {
				return 0, err
			}
			return symbols.Addr(binary.LittleEndian.Uint64(word[:])), nil
		}
	}
	return 0, &openJumpError{how: "through a pointer that may change"}
}

// chain is the address that the jump leads to, an instruction at an address; nil where that can't be
// told by a register's value.
func (e *openJumpError) chain(i insn.Inst, code []byte, at uint64) *fetch.Chain {
	if e.pointer != 0 {
		return behindPointer(uint64(e.pointer))
	}
	return jumpChain(i, code, at)
}

// behindPointer is the address in a pointer.
func behindPointer(a uint64) *fetch.Chain {
	return &fetch.Chain{Source: fetch.SourceImm, Imm: a, Loads: []fetch.Load{{}}}
}

// jumpChain is the address that a jump through a register or memory leads to; nil where
// that can't be told by a register's value.
func jumpChain(i insn.Inst, code []byte, at uint64) *fetch.Chain {
	if i.Prefixes&(insn.PrefixAddrSize|insn.PrefixOpSize|insn.PrefixFS|insn.PrefixGS) != 0 {
		return nil
	}
	if a, ok := i.RIPTarget(at, code); ok {
		return behindPointer(a)
	}
	base, index, scale, disp, memory := i.Mem(code)
	switch {
	case memory && index == insn.NoReg && base < 16:
		return &fetch.Chain{Source: fetch.SourceReg, Reg: fetch.Reg(base), Loads: []fetch.Load{{Off: disp}}}
	case memory && index < 16 && (base < 16 || base == insn.NoReg):
		steps := []fetch.Step{{Op: fetch.StepShl, Imm: uint64(bits.TrailingZeros(uint(scale)))}}
		if base != insn.NoReg {
			steps = append(steps, fetch.Step{Op: fetch.StepAdd, FromReg: true, Reg: fetch.Reg(base)})
		}
		steps = append(steps, fetch.Step{Op: fetch.StepLoad, Imm: uint64(disp), Size: 8})
		return &fetch.Chain{Source: fetch.SourceComputed, From: fetch.SourceReg, Reg: fetch.Reg(index), Steps: steps}
	case !memory:
		if r, ok := i.RegOperand(); ok {
			return &fetch.Chain{Source: fetch.SourceReg, Reg: fetch.Reg(r)}
		}
	}
	return nil
}
