package insn

import (
	"regexp"
)

// fullSP are instructions that set the stack pointer to something that it doesn't
// follow from: the whole stack is another one, or none. Those of a frame pointer set
// it to what it was.
var (
	setsSP  = regexp.MustCompile(`^(mov|cmov\w+|xchg|movabs) [re]sp, |^xchg .*, [re]sp$|^pop [re]sp$|^lea [re]sp, `)
	derives = regexp.MustCompile(`^lea [re]sp, \[(ss:)?rsp`)
	byFrame = regexp.MustCompile(`^mov rsp, rbp$|^lea rsp, \[rbp|^leave`)
)

// StackStrays reports whether the stack pointer may not be a stack's at an instruction: the
// function sets it before, sets it again afterwards, and calls nothing in between. Handwritten
// code does this when it runs out of registers.
func (f *Function) StackStrays(addr uint64) bool {
	at, ok := f.index(addr)
	if !ok {
		return false
	}
	set := -1 // the instruction that set it last, in this run of instructions
	for k, fl := range f.flags {
		if k >= at && (set < 0 || set >= at) {
			return false // nothing before it sets it
		}
		if fl.Any(Ret|Stops) || fl.Has(Call) {
			set = -1
			continue
		}
		if !fl.Has(WritesSP) || fl.Has(Push) {
			continue
		}
		inst, code := f.inst(k)
		text := Text(code[:inst.Len], f.at(k), nil)
		full := setsSP.MatchString(text) && !derives.MatchString(text)
		back := byFrame.MatchString(text)
		if !full && !back {
			continue
		}
		if set >= 0 && set < at && at <= k {
			return true
		}
		if set = k; back {
			set = -1
		}
	}
	return false
}
