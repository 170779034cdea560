//go:build linux && amd64

package tracee

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// Sizes of the scratch areas that SetScratch names, in bytes.
const (
	// ScratchCode is the size of the executable area.
	ScratchCode = 32
	// ScratchFrame is the size of the readable and writable area. It holds
	// one saved context at its end and the stack of called functions.
	ScratchFrame = 64 << 10
)

// Offsets in the injected code: where a system call is executed, and where a
// called function returns to.
const (
	codeSyscall = 0
	codeReturn  = 9
)

// InjectedCode gives the instructions that injected calls run through:
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
// Whoever maps the code area without write permission puts them there.
func InjectedCode() []byte {
	return []byte{
		0x0f, 0x05, 0xb8, 15, 0, 0, 0, 0x0f, 0x05,
		0x48, 0x89, 0xc7, 0xb8, 15, 0, 0, 0, 0x0f, 0x05,
		0xb8, 15, 0, 0, 0, 0x0f, 0x05,
	}
}

// SetScratch names the areas that injected calls use from now on instead of
// unused bytes found in the process: ScratchCode executable bytes at code, and
// ScratchFrame readable and writable ones at frame. It writes InjectedCode if
// it isn't there. They must stay mapped as long as the process is attached.
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

// room is where an injection's code and saved context lie.
type room struct {
	code   uint64
	saved  []byte       // what was at code; nil if it belongs there
	base   uint64       // where the frame image lies, a multiple of frameAlign
	wipe   bool         // the image was zeros before,
	under  []byte       // or this
	buffer uint64       // bufferSize bytes for an argument
	after  func() error // reads results from the buffer before the room is left
}

const bufferSize = 256

// Distances from the stack pointer of a thread whose stack is borrowed: the
// red zone and the buffer above the image, and the least room below it for a
// handler that the program may run there if the tracer dies.
const (
	redZone    = 128
	stackBelow = 16 << 10
)

// findRoom finds where to put an image of size bytes for a thread, with room for a
// function's stack below it if there is to be one.
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

// findStack places the image on the thread's own stack, far below its red
// zone, if it is one that the system or a thread library made: a coroutine or
// goroutine may have no room there. Else it takes a place at the far end of the
// process's first stack where nothing has ever been, nor the image of a tracer
// that was killed. Where that stack has been used up, as by a recursion without an
// end, a thread that is far down on it has its own place after all.
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
			break // the place may have been lent: others may wait in the next
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

// belowStack gives where an image of size bytes lies below the red zone of a stack
// pointer, with the buffer behind it.
func belowStack(sp uint64, size int) uint64 {
	return (sp - redZone - bufferSize - 512 - uint64(size)) &^ (frameAlign - 1)
}

// findFarDown places the image on the first stack below a thread that is in the part
// of it that is lent, if no other thread waits in a call there.
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

// farDownBelow is the least room below a place far down: a system call needs none, and
// where the program would overflow its stack the call of a function may.
const farDownBelow = pageSize

// waitsIn reports whether a thread of the process waits in a system call with its stack
// pointer in [lo, hi), as one does in a call of a tracer that was killed. Where that
// can't be read one may.
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

// findLent places the image in the far half of the first stack, where that was never
// used.
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

// borrowed gives the end of the part of the first stack, its far half, that is
// lent to the threads that have no room of their own.
func borrowed(stack *symbols.Mapping) uint64 {
	return uint64(stack.Start+(stack.End-stack.Start)/2) &^ (pageSize - 1)
}

// place sets where the image and the buffer behind it lie.
func (r *room) place(base uint64, size int) {
	r.base, r.buffer = base, (base+uint64(size)+15)&^15
}

// threadStack reports whether the mapping m, above below, is the stack of a
// thread library that the thread runs on: it has a guard below, and the
// thread's control block above, which begins with its own address (System V
// psABI, x86-64, "Thread-Local Storage"). A heap that stacks are cut out of may
// have either.
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

// findPadding places the code behind the last byte of a loaded executable
// segment, in what is left of its page; where every text fills its last page, behind
// the vDSO's.
func (p *Process) findPadding(r *room, maps []symbols.Mapping) bool {
	for i := range maps {
		m := &maps[i]
		if m.Inode == 0 || m.Perms() != "r-xp" {
			continue
		}
		base, ok := moduleBase(maps, m)
		if !ok {
			continue
		}
		end, ok := p.segmentEnd(base, m)
		if !ok || end+ScratchCode > uint64(m.End) {
			continue
		}
		saved := make([]byte, len(InjectedCode()))
		at := (end + 15) &^ 15
		if at+ScratchCode > uint64(m.End) {
			continue
		}
		if _, err := p.ReadMemory(saved, symbols.Addr(at)); err != nil {
			continue
		}
		r.code, r.saved = at, saved
		return true
	}
	return p.findVDSO(r, maps)
}

