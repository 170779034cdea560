package area

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"

	"kprobe/internal/untrusted"
	"kprobe/probe/book"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/semaphore"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Semaphores of detached probes
//
// A session's part of a semaphore is one, however many of its probes need it. So when single events go or are disabled, a
// semaphore is lowered as soon as no probe that is listed and enabled needs it; when one of them is enabled again, it is raised.
// An event that triggers may enable needs it always: nobody is there to raise it then. The book says which probe needs which.
// Package semaphore notes each raise in the process's own memory, so a kprobe that is killed in between leaves a state
// that the next one continues from. What the book says can at most lower what such a note says kprobe has raised.
//
// A forked child has copies of the semaphores, and records nothing. Its copies are lowered like the others, and never raised.

// neededSemaphores returns the semaphores that the book of detached probes names, and which of them some probe needs.
func neededSemaphores(r io.ReaderAt) (map[symbols.Addr]bool, error) {
	s, err := ring.ReadSnapshot(r, memory.PossibleCPUs())
	if err != nil {
		return nil, err
	}
	b, err := book.Read(io.NewSectionReader(r, s.Layout.Book.Off, s.Layout.Book.Size))
	if err != nil {
		return nil, err
	}
	needs := map[uint32]bool{}
	for i := range s.Probes {
		p := &s.Probes[i]
		var kind [1]byte
		if _, err := r.ReadAt(kind[:], s.Layout.Kind(p.ID)); err != nil {
			return nil, err
		}
		needs[p.ID] = p.Flags&ring.FlagEnabled != 0 || kind[0] != 0
	}
	needed := map[symbols.Addr]bool{}
	for i := range b.Probes {
		if p := &b.Probes[i]; p.Semaphore != 0 {
			at := symbols.Addr(p.Semaphore)
			needed[at] = needed[at] || needs[p.ID]
		}
	}
	return needed, nil
}

// semaphoresDue reports whether a memory file's probes have raised a semaphore that none of them needs any more, or need one
// that isn't raised.
func semaphoresDue(pid int, mem *os.File, file memory.Window) (idle, missing bool, err error) {
	needed, err := neededSemaphores(file)
	if err != nil || len(needed) == 0 {
		return false, false, err
	}
	_, l, err := ring.ReadHeader(file, memory.PossibleCPUs())
	if err != nil {
		return false, false, err
	}
	raised, err := semaphore.AllRaised(pid, memory.Whole{Mem: mem}, file, l)
	for at, need := range needed {
		idle, missing = idle || !need && raised[at], missing || need && !raised[at]
	}
	return idle, missing, err
}

// lowerIdle lowers the semaphores that no listed probe needs. Every thread must be stopped.
func (a *Area) lowerIdle() error {
	needed, err := neededSemaphores(a.File)
	if err != nil || len(needed) == 0 {
		return nil // without a book they stay raised until the memory file goes
	}
	return semaphore.Lower(a.Proc, a.File, func(at symbols.Addr) bool {
		need, named := needed[at]
		return named && !need
	})
}

// raiseNeeded raises the semaphores that listed probes need and that aren't raised. Every thread must be stopped.
func (a *Area) raiseNeeded() error {
	needed, err := neededSemaphores(a.File)
	if err != nil {
		return err
	}
	maps.DeleteFunc(needed, func(_ symbols.Addr, need bool) bool { return !need })
	return semaphore.Raise(a.Proc, a.File, slices.Sorted(maps.Keys(needed)))
}

// SemaphoresDue reports whether SyncSemaphores has something to do.
func SemaphoresDue(pid int, on bool) bool {
	files, err := FindMemfiles(pid)
	return err == nil && slices.ContainsFunc(files, func(m *symbols.Mapping) bool { return due(pid, m, on) })
}

// due reports it of a memory file.
func due(pid int, m *symbols.Mapping, on bool) bool {
	is, err := untrusted.Within(func() (bool, error) {
		mem, err := memory.OpenProcess(pid)
		if err != nil {
			return false, err
		}
		defer mem.Close()
		idle, missing, err := semaphoresDue(pid, mem, memory.Window{Mem: mem, At: m.Start})
		return on && missing || !on && idle, err
	})
	return err == nil && is && leftAlone(pid, m)
}

// SyncSemaphores raises the semaphores of detached probes that were enabled (on), or lowers those of such that were disabled,
// in a process that began at start.
func SyncSemaphores(ctx context.Context, pid int, start uint64, on bool) (err error) {
	files, err := FindMemfiles(pid)
	if err != nil {
		return err
	}
	tr, err := tracee.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tr.Close()) }()
	if err := tr.Handle(passing{}); err != nil {
		return err
	}
	for _, m := range files {
		if !due(pid, m, on) {
			continue
		}
		x := &pruning{start: start, inode: m.Inode, at: m.Start, semaphores: true, raises: on}
		if err := x.run(ctx, tr, pid, m); err != nil {
			return err
		}
	}
	return nil
}
