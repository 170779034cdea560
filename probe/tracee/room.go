//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// Sizes of the scratch areas that SetScratch names, in bytes.
const (
	// ScratchCode is the size of the executable area.
	ScratchCode = 32
	// ScratchFrame is the size of the readable and writable area. It holds one saved
	// context at its end, and the stack of called functions.
	ScratchFrame = 64 << 10
)

// Offsets in the injected code: where a system call is executed, and where a
// called function returns to.
const (
	codeSyscall = 0
	codeReturn  = 9
)

// InjectedCode returns the instructions that injected calls run through:
//
//	syscall          the injected call
//	mov eax, 15      rt_sigreturn:
//	syscall          back to the thread's own context
//	mov rdi, rax     a called function returns here
//	mov eax, 15
//	syscall
//	mov eax, 15      if the tracer cancelled that one and was killed
//	syscall
//
// Whoever maps the code area without write permission must put them there.
func InjectedCode() []byte {
	return []byte{
		0x0f, 0x05, 0xb8, 15, 0, 0, 0, 0x0f, 0x05,
		0x48, 0x89, 0xc7, 0xb8, 15, 0, 0, 0, 0x0f, 0x05,
		0xb8, 15, 0, 0, 0, 0x0f, 0x05,
	}
}

// SetScratch makes injected calls use the given areas from now on, instead of unused bytes
// found in the process: ScratchCode executable bytes at code, and ScratchFrame readable and
// writable ones at frame. It writes InjectedCode if it isn't there. The areas must stay mapped
// as long as the process is attached.
func (p *Process) SetScratch(code, frame symbols.Addr) error {
	want := InjectedCode()
	have := make([]byte, len(want))
	if _, err := p.ReadMemory(have, code); err != nil {
		return fmt.Errorf("scratch code: %w", err)
	}
	if string(have) != string(want) {
		if err := p.WriteMemory(want, code); err != nil {
			return fmt.Errorf("scratch code: %w", err)
		}
	}
	if _, err := p.ReadMemory(have[:1], frame+ScratchFrame-1); err != nil {
		return fmt.Errorf("scratch frame: %w", err)
	}
	p.code, p.frame = code, frame
	return nil
}

// room is the place of an injection's code and saved context.
type room struct {
	code   uint64
	saved  []byte       // the bytes to restore at code; nil if the injected code stays there
	base   uint64       // address of the frame image, a multiple of frameAlign
	wipe   bool         // the image's place had zeros, which are restored
	under  []byte       // the bytes to restore at the image's place; nil: none
	buffer uint64       // bufferSize bytes for an argument
	after  func() error // reads results from the buffer before the room is left
}

const bufferSize = 256

// Distances from the stack pointer of a thread whose stack is borrowed: the red zone and the
// buffer above the image, and the minimum room below it for a handler that the program may run
// there if the tracer dies.
const (
	redZone    = 128
	stackBelow = 16 << 10
)

// findRoom finds a place for an image of size bytes for a thread. If stack is set, there is
// room for a function's stack below it.
func (p *Process) findRoom(regs *unix.PtraceRegs, size int, stack bool) (*room, error) {
	if p.code != 0 {
		r := &room{code: uint64(p.code)}
		r.base = (uint64(p.frame) + ScratchFrame - uint64(size)) &^ (frameAlign - 1)
		r.buffer = uint64(p.frame)
		return r, nil
	}
	maps, err := readMaps(p.pid)
	if err != nil {
		return nil, err
	}
	r := &room{}
	if !p.findStack(r, maps, regs, size) && (stack || !p.findTail(r, maps, size)) {
		return nil, ErrNoRoom
	}
	if !p.findPadding(r, maps) {
		return nil, ErrNoRoom
	}
	return r, nil
}