// findVDSO places the code at the end of the vDSO, where that has zeros: the kernel maps
// whole pages of it. Code that a killed tracer left there is as good.
func (p *Process) findVDSO(r *room, maps []symbols.Mapping) bool {
	for i := range maps {
		m := &maps[i]
		if m.Path != "[vdso]" || !m.Exec {
			continue
		}
		at := uint64(m.End) - ScratchCode
		have, none := make([]byte, ScratchCode), make([]byte, len(InjectedCode()))
		if _, err := p.ReadMemory(have, symbols.Addr(at)); err != nil {
			return false
		}
		if !allZero(have) && !bytes.HasPrefix(have, InjectedCode()) {
			return false
		}
		r.code, r.saved = at, none
		return true
	}
	return false
}

// moduleBase finds the mapping of the ELF header that m belongs to.
func moduleBase(maps []symbols.Mapping, m *symbols.Mapping) (uint64, bool) {
	for i := range maps {
		q := &maps[i]
		if q.Inode == m.Inode && q.Major == m.Major && q.Minor == m.Minor && q.Off == 0 && q.Start <= m.Start {
			return uint64(q.Start), true
		}
	}
	return 0, false
}

// segmentEnd reads from the program headers in memory where the segment that m
// maps ends.
func (p *Process) segmentEnd(base uint64, m *symbols.Mapping) (uint64, bool) {
	for _, g := range p.segments(base) {
		if g.start&^(pageSize-1) == uint64(m.Start) && (g.end+pageSize-1)&^(pageSize-1) == uint64(m.End) {
			return g.end, true
		}
	}
	return 0, false
}

// segment is a loaded one of a module.
type segment struct {
	start, end uint64
	writable   bool
}

// segments reads from the program headers in memory, of the ELF header at base, what
// is loaded.
func (p *Process) segments(base uint64) (out []segment) {
	var h [64]byte
	if _, err := p.ReadMemory(h[:], symbols.Addr(base)); err != nil || string(h[:5]) != "\x7fELF\x02" {
		return nil
	}
	le := binary.LittleEndian
	off, size, n := le.Uint64(h[32:]), int(le.Uint16(h[54:])), int(le.Uint16(h[56:]))
	const phdrSize, maxPhdrs = 56, 64
	if size != phdrSize || n == 0 || n > maxPhdrs || off > pageSize {
		return nil
	}
	ph := make([]byte, size*n)
	if _, err := p.ReadMemory(ph, symbols.Addr(base+off)); err != nil {
		return nil
	}
	const ptLoad, pfW = 1, 2
	bias, found := uint64(0), false
	for i := range n {
		e := ph[i*size:]
		if le.Uint32(e) == ptLoad && le.Uint64(e[8:]) == 0 {
			bias, found = base-le.Uint64(e[16:])&^(pageSize-1), true
		}
	}
	for i := range n {
		if e := ph[i*size:]; found && le.Uint32(e) == ptLoad {
			start := bias + le.Uint64(e[16:])
			out = append(out, segment{start, start + le.Uint64(e[40:]), le.Uint32(e[4:])&pfW != 0})
		}
	}
	return out
}

// findTail places the image behind a module's data, in what is left of its last page:
// zeros, or more of the file. It is for system calls, which need no stack. The loader uses
// what is left behind its own data, and musl's gives it to malloc for all.
func (p *Process) findTail(r *room, maps []symbols.Mapping, size int) bool {
	if slices.ContainsFunc(maps, func(m symbols.Mapping) bool { return strings.Contains(m.Path, "musl") }) {
		return false
	}
	for i := range maps {
		m := &maps[i]
		if m.Inode == 0 || m.Off != 0 || strings.HasPrefix(path.Base(m.Path), "ld-") {
			continue
		}
		for _, g := range p.segments(uint64(m.Start)) {
			base := (g.end + frameAlign - 1) &^ (frameAlign - 1)
			last := (g.end + pageSize - 1) &^ (pageSize - 1)
			b := make([]byte, size+2*bufferSize)
			if !g.writable || base+uint64(len(b)) > last || !writableAt(maps, base, last) {
				continue
			}
			if _, err := p.ReadMemory(b, symbols.Addr(base)); err == nil && !p.waitsIn(base-bufferSize, last) {
				r.place(base, size)
				r.wipe, r.under = true, b
				return true
			}
		}
	}
	return false
}

// writableAt reports whether private writable memory is mapped at [lo, hi).
func writableAt(maps []symbols.Mapping, lo, hi uint64) bool {
	return slices.ContainsFunc(maps, func(m symbols.Mapping) bool {
		return m.Contains(symbols.Addr(lo)) && hi <= uint64(m.End) && strings.HasPrefix(m.Perms(), "rw-p")
	})
}
