package semaphore

import (
	"fmt"
	"slices"

	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Set is the counters that a session has raised in an address space. The zero value
// has none.
type Set struct {
	raised map[symbols.Addr]symbols.Addr // counter → entry
	free   []symbols.Addr                // entries
	failed map[symbols.Addr]bool         // counters that could not be raised
}

// Layer is what pages of entries are laid with.
type Layer struct {
	Proc *tracee.Process
	File *memory.File
	// Map maps memory of a size, which the process may write to.
	Map func(size uint64) (symbols.Addr, error)
}

// Due says which counters are to be raised and lowered where those that wanted tells
// are to be raised. One that could not be raised isn't tried again until its library
// has come again (Forget).
func (s *Set) Due(wanted map[symbols.Addr]bool) (up, down []symbols.Addr) {
	for at := range wanted {
		if _, is := s.raised[at]; !is && !s.failed[at] {
			up = append(up, at)
		}
	}
	for at := range s.raised {
		if !wanted[at] {
			down = append(down, at)
		}
	}
	slices.Sort(up)
	return up, down
}

// Prepare sees that there are entries for n more counters.
func (s *Set) Prepare(n int, l Layer) error {
	if s.raised == nil {
		s.raised, s.failed = map[symbols.Addr]symbols.Addr{}, map[symbols.Addr]bool{}
	}
	if len(s.free) >= n {
		return nil
	}
	return s.add(n, l)
}

// Change raises and lowers counters, for which there are entries (Prepare). Those that
// can't be raised it gives to failed, and goes on.
func (s *Set) Change(p *tracee.Process, up, down []symbols.Addr, failed func(at symbols.Addr, err error)) error {
	maps, err := symbols.ReadMaps(p.PID())
	if err != nil {
		return err
	}
	for _, at := range down {
		entry := s.raised[at]
		if err := lower(p, entry, maps); err != nil {
			return err
		}
		delete(s.raised, at)
		s.free = append(s.free, entry)
	}
	for _, at := range up {
		entry := s.free[len(s.free)-1]
		if err := raise(p, at, entry, maps); err != nil {
			s.failed[at] = true
			failed(at, err)
			continue
		}
		s.free = s.free[:len(s.free)-1]
		s.raised[at] = entry
	}
	return nil
}

// Forget forgets the counters that are gone with their library, and which could not be
// raised. The error is that of one that could not be forgotten; others were.
func (s *Set) Forget(p *tracee.Process, gone func(at symbols.Addr) bool) (err error) {
	clear(s.failed)
	for at, entry := range s.raised {
		if !gone(at) {
			continue
		}
		if cerr := clearEntry(p, entry); cerr != nil {
			err = fmt.Errorf("a semaphore at %v, which is gone: %w", at, cerr)
			continue
		}
		delete(s.raised, at)
		s.free = append(s.free, entry)
	}
	return err
}

// EntryOf gives where a counter is noted that is raised; 0: it isn't.
func (s *Set) EntryOf(at symbols.Addr) symbols.Addr { return s.raised[at] }
