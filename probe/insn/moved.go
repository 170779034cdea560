package insn

import (
	"fmt"
	"sort"
)

// MaxMoved is the longest Code that Relocate returns, in bytes.
const MaxMoved = 64

// Options says how instructions are relocated. The zero value is the common
// case.
type Options struct {
	// KeepCall makes a call return into the copy, which then jumps back, instead of pushing
	// the original return address and jumping. Processors with shadow stacks require it.
	// Stack walkers see the copy's address.
	KeepCall bool
	// NoJumpBack omits the jump to the following instruction: what is appended to the Code
	// runs next.
	NoJumpBack bool
	// Lead has addresses outside of the code that are left for others: a direct branch to one,
	// or the jump back to it, goes to the other. nil: none is.
	Lead map[uint64]uint64
}

// Moved is code that does, at another address, what the original instructions
// do at theirs.
type Moved struct {
	Code []byte
	// Points describes each instruction of Code, in order.
	Points []Point
	// Starts has the offsets of the copies of the original instructions, in order.
	Starts []Start
	// Falls reports that control can reach what follows the original: by the jump back, or
	// by the end of Code with NoJumpBack.
	Falls bool
}

// Start pairs an original instruction with its copy.
type Start struct {
	From uint64 // address of the original
	Off  int    // offset of the copy in Code
}

// State says how far the original instruction has got.
type State uint8

// States.
const (
	// Before: the original has had no effect except on memory below the stack pointer, and
	// can be run again from its start.
	Before State = iota
	// Main: as Before. The instruction at this point does what the original does, and a
	// fault of it is a fault of the original.
	Main
	// After: the original has had its effect.
	After
)

// String names the state.
func (s State) String() string {
	switch s {
	case Before:
		return "before"
	case Main:
		return "main"
	}
	return "after"
}

// Point is an instruction of the copy at which a thread can be found stopped. It says what the
// thread would look like had it run the original: its Scratch register holds the quadword at
// rsp + ScratchAt, its rsp is AddSP more, its rip is IP.
type Point struct {
	Off       uint16
	State     State
	Scratch   Reg // NoReg: every register is right
	ScratchAt int16
	AddSP     int16
	IP        uint64
}

// Where returns the point of the instruction that holds the byte at off of Code. Before the
// first and after the last instruction it is the nearest. The zero Moved has only the zero
// Point with no Scratch.
func (m Moved) Where(off int) Point {
	n := sort.Search(len(m.Points), func(k int) bool { return int(m.Points[k].Off) > off })
	if len(m.Points) == 0 {
		return Point{Scratch: NoReg}
	}
	return m.Points[max(n-1, 0)]
}

// Copy returns the offset in Code of the copy of the instruction that the
// address starts; ok is false if none of the originals does.
func (m Moved) Copy(from uint64) (off int, ok bool) {
	for _, s := range m.Starts {
		if s.From == from {
			return s.Off, true
		}
	}
	return 0, false
}

// RefusedError says that an instruction can't be run out of line, and why.
type RefusedError struct {
	Rule string // the reason, a sentence without a full stop
	At   uint64 // address of the instruction
	Inst Inst
	Err  error // of Decode, if that failed
}

// Error gives the reason.
func (e *RefusedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Rule, e.Err)
	}
	return e.Rule
}

// Unwrap returns the error of Decode, if that is the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// refusals gives the reasons why instructions can't be moved, by what they are.
var refusals = []struct {
	flags Flags
	rule  string
}{
	{Syscall, "a system call shows its address to the kernel and to the program"},
	{XBegin, "the fallback of a transaction can't be moved"},
	{Trap, "a trap instruction belongs to the program or its debugger"},
	{Halt, "hlt can't run in user mode"},
	{FarBranch, "a far branch can't be moved"},
	{Op16Branch, "processors disagree about a branch with operand-size prefix"},
	{Priv, "a privileged instruction faults in user mode"},
}

// Refusal returns why the instruction can't be run at another address; "" if it can. Distances
// can also forbid it; only Relocate knows these.
func (i Inst) Refusal() string {
	for _, r := range refusals {
		if i.Flags.Any(r.flags) {
			return r.rule
		}
	}
	return ""
}
