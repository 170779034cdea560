package semaphore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Layout of a page: its head, and entries.
const (
	pageMagic = "kprobsem"
	pageNext  = 8  // u64 address of the page laid before, 0: none
	pageSize  = 16 // u64 bytes
	pageHead  = 64
)

// Bounds of what heads of pages, which the program can write to, may say.
const (
	mostPages = 1 << 10
	mostSize  = 1 << 30
)

// add maps a page of n entries or more, and notes it in the memory file.
func (s *Set) add(n int, l Layer) error {
	size := (uint64(pageHead+n*EntrySize) + memory.PageSize - 1) &^ (memory.PageSize - 1)
	link := l.File.Layout.Header.Off + memory.HeaderSemaphores
	before, err := l.File.Get64(link)
	if err != nil {
		return err
	}
	at, err := l.Map(size)
	if err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint64([]byte(pageMagic), before)
	if err := l.Proc.WriteMemory(binary.LittleEndian.AppendUint64(head, size), at); err != nil {
		return err
	}
	for entry := at + pageHead; entry+EntrySize <= at+symbols.Addr(size); entry += EntrySize {
		s.free = append(s.free, entry)
	}
	return l.File.Set64(link, uint64(at))
}

// LowerAll lowers what the pages tell that was raised: those of a session, or of one
// that has left them. It may be called again.
func LowerAll(p *tracee.Process, file *memory.File) error {
	return Lower(p, file, func(symbols.Addr) bool { return true })
}

// Lower is LowerAll for those counters that which picks.
func Lower(p *tracee.Process, file *memory.File, which func(counter symbols.Addr) bool) error {
	first, err := file.Get64(file.Layout.Header.Off + memory.HeaderSemaphores)
	if err != nil || first == 0 {
		return err
	}
	maps, err := symbols.ReadMaps(p.PID())
	if err != nil {
		return err
	}
	for entry, err := range entries(p.ReadOwn, maps, symbols.Addr(first)) {
		if err != nil {
			return err
		}
		if entry.State != Free && which(entry.Counter) {
			if err := lower(p, entry.at, maps); err != nil {
				return err
			}
		}
	}
	return nil
}

// Raise raises counters that the pages of a memory file don't tell to be raised. It notes them where others were noted
// before, which have been lowered.
func Raise(p *tracee.Process, file *memory.File, counters []symbols.Addr) error {
	first, err := file.Get64(file.Layout.Header.Off + memory.HeaderSemaphores)
	if err != nil {
		return err
	}
	maps, err := symbols.ReadMaps(p.PID())
	if err != nil {
		return err
	}
	raised := map[symbols.Addr]bool{}
	var free []symbols.Addr
	for entry, err := range entries(p.ReadOwn, maps, symbols.Addr(first)) {
		if err != nil {
			return err
		}
		if entry.State == Free {
			free = append(free, entry.at)
		} else {
			raised[entry.Counter] = true
		}
	}
	for _, at := range counters {
		if raised[at] {
			continue
		}
		if len(free) == 0 {
			return fmt.Errorf("raise the semaphore at %v: there is no room to note it", at)
		}
		if err := raise(p, at, free[0], maps); err != nil {
			return fmt.Errorf("raise the semaphore at %v: %w", at, err)
		}
		free = free[1:]
	}
	return nil
}

// AllRaised returns the counters that are raised, as the pages of a memory file tell whose first page is noted in its
// header. mem is the process's memory.
func AllRaised(pid int, mem symbols.Memory, file memory.Window, l *ring.Layout) (map[symbols.Addr]bool, error) {
	var first [8]byte
	if _, err := file.ReadAt(first[:], l.Header.Off+memory.HeaderSemaphores); err != nil {
		return nil, err
	}
	at := symbols.Addr(binary.LittleEndian.Uint64(first[:]))
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		return nil, err
	}
	raised := map[symbols.Addr]bool{}
	for entry, err := range entries(mem.ReadMemory, maps, at) {
		if err != nil {
			return nil, err
		}
		if entry.State != Free {
			raised[entry.Counter] = true
		}
	}
	return raised, nil
}

// laid is an entry and where it is.
type laid struct {
	Entry
	at symbols.Addr
}

// entries yields the entries of all pages, from the first. It ends without an error where a page was unmapped: nothing is left in it.
func entries(read func(b []byte, at symbols.Addr) (int, error), maps []symbols.Mapping, first symbols.Addr) iter.Seq2[laid, error] {
	return func(yield func(laid, error) bool) {
		seen := map[symbols.Addr]bool{}
		for at := first; at != 0 && !seen[at] && len(seen) < mostPages; {
			seen[at] = true
			if there, _ := memory.AnonymousIn(maps, at, memory.PageSize); !there {
				return
			}
			head := make([]byte, pageHead)
			if _, err := read(head, at); err != nil {
				yield(laid{}, fmt.Errorf("read which semaphores are raised: %w", err))
				return
			}
			if string(head[:len(pageMagic)]) != pageMagic {
				return
			}
			size := binary.LittleEndian.Uint64(head[pageSize:])
			if there, _ := memory.AnonymousIn(maps, at, size); !there || size > mostSize {
				yield(laid{}, errors.New("the raised semaphores are not where the journal says"))
				return
			}
			b := make([]byte, EntrySize)
			for entry := at + pageHead; entry+EntrySize <= at+symbols.Addr(size); entry += EntrySize {
				if _, err := read(b, entry); err != nil {
					yield(laid{}, fmt.Errorf("read which semaphores are raised: %w", err))
					return
				}
				if !yield(laid{Decode(b), entry}, nil) {
					return
				}
			}
			at = symbols.Addr(binary.LittleEndian.Uint64(head[pageNext:]))
		}
	}
}
