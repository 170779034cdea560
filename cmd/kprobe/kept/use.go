package kept

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BusyError says that an event can't be deleted because a trace uses it. It
// wraps EBUSY, the kernel's answer (unregister_trace_kprobe in
// kernel/trace/trace_kprobe.c).
type BusyError struct {
	Event string // GRP/EVENT
	PID   int    // of the kprobe that traces it
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s is busy: kprobe, process %d, is tracing it", e.Event, e.PID)
}

// Unwrap gives EBUSY.
func (e *BusyError) Unwrap() error { return unix.EBUSY }

// users is the folder with a file for each process that traces kept events:
// its name is the pid, its contents the events' names, and it is locked for as
// long as the process lives.
func (f *File) users() string { return f.Path + ".users" }

// Use reads what is kept, lets choose pick events, and marks these as busy
// until release is called or the process ends, however it ends. Where the
// folder can't be written to, for want of rights or room, the events are used
// without a mark.
func (f *File) Use(ctx context.Context, choose func(*List) (events []string, err error)) (release func(), err error) {
	nothing := func() {}
	unlock, lerr := f.lock(ctx)
	if lerr == nil {
		defer unlock()
	}
	if ctx.Err() != nil {
		return nothing, ctx.Err()
	}
	l, err := f.Read()
	if err != nil {
		return nothing, err
	}
	events, err := choose(l)
	if err != nil || lerr != nil || len(events) == 0 {
		return nothing, err
	}
	mark, err := f.mark(events)
	if err != nil {
		return nothing, nil
	}
	return func() {
		_ = os.Remove(mark.Name()) // the next to look removes it otherwise
		mark.Close()
	}, nil
}

func (f *File) mark(events []string) (*os.File, error) {
	if err := os.MkdirAll(f.users(), 0o700); err != nil {
		return nil, err
	}
	mark, err := os.OpenFile(filepath.Join(f.users(), strconv.Itoa(os.Getpid())), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(mark.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = mark.WriteString(strings.Join(events, "\n") + "\n")
	}
	if err != nil {
		mark.Close()
		return nil, err
	}
	return mark, nil
}

// Busy gives a *BusyError if a living trace uses one of the events. It removes
// the marks of traces that were killed. Call it from Update's change only.
func (f *File) Busy(events []string) error {
	entries, err := os.ReadDir(f.users())
	if err != nil {
		return nil // nobody has marked anything
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		path := filepath.Join(f.users(), e.Name())
		mark, err := os.Open(path)
		if err != nil {
			continue
		}
		err = unix.Flock(int(mark.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err == nil {
			_ = os.Remove(path) // whoever made it is gone
		}
		mark.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		used, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for name := range strings.Lines(string(used)) {
			if name = strings.TrimSpace(name); slices.Contains(events, name) {
				return &BusyError{Event: name, PID: pid}
			}
		}
	}
	return nil
}
