package area

import (
	"io"
	"maps"
	"os"

	"kprobe/probe/book"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/semaphore"
	"kprobe/symbols"
)

// Semaphores of detached probes that were removed
//
// A session's part of a semaphore is one, however many of its probes need it. So when single events go, a semaphore is
// lowered as soon as no probe that is listed needs it. The book says which probe needs which. Package semaphore notes
// each raise in the process's own memory, so a kprobe that is killed in between leaves a state that the next one
// continues from. What the book says can at most lower what such a note says kprobe has raised.

// idleSemaphores returns which semaphores the book of detached probes names that none of the listed probes needs.
func idleSemaphores(r io.ReaderAt) (map[symbols.Addr]bool, error) {
	s, err := ring.ReadSnapshot(r, memory.PossibleCPUs())
	if err != nil {
		return nil, err
	}
	b, err := book.Read(io.NewSectionReader(r, s.Layout.Book.Off, s.Layout.Book.Size))
	if err != nil {
		return nil, err
	}
	listed := map[uint32]bool{}
	for i := range s.Probes {
		listed[s.Probes[i].ID] = true
	}
	idle, needed := map[symbols.Addr]bool{}, map[symbols.Addr]bool{}
	for i := range b.Probes {
		p := &b.Probes[i]
		switch at := symbols.Addr(p.Semaphore); {
		case at == 0:
		case listed[p.ID]:
			needed[at] = true
		default:
			idle[at] = true
		}
	}
	maps.DeleteFunc(idle, func(at symbols.Addr, _ bool) bool { return needed[at] })
	return idle, nil
}

// hasIdleSemaphores reports whether a memory file's probes have raised a semaphore that none of them needs any more.
func hasIdleSemaphores(pid int, mem *os.File, file memory.Window) (bool, error) {
	idle, err := idleSemaphores(file)
	if err != nil || len(idle) == 0 {
		return false, err
	}
	_, l, err := ring.ReadHeader(file, memory.PossibleCPUs())
	if err != nil {
		return false, err
	}
	return semaphore.AnyRaised(pid, memory.Whole{Mem: mem}, file, l, func(at symbols.Addr) bool { return idle[at] })
}

// lowerIdle lowers the semaphores that no listed probe needs. Every thread must be stopped.
func (a *Area) lowerIdle() error {
	idle, err := idleSemaphores(a.File)
	if err != nil || len(idle) == 0 {
		return nil // without a book they stay raised until the memory file goes
	}
	return semaphore.Lower(a.Proc, a.File, func(at symbols.Addr) bool { return idle[at] })
}
