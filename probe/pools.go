package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/probe/detour"
	"kprobe/symbols"
)

// Where the instances of return probes lie
//
// Those of a batch are mapped together, and found by who comes after a killed
// kprobe: the memory file has the address of the batch laid last, that one the
// address of the one before, and so on. They are unmapped when the probes are
// removed and their code has been given back (retire.go): until then a call may
// still return by them.

// poolsHead is what stands before the pools of a batch: u64 address of those
// of the batch before, u64 size.
const poolsHead = 64

// layPools maps the instances of the return probes of a batch.
func (tg *target) layPools(ctx context.Context, ps []*placed) error {
	if len(ps) == 0 {
		return nil
	}
	size := uint64(poolsHead)
	room := func(n int) (off uint64) {
		off, size = size, size+uint64(n+63)&^63
		return off
	}
	callsAt, poolAt := make([]uint64, len(ps)), make([]uint64, len(ps))
	laidPool := func(i int, p *placed) error {
		pool, err := detour.NewPool(0, p.prog, p.pool.max)
		if err == nil {
			poolAt[i] = room(pool.Size())
		}
		return err
	}
	for i, p := range ps {
		if p.byExits != nil && p.byExits.calls.Addr == 0 {
			calls, err := detour.NewCalls(0, p.prog, p.pool.max)
			if err != nil {
				return err
			}
			callsAt[i] = room(calls.Size())
		}
		if p.byExits == nil {
			if err := laidPool(i, p); err != nil {
				return err
			}
		}
	}
	// Behind all that is used lies what is for probes of exits that may have to go
	// by landings in the end: pages that nobody touches take no memory.
	size = (size + pageSize - 1) &^ (pageSize - 1)
	for i, p := range ps {
		if p.byExits != nil && p.landable {
			if err := laidPool(i, p); err != nil {
				return err
			}
		}
	}
	shared, err := tg.share(ctx)
	if err != nil {
		return err
	}
	size = (size + pageSize - 1) &^ (pageSize - 1)
	piece, err := tg.area.code.mapNear(ctx, tg.area.file.base, size)
	if err == nil {
		err = tg.area.code.writable(ctx, piece.start, size)
	}
	if err != nil {
		return fmt.Errorf("return instances: %w", err)
	}
	at := piece.start
	head := tg.area.file.layout.Header.Off + headerPools
	write := func(b []byte, at uint64) error {
		if err := tg.proc.WriteMemory(b, symbols.Addr(at)); err != nil {
			return fmt.Errorf("write return instances: %w", err)
		}
		return nil
	}
	first := binary.LittleEndian.AppendUint64(nil, tg.area.file.load64(head))
	if err := write(binary.LittleEndian.AppendUint64(first, size), uint64(at)); err != nil {
		return err
	}
	tg.area.pools = append(tg.area.pools, piece)
	for i, p := range ps {
		// Calls of before a change are noted where they were.
		if callsAt[i] != 0 {
			if p.byExits.calls, err = detour.NewCalls(uint64(at)+callsAt[i], p.prog, p.pool.max); err != nil {
				return err
			}
			p.byExits.calls.Go = p.goABI
			if err := write(p.byExits.calls.Head(shared), p.byExits.calls.Addr); err != nil {
				return err
			}
			tg.exitProbes = append(tg.exitProbes, p.byExits)
		}
		if poolAt[i] == 0 {
			continue
		}
		pool, err := detour.NewPool(uint64(at)+poolAt[i], p.prog, p.pool.max)
		if err != nil {
			return err
		}
		p.followed = &followed{probe: p, pool: pool, suspects: map[int]detour.Instance{}}
		if p.byExits == nil {
			if err := tg.fillPool(p.followed); err != nil {
				return err
			}
		}
	}
	tg.area.file.store64(head, uint64(at))
	tg.watchMissed()
	return nil
}

// mainStack is stackEndOf the process as it is now.
func (tg *target) mainStack() uint64 {
	maps, err := symbols.ReadMaps(tg.proc.PID())
	if err != nil {
		return 0
	}
	return stackEndOf(maps)
}

// fillPool writes a pool of instances that are all free.
func (tg *target) fillPool(f *followed) error {
	shared, err := tg.share(tg.s.run)
	if err != nil {
		return err
	}
	if err := tg.proc.WriteMemory(f.pool.Image(shared), symbols.Addr(f.pool.Addr)); err != nil {
		return fmt.Errorf("write return instances: %w", err)
	}
	f.filled = true
	return nil
}

// fillPools writes the pools of those of a batch's probes that go by landings
// after all.
func (tg *target) fillPools(ps []*placed) error {
	for _, p := range ps {
		if f := p.followed; p.byExits == nil && f != nil && !f.filled {
			if err := tg.fillPool(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// freePools unmaps the instances of batches of which neither a probe nor code is
// left.
func (tg *target) freePools(ctx context.Context) {
	var used []uint64
	for _, st := range tg.patches.stages {
		if st.returns != nil {
			used = append(used, st.returns.pool.Addr)
		}
		if st.exits != nil {
			used = append(used, st.exits.calls.Addr)
		}
	}
	for p := range tg.placed {
		if p.followed != nil {
			used = append(used, p.followed.pool.Addr)
		}
		if p.byExits != nil {
			used = append(used, p.byExits.calls.Addr)
		}
	}
	holds := func(m *piece, at uint64) bool { return at >= uint64(m.start) && at < uint64(m.end()) }
	pools := tg.area.pools
	for i := 0; i < len(pools); i++ {
		m := pools[i]
		if slices.ContainsFunc(used, func(at uint64) bool { return holds(m, at) }) {
			continue
		}
		if err := tg.unlinkPools(i); err != nil {
			tg.s.logf("return instances stay mapped: %v", err)
			continue
		}
		tg.exitProbes = slices.DeleteFunc(tg.exitProbes, func(l *exitProbe) bool { return holds(m, l.calls.Addr) })
		pools = slices.Delete(pools, i, i+1)
		tg.area.pools = pools
		i--
		if err := tg.area.code.unmap(ctx, m); err != nil {
			tg.s.logf("return instances stay mapped: %v", err)
		}
	}
}

// unlinkPools takes a batch's instances out of the list that leads to them.
func (tg *target) unlinkPools(i int) error {
	pools := tg.area.pools
	before := uint64(0)
	if i > 0 {
		before = uint64(pools[i-1].start)
	}
	if i+1 < len(pools) {
		return tg.proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, before), pools[i+1].start)
	}
	tg.area.file.store64(tg.area.file.layout.Header.Off+headerPools, before)
	return nil
}
