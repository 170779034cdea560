package vars

import (
	"regexp"
	"slices"

	"kprobe/probe/insn"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Go's calls preserve no general registers but the frame pointer and the goroutine's (R14). Its
// debug information sometimes still places a variable in a register behind a call: where the call
// is the last of its block, and where the variable's last location was in a block that returns,
// behind which the compiler has put other blocks (cmd/compile/internal/ssa/debug.go).

// afterCall reports whether code of the location that holds here leads from a call to here, and
// sets none of the place's registers in between. list has all locations of the variable.
func (f *frame) afterCall(p place, list []debuginfo.Location) bool {
	regs := insn.RegSet(p.registers()) &^ insn.Set(insn.RBP, insn.R14)
	i := slices.IndexFunc(list, func(l debuginfo.Location) bool { return !l.Everywhere() && l.Low <= f.pc && f.pc < l.High })
	if regs == 0 || i < 0 || list[i].High-list[i].Low > maxLoopCode {
		return false
	}
	low := list[i].Low
	code, err := f.module.File.Text(symbols.Vaddr(low), int(list[i].High-low))
	if err != nil {
		return false
	}
	return leftByCall(code, int(f.pc-low), regs, func(i insn.Inst, at int) callKind {
		if to, direct := i.Target(low+uint64(at), code[at:]); direct {
			if fn, ok := f.module.File.FuncAt(symbols.Vaddr(to)); ok {
				return kindOfCall(fn.Symbol.Name)
			}
		}
		return callLoses
	})
}

// callKind is what a call does to registers.
type callKind int

const (
	callLoses callKind = iota
	callKeeps
	callNever // returns
)

var (
	goKeeps = regexp.MustCompile(`^runtime\.(?:gcWriteBarrier|duff|race|asan|msan)`)
	goNever = regexp.MustCompile(`^runtime\.(?:panic|goPanic|gopanic|throw|fatal|block$)`)
)

// kindOfCall returns what a call of a function does to Go's registers.
func kindOfCall(function string) callKind {
	switch {
	case goKeeps.MatchString(function):
		return callKeeps
	case goNever.MatchString(function):
		return callNever
	}
	return callLoses
}

// leftByCall reports whether code leads from a call to the offset to, and sets none of the
// registers in between. kind tells what a call at an offset does. Where a branch comes behind
// such a call, the location is wrong as a whole, from the end of its first block on: registers
// may be set to other values there, too.
func leftByCall(code []byte, to int, regs insn.RegSet, kind func(i insn.Inst, at int) callKind) bool {
	steps := map[int]*callStep{}
	var open []int
	lead := func(at int, left insn.RegSet) {
		if s := steps[at]; s != nil && left&^s.left != 0 {
			s.left |= left
			open = append(open, at)
		}
	}
	var calls []int
	block := len(code) // the end of the first one
	for at := 0; at < len(code); {
		i, err := insn.Decode(code[at:])
		if err != nil {
			return false
		}
		s := &callStep{inst: i, ends: i.Flags.Any(insn.Ret | insn.Stops | insn.Jmp | insn.Trap)}
		steps[at] = s
		if s.ends && block == len(code) {
			block = at + int(i.Len)
		}
		if i.Is(insn.Call) {
			k := kind(i, at)
			if s.ends = k != callKeeps; k == callLoses {
				calls = append(calls, at)
			}
		}
		at += int(i.Len)
	}
	for _, at := range calls {
		lead(at+int(steps[at].inst.Len), regs)
	}
	for len(open) > 0 {
		at := open[len(open)-1]
		open = open[:len(open)-1]
		s := steps[at]
		if at == to || to >= block && s.inst.Is(insn.CondBranch) {
			return true
		}
		left := s.left &^ s.inst.RegsWritten()
		if target, ok := s.inst.Target(uint64(at), code[at:]); ok && !s.inst.Is(insn.Call) {
			lead(int(target), left)
		}
		if !s.ends {
			lead(at+int(s.inst.Len), left)
		}
	}
	return false
}

// callStep is an instruction.
type callStep struct {
	inst insn.Inst
	ends bool        // what it leads to isn't the instruction behind it, or is noted already
	left insn.RegSet // what calls have left, before the instruction
}
