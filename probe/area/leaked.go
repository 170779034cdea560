package area

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Strays
//
// kprobe makes two things in a process before a memory file can record them: injected code in
// padding, put back after each call, and the memory file's descriptor, closed once the file is
// mapped. A kprobe that is killed in between leaves them behind. They do no harm, and no
// journal lists them. The code is recognised by its bytes, the file by its name.

// HasStrays reports whether there are such things in a process, a live kprobe's included.
func HasStrays(pid int) bool {
	_, _, padded := tracee.Injected(pid)
	return padded || len(memfileDescriptors(pid)) > 0
}

// recoverStrays removes what no memory file lists.
func recoverStrays(ctx context.Context, tr *tracee.Tracer, pid int) (found bool, err error) {
	if !HasStrays(pid) {
		return false, nil
	}
	p, err := tr.Attach(ctx, pid)
	if err != nil {
		return true, err
	}
	for length := range Moments() {
		var left bool
		// A call that was under way may have made a descriptor meanwhile.
		if left, err = takeStrays(ctx, p, memfileDescriptors(pid)); !left {
			break
		}
		runOn(ctx, tr, length)
	}
	return true, errors.Join(err, p.Detach(ctx, nil))
}

// takeStrays removes them. left reports whether something had to stay because a thread is in
// it.
func takeStrays(ctx context.Context, p *tracee.Process, fds []int) (left bool, err error) {
	err = p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		var errs []error
		if at, original, ok := tracee.Injected(p.PID()); ok {
			if isIn(at, stopped) {
				left = true
				return nil
			}
			errs = append(errs, p.WriteMemory(original, at))
		}
		for _, fd := range fds {
			if _, err := p.Syscall(ctx, nil, unix.SYS_CLOSE, uintptr(fd)); err != nil {
				errs = append(errs, fmt.Errorf("close the memory file's descriptor: %w", err))
			}
		}
		return errors.Join(errs...)
	})
	return left, tracee.IgnoreLate(err)
}

// inInjected reports whether pc is in the injected code at an address, or behind its last instruction.
func inInjected(at, pc symbols.Addr) bool { return pc >= at && pc < at+tracee.ScratchCode }

// isIn reports whether a thread is in the injected code at an address, or will be when a signal
// handler returns.
func isIn(at symbols.Addr, stopped []*tracee.Thread) bool {
	for _, t := range stopped {
		if r, err := t.Regs(); err == nil && inInjected(at, symbols.Addr(r.Rip)) {
			return true
		}
		if t.Interrupted(func(pc symbols.Addr, _ bool) bool { return inInjected(at, pc) }) {
			return true
		}
	}
	return false
}

// memfileDescriptors lists the descriptors of memory files that a process has open. kprobe writes
// nothing to such a file while it is open there: one with contents is the program's own.
func memfileDescriptors(pid int) (fds []int) {
	task := procfs.Image(pid)
	open, _ := task.Descriptors() // none where they can't be read
	for _, fd := range open {
		if to, err := os.Readlink(task.Path("fd/" + strconv.Itoa(fd))); err == nil && to == "/memfd:"+ring.MemfdName+" (deleted)" {
			if blank(task.Path("fd/" + strconv.Itoa(fd))) {
				fds = append(fds, fd)
			}
		}
	}
	return fds
}

// blank reports whether a file is empty or begins with zeros.
func blank(name string) bool {
	f, _, err := untrusted.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [8]byte
	_, err = f.ReadAt(b[:], 0)
	return b == [8]byte{} && (err == nil || errors.Is(err, io.EOF))
}
