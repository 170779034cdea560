package engine

import (
	"slices"

	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// leftSites are the bytes that were changed for probes that were left in a process, as
// they were when somebody asked first.
type leftSites struct {
	looked bool
	list   []ring.Site
}

// at reports whether some of so many bytes at an address are among them.
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
				continue // it is no recorder, or nobody's
			}
			s.list = append(s.list, list...)
		}
	}
	return slices.ContainsFunc(s.list, func(t ring.Site) bool {
		return t.Addr < uint64(a)+uint64(size) && uint64(a) < t.Addr+uint64(len(t.After))
	})
}

// sitesLeft are the bytes that were changed for probes of the memory file that is mapped at
// an address, where they were left alone.
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
