package semaphore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kprobe/probe/memory"
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
	first, err := file.Get64(file.Layout.Header.Off + memory.HeaderSemaphores)
	if err != nil || first == 0 {
		return err
	}
	maps, err := symbols.ReadMaps(p.PID())
	if err != nil {
		return err
	}
	seen := map[symbols.Addr]bool{}
	for at := symbols.Addr(first); at != 0 && !seen[at] && len(seen) < mostPages; {
		seen[at] = true
		if there, _ := memory.AnonymousIn(maps, at, memory.PageSize); !there {
			return nil // unmapped, with nothing left in it
		}
		head := make([]byte, pageHead)
		if _, err := p.ReadOwn(head, at); err != nil {
			return fmt.Errorf("read which semaphores are raised: %w", err)
		}
		if string(head[:len(pageMagic)]) != pageMagic {
			return nil
		}
		size := binary.LittleEndian.Uint64(head[pageSize:])
		if there, _ := memory.AnonymousIn(maps, at, size); !there || size > mostSize {
			return errors.New("the raised semaphores are not where the journal says")
		}
		for entry := at + pageHead; entry+EntrySize <= at+symbols.Addr(size); entry += EntrySize {
			if err := lower(p, entry, maps); err != nil {
				return err
			}
		}
		at = symbols.Addr(binary.LittleEndian.Uint64(head[pageNext:]))
	}
	return nil
}
