package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Strays
//
// What kprobe makes in a process before its memory file can say so, in this
// order: injected code in padding, put back after each call; scratch memory,
// data before code; the memory file's descriptor, closed once the file is
// mapped. A kprobe killed in between leaves what harms nobody, and what no
// journal knows. Each is known by what it is.

// recoverStrays takes out what no memory file knows of.
func recoverStrays(ctx context.Context, tr *tracee.Tracer, pid int) (found bool, err error) {
	code, frame := findScratch(pid)
	fds := memfileDescriptors(pid)
	_, _, padded := tracee.Injected(pid)
	if code == 0 && len(fds) == 0 && !padded {
		return false, nil
	}
	p, err := tr.Attach(ctx, pid)
	if err != nil {
		return true, err
	}
	for range drainTries {
		var left bool
		if left, err = takeStrays(ctx, p, code, frame, fds); !left {
			break
		}
		fds = nil
		time.Sleep(time.Millisecond)
	}
	return true, errors.Join(err, p.Detach(ctx, nil))
}

// takeStrays reports whether something is left because a thread is in it.
func takeStrays(ctx context.Context, p *tracee.Process, code, frame symbols.Addr, fds []int) (left bool, err error) {
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
		switch {
		case code == 0:
		case in(code):
			left = true
		default:
			errs = append(errs, munmap(ctx, p, code, pageSize), munmap(ctx, p, frame, scratchSize))
		}
		return errors.Join(errs...)
	})
	return left, ignoreLate(err)
}

func munmap(ctx context.Context, p *tracee.Process, at symbols.Addr, size uint64) error {
	if at == 0 {
		return nil
	}
	if _, err := p.Syscall(ctx, nil, unix.SYS_MUNMAP, uintptr(at), uintptr(size)); err != nil {
		return fmt.Errorf("unmap %v: %w", at, err)
	}
	return nil
}

// scratchMark is what the page of scratch code holds: the injected code, and
// at scratchMarkAt the address of the data.
const scratchMarkAt = 64

func scratchMark(frame symbols.Addr) []byte {
	b := make([]byte, scratchMarkAt+8)
	copy(b, tracee.InjectedCode())
	copy(b[scratchMarkAt:], put64(uint64(frame)))
	return b
}

// findScratch finds the scratch memory of a kprobe that was killed; zeros if
// there is none.
func findScratch(pid int) (code, frame symbols.Addr) {
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		return 0, 0
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return 0, 0
	}
	defer mem.Close()
	pages, err := anonymous(pid)
	if err != nil {
		return 0, 0
	}
	for _, m := range maps {
		if m.Path != "" || !m.Exec || m.Write {
			continue
		}
		// Neighbours of one kind show as one mapping.
		for at := m.Start; at < m.End && at < m.Start+maxScratchScan; at += pageSize {
			b := make([]byte, scratchMarkAt+8)
			if _, err := mem.ReadAt(b, int64(at)); err != nil {
				break
			}
			if frame := symbols.Addr(le64(b[scratchMarkAt:])); pages.holds(frame, scratchSize) && bytes.Equal(b, scratchMark(frame)) {
				return at, frame
			}
		}
	}
	return 0, 0
}

// maxScratchScan bounds the search of a mapping of code made at run time.
const maxScratchScan = 1 << 20

// memfileDescriptors lists the descriptors of memory files that a process has
// open.
func memfileDescriptors(pid int) (fds []int) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		to, err := os.Readlink(dir + "/" + e.Name())
		if fd, nerr := strconv.Atoi(e.Name()); err == nil && nerr == nil && to == "/memfd:"+ring.MemfdName+" (deleted)" {
			fds = append(fds, fd)
		}
	}
	return fds
}
