package probe

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// assessor is the one rule of what can be probed, and where: for probes that are
// armed, for Check and for Inspect. What files tell is the same for all of them; a
// process's memory, and its shadow stack, are known of a process only.
type assessor struct {
	// function gives the instructions of the function that contains a place.
	function func(symbols.Site) (*function, error)
	golang   *goPrograms
	// own tells kprobe's own code in the process; nil: there is none.
	own func(symbols.Addr) bool
	// memory looks whether the memory is what the file holds; nil: there is none.
	memory func(w symbols.Site, code []byte, in insn.Inst) error
	// keepCall: calls must stay calls in copies, for the shadow stack's sake.
	keepCall bool
}

// probed is a place where a breakpoint is safe.
type probed struct {
	at   symbols.Site
	code []byte // the file's, from the place on
	inst insn.Inst
}

// trialSlot is how far from an instruction a copy is taken to lie that is planned
// only to see whether there can be one.
const trialSlot = 1 << 16

// definition assesses a definition at one of its places, and says where the probe is
// put. The errors are *RefusedError, *BoundaryError and those of reading memory.
func (a *assessor) definition(d *fetch.Def, w symbols.Site) (probed, error) {
	if d.Kind == fetch.Return {
		if err := a.returns(w); err != nil {
			return probed{}, err
		}
	}
	p, err := a.instruction(w)
	if err != nil {
		return p, err
	}
	if at := a.behindCheck(w); at.Addr != w.Addr {
		return a.instruction(at)
	}
	return p, nil
}

// returns refuses a return probe of what has no return of its own.
func (a *assessor) returns(w symbols.Site) error {
	refuse := func(rule string) error { return &RefusedError{Addr: w.Addr, Place: w.Name, Rule: rule} }
	switch {
	case w.Offset != 0:
		return refuse("a return probe needs a function's entry")
	case w.Module == nil || w.Module.File == nil || w.Module.File.IsGo():
		return nil
	case w.Inlined != "":
		return refuse(fmt.Sprintf("a return probe needs a function that is called: %s is inlined there", w.Inlined))
	}
	if why := survey.NotCalled(w, func() (*insn.Function, error) { return a.sweep(w) }); why != "" {
		return refuse(why)
	}
	return nil
}

// instruction assesses a place by itself: whether an instruction starts there, may be
// patched, and can run somewhere else.
func (a *assessor) instruction(w symbols.Site) (p probed, err error) {
	if p.at = w; a.own != nil && a.own(w.Addr) {
		return p, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: "it is kprobe's own code"}
	}
	p.code, p.inst, err = survey.Prove(w, func() (*insn.Function, error) { return a.sweep(w) })
	return a.movable(p, err)
}

// start is instruction for an address that is known to start one, in a module with a
// file.
func (a *assessor) start(w symbols.Site) (p probed, err error) {
	p.at = w
	p.code, p.inst, err = survey.ProveStart(w)
	return a.movable(p, err)
}

func (a *assessor) movable(p probed, err error) (probed, error) {
	if err == nil && a.memory != nil {
		err = a.memory(p.at, p.code, p.inst)
	}
	if err == nil {
		_, err = planCopy(p.at, p.code, p.at.Addr+trialSlot, a.keepCall)
	}
	return p, err
}

func (a *assessor) sweep(w symbols.Site) (*insn.Function, error) {
	f, err := a.function(w)
	if err != nil {
		return nil, err
	}
	return f.sweep, nil
}

// behindCheck is where a probe at w is put: at w itself, or for the entry of a
// function of Go's that checks its stack behind that check.
func (a *assessor) behindCheck(w symbols.Site) symbols.Site {
	if w.Offset != 0 || w.Vaddr != w.Func.Start || !w.Module.File.IsGo() {
		return w
	}
	f, err := a.function(w)
	if err != nil {
		return w // it stays where it is
	}
	if n := f.goCode(a.golang.of(w.Module.File)).Entry(); n != 0 {
		w.Addr += symbols.Addr(n)
		w.Vaddr += symbols.Vaddr(n)
		w.Offset = n
		w.Name = fmt.Sprintf("%s+%#x", w.Name, n)
	}
	return w
}

// decoded gives functions of files, each time anew.
func decoded(w symbols.Site) (*function, error) {
	return decodeFunction(w.Module.File, w.Func, survey.Start(w))
}

// assessor assesses places of the target.
func (tg *target) assessor() *assessor {
	return &assessor{function: tg.function, golang: &tg.s.golang, own: tg.isOwn, memory: tg.untouched, keepCall: tg.shadowStack}
}
