package assess

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Assessor is the one rule of what can be probed, and where: for probes that are
// armed, for Check and for Inspect. What files tell is the same for all of them; a
// process's memory, and its shadow stack, are known of a process only.
type Assessor struct {
	// Function gives the instructions of the function that contains a place.
	Function func(symbols.Site) (*Function, error)
	Golang   *Programs
	// Own tells kprobe's own code in the process; nil: there is none.
	Own func(symbols.Addr) bool
	// Memory looks whether the memory is what the file holds; nil: there is none.
	Memory func(w symbols.Site, code []byte, in insn.Inst) error
	// KeepCall: calls must stay calls in copies, for the shadow stack's sake.
	KeepCall bool
}

// Place is a place where a breakpoint is safe. It has its instruction's bytes, and not the instruction: all
// returns of a large program are hundreds of thousands of places, and to decode one is quick.
type Place struct {
	Site symbols.Site
	code [insn.MaxLen]byte
	has  uint8 // bytes in code
}

// Code are the file's bytes from the place on: the instruction's, and what may follow. They must not be
// changed.
func (p *Place) Code() []byte { return p.code[:p.has] }

// Inst is the instruction. It is zero if the place wasn't proved.
func (p *Place) Inst() insn.Inst {
	in, _ := insn.Decode(p.Code())
	return in
}

// made makes a place of what was found out about a site.
func made(w symbols.Site, code []byte) Place {
	p := Place{Site: w}
	p.has = uint8(copy(p.code[:], code))
	return p
}

// TrialSlot is how far from an instruction a copy is taken to lie that is planned
// only to see whether there can be one.
const TrialSlot = 1 << 16

// Definition assesses a definition at one of its places, and says where the probe is
// put. The errors are *RefusedError, *BoundaryError and those of reading memory.
func (a *Assessor) Definition(d *fetch.Def, w symbols.Site) (Place, error) {
	if d.Kind == fetch.Return || d.Called {
		if err := a.returns(w); err != nil {
			return Place{}, err
		}
	}
	p, err := a.Instruction(w)
	if err != nil {
		return p, err
	}
	if at := a.behindCheck(w); at.Addr != w.Addr {
		return a.Instruction(at)
	}
	return p, nil
}

// returns refuses a return probe of what has no return of its own.
func (a *Assessor) returns(w symbols.Site) error {
	refuse := func(rule string) error { return &survey.RefusedError{Addr: w.Addr, Place: w.Name(), Rule: rule} }
	switch {
	case w.Offset != 0:
		return refuse("a return probe needs a function's entry")
	case w.Module == nil || w.Module.File == nil || w.Module.File.IsGo():
		return nil
	case w.NamedAs().Inlined != "":
		return refuse(fmt.Sprintf("a return probe needs a function that is called: %s is inlined there", w.NamedAs().Inlined))
	}
	if why := survey.NotCalled(w, func() (*insn.Function, error) { return a.sweep(w) }); why != "" {
		return refuse(why)
	}
	return nil
}

// Instruction assesses a place by itself: whether an instruction starts there, may be
// patched, and can run somewhere else.
func (a *Assessor) Instruction(w symbols.Site) (Place, error) {
	if a.Own != nil && a.Own(w.Addr) {
		return made(w, nil), &survey.RefusedError{Addr: w.Addr, Place: w.Name(), Rule: "it is kprobe's own code"}
	}
	code, in, err := survey.Prove(w, func() (*insn.Function, error) { return a.sweep(w) })
	return a.movable(w, code, in, err)
}

// Start is Instruction for an address that is known to start one, in a module with a
// file.
func (a *Assessor) Start(w symbols.Site) (Place, error) {
	code, in, err := survey.ProveStart(w)
	return a.movable(w, code, in, err)
}

// movable assesses whether the instruction at a place can run somewhere else. err is what was found before.
func (a *Assessor) movable(w symbols.Site, code []byte, in insn.Inst, err error) (Place, error) {
	if err == nil && a.Memory != nil {
		err = a.Memory(w, code, in)
	}
	if err == nil {
		err = survey.TryCopy(w, code, w.Addr+TrialSlot, memory.SlotSize, insn.Options{KeepCall: a.KeepCall})
	}
	return made(w, code), err
}

func (a *Assessor) sweep(w symbols.Site) (*insn.Function, error) {
	f, err := a.Function(w)
	if err != nil {
		return nil, err
	}
	return f.Sweep, nil
}

// behindCheck is where a probe at w is put: at w itself, or for the entry of a
// function of Go's that checks its stack behind that check.
func (a *Assessor) behindCheck(w symbols.Site) symbols.Site {
	if w.Offset != 0 || w.Vaddr != w.Func.Start || !w.Module.File.IsGo() {
		return w
	}
	f, err := a.Function(w)
	if err != nil {
		return w // it stays where it is
	}
	if n := f.GoCode(a.Golang.Of(w.Module.File)).Entry(); n != 0 {
		w.Addr += symbols.Addr(n)
		w.Vaddr += symbols.Vaddr(n)
		w.Offset = n
		if w.Named != "" {
			w.Named = symbols.OffsetName(w.Named, n)
		}
	}
	return w
}

// decoded gives functions of files, each time anew.
func decoded(w symbols.Site) (*Function, error) {
	return Decode(w.Module.File, w.Func, survey.Start(w))
}

// Copy finds how the instruction of a proved place runs out of line at slot.
func Copy(w symbols.Site, code []byte, slot symbols.Addr, keepCall bool) (insn.Moved, error) {
	return survey.Copy(w, code, slot, memory.SlotSize, insn.Options{KeepCall: keepCall})
}
