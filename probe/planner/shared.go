package planner

import (
	"cmp"
	"fmt"
	"slices"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// SharedRoom is the size of the memory for shared code, in bytes. For processes that may be let go of and
// have return probes, the code is larger than a page.
const SharedRoom = 2 * memory.PageSize

// Shared is the shared code that a plan's detours and instances use.
type Shared struct {
	Code  *detour.Shared
	Fresh bool // it must be written to the target
	Texts bool // detours that record strings use it from now on
}

// planShared finds the code that the jumps of a plan share, and a place for it if the target doesn't have it
// yet. The returned mappings include this place.
func (o *planner) planShared(maps []symbols.Mapping, groups map[*assess.Function][]Request, returns bool, avoid []plan.Range) ([]symbols.Mapping, error) {
	o.common = nil
	texts := false
	for _, ws := range groups {
		texts = texts || slices.ContainsFunc(ws, func(w Request) bool { return o.params.NeedsShared(w.P.Program) })
	}
	texts = texts && o.params.Shared == nil
	if !returns && !texts {
		return maps, nil
	}
	x := &Shared{Code: o.ground.Shared, Texts: texts}
	if x.Code == nil {
		at, err := o.gapNearFile(maps, SharedRoom, avoid)
		if err != nil {
			return nil, fmt.Errorf("code that probes share: %w", err)
		}
		if x.Code, err = BuildShared(uint64(at), o.params, maps); err != nil {
			return nil, err
		}
		x.Fresh = true
		o.space.Exclude(x.Memory())
		maps = withMapping(maps, at, SharedRoom)
	}
	if o.common = x; texts {
		o.params.Shared = x.Code
	}
	return maps, nil
}

// withMapping returns maps with a further mapping, which is planned.
func withMapping(maps []symbols.Mapping, at symbols.Addr, size uint64) []symbols.Mapping {
	next, _ := slices.BinarySearchFunc(maps, at, func(m symbols.Mapping, at symbols.Addr) int { return cmp.Compare(m.Start, at) })
	return slices.Insert(slices.Clip(maps), next, symbols.Mapping{Start: at, End: at + symbols.Addr(size)})
}

// Memory is the range of its memory.
func (x *Shared) Memory() plan.Range {
	return plan.Range{Lo: x.Code.Base, Hi: x.Code.Base + SharedRoom}
}

// BuildShared builds the shared code for an address.
func BuildShared(at uint64, p detour.Params, maps []symbols.Mapping) (*detour.Shared, error) {
	p.StackEnd = StackEnd(maps)
	s, err := detour.BuildShared(at, &p)
	if err == nil && len(s.Code) > SharedRoom {
		err = fmt.Errorf("it has %d bytes", len(s.Code))
	}
	if err != nil {
		return nil, fmt.Errorf("code that probes share: %w", err)
	}
	return s, nil
}

// StackEnd is the upper end of the main thread's stack; 0: not known.
func StackEnd(maps []symbols.Mapping) uint64 {
	for i := range maps {
		if maps[i].Path == "[stack]" {
			return uint64(maps[i].End)
		}
	}
	return 0
}
