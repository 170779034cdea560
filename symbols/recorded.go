package symbols

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// Recorded is a file as a process had it mapped. The process may be gone.
type Recorded struct {
	Path    string
	BuildID string
	Main    bool
	Bias    uint64
	Maps    []Mapping
}

// Told is a name that was noted when the process ran, of the code from Start on.
type Told struct {
	Start Addr
	Size  uint64
	Name  string
}

// OpenRecorded makes a Space of what a process had mapped once, here or on another machine.
// Files that exist here with the same build-id name its addresses. Recorded names serve for the
// rest. missing are the files that aren't here.
func (c *Cache) OpenRecorded(list []Recorded, told []Told) (s *Space, missing []string) {
	var modules []*Module
	var maps []Mapping
	for _, r := range list {
		if strings.HasPrefix(r.Path, "[") {
			continue // the kernel's
		}
		f, err := c.OpenFile(r.Path)
		if err != nil || f.BuildID != r.BuildID || r.BuildID == "" {
			missing = append(missing, r.Path)
			continue
		}
		modules = append(modules, &Module{File: f, Name: filepath.Base(r.Path), Path: r.Path, Main: r.Main, Bias: r.Bias, Maps: r.Maps})
		maps = append(maps, r.Maps...)
	}
	slices.SortFunc(maps, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
	s = &Space{cache: c, told: slices.Clone(told)}
	slices.SortFunc(s.told, func(a, b Told) int { return cmp.Compare(a.Start, b.Start) })
	s.now.Store(newView(maps, modules, nil))
	return s, missing
}

// toldAt names an address by the recorded names.
func (s *Space) toldAt(a Addr) (t Told, ok bool) {
	n, exact := slices.BinarySearchFunc(s.told, a, func(t Told, a Addr) int { return cmp.Compare(t.Start, a) })
	if !exact {
		n--
	}
	if n < 0 || uint64(a-s.told[n].Start) >= max(s.told[n].Size, 1) {
		return Told{}, false
	}
	return s.told[n], true
}
