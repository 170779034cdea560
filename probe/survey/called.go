package survey

import (
	"fmt"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// What can have a return
//
// A return probe notes the call at a function's entry and recognises its return by
// where the return address lies. So there must be one, which the call has put
// there. What is jumped to returns for the function that jumped: it finds that
// one's caller on the stack, and where it leaves by an exception or a longjmp, the
// next return there is that of another call.
//
// Refused are, in this order: parts of a function by their names (f.cold); what
// starts with more than a return address on the stack, as call frame information
// tells; and, among what has no name, ranges that no call leads to, whose address
// is taken nowhere, and that a conditional jump leads to, or a jump if they never
// return, or that jump into the middle of another range.

// NotCalled says why what starts at a place can't have a return probe: a clause
// that completes "PLACE can't be probed: ". "" if nothing stands against it. decode
// gives the instructions of the place's function; it is called where they are needed
// to know. Go's functions are another matter: they are not to be asked for.
func NotCalled(w symbols.Site, decode func() (*insn.Function, error)) string {
	file := w.Module.File
	if of, ok := file.PieceOf(w.Vaddr); ok {
		return fmt.Sprintf("a return probe needs a function that is called: this is a part of %s that is jumped to; probe %s", of, of)
	}
	if !file.Called(w.Vaddr) {
		return "a return probe needs a function that is called: nothing shows that a return address is on the stack where this starts"
	}
	if w.Func.Symbol.Kind == symbols.KindFDE && onlyJumpedTo(w, decode) {
		return "a return probe needs a function that is called: the file only jumps to this, as to a part of another function"
	}
	return ""
}

// onlyJumpedTo reports whether a range without a name is a part of a function.
func onlyJumpedTo(w symbols.Site, decode func() (*insn.Function, error)) bool {
	leads := w.Module.File.Leads(w.Vaddr)
	switch {
	case leads&(symbols.LeadCall|symbols.LeadTaken|symbols.LeadExported) != 0:
		return false
	case leads&symbols.LeadBranch != 0:
		return true
	}
	sweep, err := decode()
	if err != nil {
		return false
	}
	returns := false
	for _, x := range sweep.Exits() {
		switch x.Kind {
		case insn.ExitTrap, insn.ExitNoReturn, insn.ExitFall:
			continue
		case insn.ExitTail, insn.ExitCondTail:
			if x.To != 0 && !x.Switch && inMiddle(w, x.To) {
				return true
			}
		}
		returns = true
	}
	return leads&symbols.LeadJump != 0 && !returns
}

// inMiddle reports whether an address lies in another function of the file, and
// not at its start.
func inMiddle(w symbols.Site, to uint64) bool {
	v := w.Vaddr + symbols.Vaddr(to-uint64(w.Addr))
	start, ok := w.Module.File.StartAt(v)
	return ok && start != v && start != w.Func.Start
}
