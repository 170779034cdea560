//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// Where a frame's registers have rip and the flags (struct sigcontext_64).
const (
	mcontextIP    = 128
	mcontextFlags = 136
)

// Limits of Interrupted.
const (
	// interruptedReach is how far above a stack pointer a signal's frame is searched for,
	// past the frames of whatever the handlers have called since.
	interruptedReach = 1 << 20
	// interruptedMost bounds how many stacks are searched for one thread.
	interruptedMost = 16
)

// stacks are buffers for copies of stacks.
var stacks = sync.Pool{New: func() any { return new([interruptedReach]byte) }}

// Interrupted reports whether a signal has interrupted the stopped thread at an address that in
// accepts, and its handler has not returned yet: the thread will be there again. in is told
// whether an int3 right before the address was the signal's cause.
//
// Interrupted searches for signal frames on the stack, and on each stack that a frame says it
// has interrupted. A frame that a handler left long ago, and that nothing has overwritten, may
// be mistaken for a live one. A frame deeper than a mebibyte is not found.
func (t *Thread) Interrupted(in func(pc symbols.Addr, trapped bool) bool) bool {
	r, err := t.Regs()
	return err == nil && interrupted(t.p, symbols.Addr(r.Rsp), func(f *signalFrame) bool { return in(f.pc, f.trapped) })
}

// Contexts calls visit with the registers of the stopped thread, and with those of all code that a
// signal has interrupted and whose handler has not returned yet. Frames are found as by
// Interrupted. Of interrupted code the general registers, Rip and Eflags are set. The error is
// that of Regs.
func (t *Thread) Contexts(visit func(*unix.PtraceRegs)) error {
	r, err := t.Regs()
	if err != nil {
		return err
	}
	visit(r)
	interrupted(t.p, symbols.Addr(r.Rsp), func(f *signalFrame) bool { visit(&f.regs); return false })
	return nil
}

// LeadInterrupted changes where the stopped thread continues when signal handlers return: for
// each interrupted address for which to knows another one. As with Interrupted, a frame that
// was left long ago is changed too.
func (t *Thread) LeadInterrupted(to func(pc symbols.Addr) (symbols.Addr, bool)) error {
	r, err := t.Regs()
	if err != nil {
		return nil // gone
	}
	interrupted(t.p, symbols.Addr(r.Rsp), func(f *signalFrame) bool {
		if pc, ok := to(f.pc); ok && !f.trapped {
			err = errors.Join(err, t.p.WriteMemory(binary.LittleEndian.AppendUint64(nil, uint64(pc)), f.at+mcontextOffset+mcontextIP))
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("change where a signal's handler returns to in thread %d: %w", t.tid, err)
	}
	return nil
}

// signalFrame is what the kernel's frame of a signal says.
type signalFrame struct {
	at          symbols.Addr // address of the frame
	mask        uint64       // the mask that the handler's return sets
	pc, sp      symbols.Addr // of the interrupted code
	stack       symbols.Addr // the alternate stack when the signal came
	stackSize   uint64
	onAlternate bool // the frame is on the alternate stack
	trapped     bool // an int3 was the cause
	regs        unix.PtraceRegs
}

// interrupted is Interrupted for a stack pointer, by whole frames.
func interrupted(mem symbols.Memory, sp symbols.Addr, in func(*signalFrame) bool) bool {
	type span struct{ from, to symbols.Addr }
	var seen []span
	todo := []symbols.Addr{sp}
	buffer := stacks.Get().(*[interruptedReach]byte)
	defer stacks.Put(buffer)
	b := buffer[:]
next:
	for len(todo) > 0 && len(seen) < interruptedMost {
		at := todo[0] &^ 7
		todo = todo[1:]
		for _, s := range seen {
			if at >= s.from && at < s.to {
				continue next
			}
		}
		// As much as can be read; a stack of which nothing can be read is empty.
		n, _ := mem.ReadMemory(b, at)
		end := n
		for off := 0; off+frameSize <= end; off += 8 {
			found, ok := parseSignalFrame(b[off:n], at+symbols.Addr(off))
			if !ok {
				continue
			}
			f := found // escapes to the heap; frames are few
			if f.onAlternate && !f.holds(at) {
				end = off // another thread's stack
				break
			}
			if in(&f) {
				return true
			}
			if f.onAlternate {
				end = min(end, int(uint64(f.stack)+f.stackSize-uint64(at)))
			}
			todo = append(todo, f.sp)
		}
		seen = append(seen, span{at, at + symbols.Addr(end)})
	}
	return false
}

// holds reports whether a lies on the alternate stack.
func (f *signalFrame) holds(a symbols.Addr) bool {
	return a >= f.stack && uint64(a-f.stack) < f.stackSize
}

// parseSignalFrame reads the frame that the kernel would have put at an address. ok is false
// for bytes that can't be a frame: user code has certain selectors and flags (Intel SDM vol. 1,
// 3.4.3), and the kernel sets no link.
func parseSignalFrame(b []byte, at symbols.Addr) (f signalFrame, ok bool) {
	const (
		userCode, userData = 0x33, 0x2b              // selectors of 64-bit user code
		flagsSet, flagsMay = 0x202, uint64(0x254fd7) // bit 1 and IF; CF to DF, OF, NT, RF, AC, ID
		known              = ucFPXState | ucSigcontextSS | ucStrictRestoreSS
		disabled           = 2 // SS_DISABLE
	)
	le := binary.LittleEndian
	m := b[mcontextOffset:]
	if flags := le.Uint64(m[mcontextFlags:]); flags&flagsSet != flagsSet || flags&^flagsMay != 0 {
		return f, false
	}
	if ss := le.Uint16(m[150:]); le.Uint16(m[144:]) != userCode || ss != userData && ss != 0 {
		return f, false
	}
	if le.Uint64(b[ucOffset:])&^known != 0 || le.Uint64(b[ucOffset+8:]) != 0 {
		return f, false
	}
	r := &f.regs
	for i, to := range [...]*uint64{
		&r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15,
		&r.Rdi, &r.Rsi, &r.Rbp, &r.Rbx, &r.Rdx, &r.Rax, &r.Rcx, &r.Rsp, &r.Rip, &r.Eflags,
	} {
		*to = le.Uint64(m[8*i:])
	}
	f.pc, f.sp = symbols.Addr(r.Rip), symbols.Addr(r.Rsp)
	if le.Uint32(b[ucStackFlags:])&disabled == 0 {
		f.stack, f.stackSize = symbols.Addr(le.Uint64(b[ucOffset+16:])), le.Uint64(b[ucOffset+32:])
	}
	f.at, f.mask = at, le.Uint64(b[sigmaskOffset:])
	f.onAlternate = f.holds(at)
	// The kernel alone gives this code (arch/x86/kernel/traps.c, do_int3_user).
	const siKernel = 0x80
	info := b[sigmaskOffset+8:]
	f.trapped = le.Uint32(info) == uint32(unix.SIGTRAP) && le.Uint32(info[8:]) == siKernel
	return f, true
}
