package area

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
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

// recoverStrays removes what no memory file lists.
func recoverStrays(ctx context.Context, tr *tracee.Tracer, pid int) (found bool, err error) {
	if _, _, padded := tracee.Injected(pid); !padded && len(memfileDescriptors(pid)) == 0 {
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
		time.Sleep(length)
	}
	return true, errors.Join(err, p.Detach(ctx, nil))
}

// takeStrays removes them. left reports whether something had to stay because a thread is in
// it.
func takeStrays(ctx context.Context, p *tracee.Process, fds []int) (left bool, err error) {
	err = p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		var errs []error
		in := func(at symbols.Addr) bool {
			for _, t := range stopped {
				if r, err := t.Regs(); err == nil && symbols.Addr(r.Rip) >= at && symbols.Addr(r.Rip) < at+tracee.ScratchCode {
					return true
				}
			}
			return false
		}
		if at, original, ok := tracee.Injected(p.PID()); ok {
			if in(at) {
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

// memfileDescriptors lists the descriptors of memory files that a process has
// open.
func memfileDescriptors(pid int) (fds []int) {
	task := procfs.Image(pid)
	open, _ := task.Descriptors() // none where they can't be read
	for _, fd := range open {
		if to, err := os.Readlink(task.Path("fd/" + strconv.Itoa(fd))); err == nil && to == "/memfd:"+ring.MemfdName+" (deleted)" {
			fds = append(fds, fd)
		}
	}
	return fds
}