// findStack places the image on the thread's own stack, far below its red zone, if the system
// or a thread library made that stack; the stack of a coroutine or goroutine may have no room
// there. Otherwise it takes a place at the far end of the process's first stack where nothing
// has ever been, not even the image of a killed tracer. If that stack has been used up, as by
// endless recursion, a thread that is far down on it has its own place after all.
func (p *Process) findStack(r *room, maps []symbols.Mapping, regs *unix.PtraceRegs, size int) bool {
	for i := range maps {
		m := &maps[i]
		if !m.Contains(symbols.Addr(regs.Rsp)) {
			continue
		}
		if !m.Read || !m.Write || m.Path != "[stack]" && !(i > 0 && p.threadStack(&maps[i-1], m, regs)) {
			break
		}
		if m.Path == "[stack]" && regs.Rsp < borrowed(m) {
			break // this place may be lent already, and threads may wait in calls below it
		}
		base := belowStack(regs.Rsp, size)
		if base > regs.Rsp || base < uint64(m.Start)+stackBelow {
			break
		}
		r.place(base, size)
		return true
	}
	return p.findLent(r, maps, size) || p.findFarDown(r, maps, regs, size)
}

// belowStack returns the address of an image of size bytes below the red zone of a stack
// pointer, with the buffer after it.
func belowStack(sp uint64, size int) uint64 {
	return (sp - redZone - bufferSize - 512 - uint64(size)) &^ (frameAlign - 1)
}

// findFarDown places the image on the first stack below a thread that is in the lent part of
// it, if no other thread waits in a call there.
func (p *Process) findFarDown(r *room, maps []symbols.Mapping, regs *unix.PtraceRegs, size int) bool {
	for i := range maps {
		m := &maps[i]
		if m.Path != "[stack]" || !m.Read || !m.Write || !m.Contains(symbols.Addr(regs.Rsp)) {
			continue
		}
		base := belowStack(regs.Rsp, size)
		if base > regs.Rsp || base < uint64(m.Start)+farDownBelow || p.waitsIn(base-farDownBelow, regs.Rsp-redZone) {
			return false
		}
		r.place(base, size)
		return true
	}
	return false
}

// farDownBelow is the minimum room below a place far down. A system call needs none. A function
// call may overflow the stack where the program itself would.
const farDownBelow = pageSize

// waitsIn reports whether a thread of the process waits in a system call with its stack pointer
// in [lo, hi), as in a call of a killed tracer. It returns true if that can't be read.
func (p *Process) waitsIn(lo, hi uint64) bool {
	tids, err := procfs.Process(p.pid).Threads()
	if err != nil {
		return true
	}
	for _, tid := range tids {
		at, err := procfs.Thread(p.pid, tid).Position()
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH): // it has ended
		case err != nil || at.InCall && at.SP >= lo && at.SP < hi:
			return true
		}
	}
	return false
}

// findLent places the image in the far half of the first stack, if that was never used.
func (p *Process) findLent(r *room, maps []symbols.Mapping, size int) bool {
	for i := range maps {
		m := &maps[i]
		if m.Path != "[stack]" || !m.Read || !m.Write || m.End-m.Start < 4*stackBelow {
			continue
		}
		// From above, so that what lies below a place is unused, for a called
		// function's stack.
		b := make([]byte, (size+2*bufferSize+pageSize-1)&^(pageSize-1))
		for base := borrowed(m) - uint64(len(b)); base >= uint64(m.Start)+stackBelow; base -= uint64(len(b)) {
			if _, err := p.ReadMemory(b, symbols.Addr(base)); err != nil {
				return false
			}
			if allZero(b) {
				r.place(base, size)
				r.wipe = true
				return true
			}
		}
	}
	return false
}

// borrowed returns the end of the part of the first stack, its far half, that is lent to
// threads without room of their own.
func borrowed(stack *symbols.Mapping) uint64 {
	return uint64(stack.Start+(stack.End-stack.Start)/2) &^ (pageSize - 1)
}

// place sets the addresses of the image and of the buffer after it.
func (r *room) place(base uint64, size int) {
	r.base, r.buffer = base, (base+uint64(size)+15)&^15
}

// threadStack reports whether the mapping m, above below, is the stack of a thread library on
// which the thread runs. Such a stack has a guard below, and above it the thread's control
// block, which begins with its own address (System V psABI, x86-64, "Thread-Local Storage"). A
// heap from which stacks are cut may have either.
func (p *Process) threadStack(below, m *symbols.Mapping, regs *unix.PtraceRegs) bool {
	tcb := regs.Fs_base
	if below.End != m.Start || below.Read || below.Write || below.Exec || tcb <= regs.Rsp || tcb >= uint64(m.End) {
		return false
	}
	var b [8]byte
	_, err := p.ReadMemory(b[:], symbols.Addr(tcb))
	return err == nil && binary.LittleEndian.Uint64(b[:]) == tcb
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
