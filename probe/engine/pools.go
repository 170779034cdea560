package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

// Where the instances of return probes lie
//
// The instances of a batch lie in one mapping. The mappings form a list for recovery: the memory
// file has the address of the latest batch's mapping, and each mapping begins with the address of
// the one before (0: none) and its own size. A mapping is unmapped when its probes are removed and
// their code has been freed (retire.go). Until then a call may still return by an instance.

// layPools maps the memory for a plan's instances, links it into the list, and initializes the
// instances of patches. On an error an arena that was mapped stays, unused, until kprobe leaves.
func (tg *Target) layPools(ctx context.Context, x *planner.Pools, list []*Patch) error {
	arena, err := tg.mapPlanned(ctx, plan.Range{Lo: uint64(x.At), Hi: uint64(x.At) + x.Size})
	if err == nil {
		err = tg.Area.Code.Writable(ctx, arena.Start, x.Size)
	}
	if err != nil {
		tg.Area.Code.Keep(arena)
		return fmt.Errorf("return instances: %w", err)
	}
	head := tg.Area.File.Layout.Header.Off + memory.HeaderPools
	write := func(b []byte, at uint64) error {
		if err := tg.Proc.WriteMemory(b, symbols.Addr(at)); err != nil {
			return fmt.Errorf("write return instances: %w", err)
		}
		return nil
	}
	first := binary.LittleEndian.AppendUint64(nil, tg.Area.File.Load64(head))
	if err := write(binary.LittleEndian.AppendUint64(first, x.Size), uint64(x.At)); err != nil {
		tg.Area.Code.Keep(arena)
		return err
	}
	tg.Area.File.Store64(head, uint64(x.At))
	tg.Area.Pools = append(tg.Area.Pools, arena)
	shared := tg.newestShared()
	seen := map[uint64]bool{}
	for _, p := range list {
		for st := range p.allStages() {
			w := st.Way()
			if w == nil {
				continue
			}
			at := w.At()
			if seen[at] || !x.Holds(at) {
				continue
			}
			seen[at] = true
			if err := write(w.Blank(shared), at); err != nil {
				return err
			}
			if l := st.Exits(); l != nil {
				tg.ExitProbes = append(tg.ExitProbes, l)
			}
		}
	}
	return nil
}

// freePools unmaps the instances of batches that have neither a probe nor code left.
func (tg *Target) freePools(ctx context.Context) {
	var used []uint64
	for _, st := range tg.Patches.Stages {
		if st.Way() != nil {
			used = append(used, st.Way().At())
		}
		for _, w := range st.Wants() {
			if w.P.Rarely().Landing != nil { // it looks into a table
				used = append(used, PlacedOf(w).lands().calls.Addr)
			}
		}
	}
	for p := range tg.Placed {
		for w := range p.ways() {
			used = append(used, w.At())
		}
	}
	holds := func(m *memory.Arena, at uint64) bool { return at >= uint64(m.Start) && at < uint64(m.End()) }
	pools := tg.Area.Pools
	for i := 0; i < len(pools); i++ {
		m := pools[i]
		if slices.ContainsFunc(used, func(at uint64) bool { return holds(m, at) }) {
			continue
		}
		if err := tg.unlinkPools(i); err != nil {
			tg.Engine.Logf("return instances stay mapped: %v", err)
			continue
		}
		maps.DeleteFunc(tg.suspects, func(at uint64, _ map[int]detour.Instance) bool { return holds(m, at) })
		tg.ExitProbes = slices.DeleteFunc(tg.ExitProbes, func(l *planner.ExitWay) bool { return holds(m, l.Calls().Addr) })
		pools = slices.Delete(pools, i, i+1)
		tg.Area.Pools = pools
		i--
		if err := tg.Area.Code.Unmap(ctx, m); err != nil {
			tg.Area.Code.Keep(m)
			tg.Engine.Logf("return instances stay mapped: %v", err)
		}
	}
}

// unlinkPools removes the mapping with index i from the list by which recovery finds it.
func (tg *Target) unlinkPools(i int) error {
	pools := tg.Area.Pools
	before := uint64(0)
	if i > 0 {
		before = uint64(pools[i-1].Start)
	}
	if i+1 < len(pools) {
		return tg.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, before), pools[i+1].Start)
	}
	tg.Area.File.Store64(tg.Area.File.Layout.Header.Off+memory.HeaderPools, before)
	return nil
}
