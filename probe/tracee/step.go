//go:build linux && amd64

package tracee

import (
	"encoding/binary"

	"kprobe/symbols"
)

// trapFlag is TF of RFLAGS. A step sets it in the thread. The kernel hides it from everything
// except an instruction that stores the flags.
const trapFlag = 1 << 8

// beginStep prepares the thread for a step. It notes whether the instruction is a pushf, which
// would store the tracer's trap flag for the program to load again.
func (t *Thread) beginStep() {
	t.pushesFlags, t.stepPlain, t.stepCall = false, false, false
	t.openStep()
	r, err := t.Regs()
	if err != nil {
		return // gone
	}
	var b [4]byte
	n, _ := t.p.ReadMemory(b[:], symbols.Addr(r.Rip))
	for isSyscall(b[:n]) && t.stepMasks(r) {
		if r, err = t.Regs(); err != nil {
			return
		}
		n, _ = t.p.ReadMemory(b[:], symbols.Addr(r.Rip))
	}
	t.stepFrom, t.stepPlain, t.stepCall = r.Rip, n > 0 && !trapsItself(b[:n]), isSyscall(b[:n])
	if !t.stepsItself() { // else the flag is the program's own
		t.pushesFlags = storesFlags(b[:n])
	}
}

// trapsItself reports whether code begins with an instruction whose step says TRAP_BRKPT: an
// int1, or a system call.
func trapsItself(code []byte) bool {
	const int1, firstPrefix, rexMask, rex = 0xf1, 0x64, 0xf0, 0x40
	for i, c := range code {
		switch {
		case c == int1 || isSyscall(code[i:]):
			return true
		case c >= firstPrefix && c <= 0x67 || c == 0x26 || c == 0x2e || c == 0x36 || c == 0x3e || c == 0xf2 || c == 0xf3 || c&rexMask == rex:
		default:
			return false
		}
	}
	return true // nothing but prefixes: unknown
}

// stepsItself reports whether the program has set the stopped thread's trap flag.
func (t *Thread) stepsItself() bool {
	r, err := t.Regs()
	return err == nil && r.Eflags&trapFlag != 0
}

// ownStep reports whether the present stop, whose siginfo has been read, follows a step that
// the program itself has asked for. It also reports true for the tracer's stand-in for that
// signal.
func (t *Thread) ownStep() bool {
	return !t.stepping && (t.si.Stepped() || len(t.owed) > 0 && t.isStandIn(&t.si)) && t.stepsItself()
}

// storesFlags reports whether code begins with a pushf.
func storesFlags(code []byte) bool {
	const pushf, operandSize, rexMask, rex = 0x9c, 0x66, 0xf0, 0x40
	for _, c := range code {
		switch {
		case c == pushf:
			return true
		case c == operandSize || c&rexMask == rex:
		default:
			return false
		}
	}
	return false
}

// stepped clears, at the stop that follows, the trap flag that a stepped pushf stored. The flag
// lies in the second byte, whatever the size stored.
func (t *Thread) stepped() {
	if !t.pushesFlags {
		return
	}
	r, err := t.Regs()
	if err != nil || r.Rip == t.stepFrom {
		return // gone, or stopped by something else before it executed it
	}
	t.pushesFlags = false
	var b [2]byte
	if _, err := t.p.ReadMemory(b[:], symbols.Addr(r.Rsp)); err != nil {
		return
	}
	le := binary.LittleEndian
	le.PutUint16(b[:], le.Uint16(b[:])&^trapFlag)
	_ = t.p.WriteMemory(b[:], symbols.Addr(r.Rsp)) // fails only if the thread is gone
}
