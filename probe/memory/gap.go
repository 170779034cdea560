package memory

import (
	"slices"

	"kprobe/probe/plan"
	"kprobe/symbols"
)

const (
	// PageSize is that of the processor, in bytes.
	PageSize = 4096
	// Reach is how far a 32-bit displacement may be trusted to go in either
	// direction, less what a copy and its operands may add.
	Reach = 1<<31 - 1<<20
	// HeapRoom is left free behind the main program, where brk grows.
	HeapRoom = 1 << 30
	// spareFrom is how far behind the heap SpareRanges begin at least, and spareTimes how many times as far
	// as the heap is large.
	spareFrom  = 64 << 20
	spareTimes = 16
	// stackRoom is left free below the main stack, which grows down.
	stackRoom = 256 << 20
	// Lowest is above vm.mmap_min_addr's usual 64 KiB.
	Lowest = 1 << 20
	// Highest is the end of user space with four-level page tables
	// (Documentation/arch/x86/x86_64/mm.rst).
	Highest = 1<<47 - PageSize
)

// patientTries is how many places that a program took before kprobe could are taken to be chance.
const patientTries = 16

// FindGap returns the start of size free bytes from which every address in
// [lo, hi] is within reach, as near to them as can be, or ok = false. maps
// must be sorted by address, as /proc/PID/maps is. tried are starts that were
// refused; they are passed over. After patientTries of them the ends of the gaps are left to the
// program, the more the more were refused: it maps its memory there, faster than kprobe can.
func FindGap(maps []symbols.Mapping, lo, hi symbols.Addr, size uint64, tried map[symbols.Addr]bool) (at symbols.Addr, ok bool) {
	from, to := uint64(Lowest), min(uint64(Highest), uint64(lo)+Reach)
	if uint64(hi) > Reach {
		from = max(from, uint64(hi)-Reach)
	}
	inset := uint64(0)
	if n := len(tried) - patientTries; n >= 0 {
		inset = arenaSize << min(n, 14)
	}
	var best, bestDist uint64
	consider := func(start, end uint64) {
		start = (max(start, from) + PageSize - 1) &^ (PageSize - 1)
		if end > to {
			end = to &^ (PageSize - 1)
		}
		if end < start || end-start < size {
			return
		}
		skip := min(inset, (end-size-start)/2&^(PageSize-1))
		start, end = start+skip, end-skip
		// The others serve where the nearer end was refused.
		for _, c := range [3]uint64{start, end - size, (start + (end-size-start)/2) &^ (PageSize - 1)} {
			d := uint64(lo) - c
			if c > uint64(lo) {
				d = c - uint64(lo)
			}
			if !tried[symbols.Addr(c)] && (!ok || d < bestDist) {
				best, bestDist, ok = c, d, true
			}
		}
	}
	eachGap(maps, HeapRoom, consider)
	return symbols.Addr(best), ok
}

// eachGap calls f with each range of free addresses, in order. Where the heap
// and the main stack may grow is left out, heapRoom bytes for the heap. It starts behind the main
// program, at a random distance that is known once there is one.
func eachGap(maps []symbols.Mapping, heapRoom uint64, f func(lo, hi uint64)) {
	prev := uint64(Lowest)
	var main string
	heap := slices.ContainsFunc(maps, func(m symbols.Mapping) bool { return m.Path == "[heap]" })
	for i, m := range maps {
		if main == "" && m.Inode != 0 {
			main = m.Path // below it may be code of detached probes, or the program's own
		}
		end := min(uint64(m.Start), Highest) // the vsyscall page lies above
		if m.Path == "[stack]" && end > stackRoom {
			end -= stackRoom
		}
		if end > prev {
			f(prev, end)
		}
		next := uint64(m.End)
		if m.Path == "[heap]" || (!heap && m.Path == main && i+1 < len(maps) && maps[i+1].Path != main) {
			next += heapRoom
		}
		if next > prev {
			prev = next
		}
	}
	if prev < Highest {
		f(prev, Highest)
	}
}

// FreeRanges lists the addresses at which code may be mapped.
func FreeRanges(maps []symbols.Mapping) []plan.Range {
	var out []plan.Range
	eachGap(maps, HeapRoom, func(lo, hi uint64) { out = append(out, plan.Range{Lo: lo, Hi: hi}) })
	return out
}

// SpareRanges lists the addresses within HeapRoom that the heap isn't likely to reach. Only code that has no
// other place may be mapped there. If the heap does reach it, brk fails, and malloc takes memory
// elsewhere, by mmap. There are none before there is a heap.
func SpareRanges(maps []symbols.Mapping) []plan.Range {
	first := slices.IndexFunc(maps, func(m symbols.Mapping) bool { return m.Path == "[heap]" })
	if first < 0 {
		return nil
	}
	last := first
	for i, m := range maps[first:] {
		if m.Path == "[heap]" {
			last = first + i
		}
	}
	end := uint64(maps[last].End)
	room := max(spareFrom, spareTimes*(end-uint64(maps[first].Start)))
	var out []plan.Range
	eachGap(maps, room, func(lo, hi uint64) {
		if lo, hi := max(lo, end+room), min(hi, end+HeapRoom); lo < hi {
			out = append(out, plan.Range{Lo: lo, Hi: hi})
		}
	})
	return out
}
