package engine

import (
	"slices"

	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// leftSites are the bytes of a process that are changed by probes that were left in it. They are
// read at the first question, and kept.
type leftSites struct {
	looked bool
	list   []ring.Site
}

// at reports whether any of size bytes at a are among them.
func (s *leftSites) at(pid int, a symbols.Addr, size int) bool {
	if !s.looked {
		s.looked = true
		maps, err := symbols.ReadMaps(pid)
		if err != nil {
			return false
		}
		for _, m := range maps {
			if !memory.IsFile(pid, &m) {
				continue
			}
			list, err := untrusted.Within(func() ([]ring.Site, error) { return sitesLeft(pid, m.Start) })
			if err != nil {
				continue // the mapping is no valid memory file
			}
			s.list = append(s.list, list...)
		}
	}
	return slices.ContainsFunc(s.list, func(t ring.Site) bool {
		return t.Addr < uint64(a)+uint64(size) && uint64(a) < t.Addr+uint64(len(t.After))
	})
}

// sitesLeft lists the bytes that are changed by the detached probes of the memory file at base; none
// if its probes are not detached.
func sitesLeft(pid int, base symbols.Addr) ([]ring.Site, error) {
	mem, err := memory.OpenProcess(pid)
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	file := memory.Window{Mem: mem, At: base}
	s, err := ring.ReadSnapshot(file, memory.PossibleCPUs())
	if err != nil || s.Header.Mode&ring.ModeDetached == 0 || s.Header.Base != uint64(base) {
		return nil, err
	}
	return ring.ReadSites(file, &s.Header, s.Layout)
}
