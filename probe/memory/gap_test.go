package memory

import (
	"slices"
	"testing"

	"kprobe/probe/plan"
	"kprobe/symbols"
)

// A place that was refused is not offered again: the middle of the nearest
// gap is next, then its other end, then the gap behind; and none is offered that
// is mapped, out of reach, or where the heap grows.
func TestFindGap(t *testing.T) {
	maps := []symbols.Mapping{
		{Start: 0x400000, End: 0x5600000, Inode: 1, Path: "/bin/prog"},
		{Start: 0x5600000, End: 0x5700000},
		{Start: 0x5780000, End: 0x6000000, Path: "[heap]"},
		{Start: 0x7ffff0000000, End: 0x7ffff0021000, Path: "[stack]"},
	}
	const at, size = symbols.Addr(0xb9b3df), 0x10000
	tried := map[symbols.Addr]bool{}
	var got []symbols.Addr
	for range 20 {
		a, ok := FindGap(maps, at, at, size, tried)
		if !ok {
			break
		}
		if tried[a] || !within(at, a) || !within(at, a+size) || a%PageSize != 0 {
			t.Errorf("%v is offered", a)
		}
		for _, m := range maps {
			if a < m.End && a+size > m.Start || m.Path == "[heap]" && a >= m.Start && a < m.End+HeapRoom {
				t.Errorf("%v is offered, in %v-%v", a, m.Start, m.End)
			}
		}
		tried[a] = true
		got = append(got, a)
	}
	want := []symbols.Addr{
		0x3f0000, 0x278000, 0x100000, // below the program
		0x5700000, 0x5738000, 0x5770000, // before the heap
		0x6000000 + HeapRoom, // behind its room
	}
	if len(got) != len(want)+2 {
		t.Fatalf("offered %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("place %d is %v, not %v", i, got[i], want[i])
		}
	}
}

// The heap starts somewhere behind the program, before there is one too, and whatever is mapped below the program: arenas
// there would keep brk from growing, and the kernel would call them the heap.
func TestFreeRangesHeap(t *testing.T) {
	const start, end = 0x560228c00000, 0x56025d0b3000
	for _, below := range [][]symbols.Mapping{nil, {{Start: 0x560210000000, End: 0x560211000000, Exec: true}}} {
		maps := append(below,
			symbols.Mapping{Start: start, End: end - 0x1000, Inode: 1, Path: "/bin/prog"}, symbols.Mapping{Start: end - 0x1000, End: end, Inode: 1, Path: "/bin/prog"},
			symbols.Mapping{Start: 0x7fd29b0b1000, End: 0x7fd29b286000, Inode: 2, Path: "/lib/libc.so.6"})
		for _, r := range FreeRanges(maps) {
			if r.Lo < end+HeapRoom && r.Hi > end {
				t.Errorf("%#x-%#x is offered, the program ends at %#x", r.Lo, r.Hi, end)
			}
		}
	}
}

// Of the heap's room the spare part begins the farther behind it the larger it is, and ends where anything is mapped.
func TestSpareRanges(t *testing.T) {
	const heap, behind = 0x1a000000, 0x50000000
	maps := []symbols.Mapping{
		{Start: 0x400000, End: 0x5600000, Inode: 1, Path: "/bin/prog"},
		{Start: heap, End: heap + 1<<20, Path: "[heap]"},
		{Start: heap + 1<<20, End: heap + 2<<20, Path: "[heap]"},
		{Start: behind, End: behind + 0x1000},
	}
	for _, x := range []struct {
		size, from uint64
	}{{2 << 20, 64 << 20}, {10 << 20, 160 << 20}, {64 << 20, 0}} {
		end := uint64(heap) + x.size
		maps[2].End = symbols.Addr(end)
		var want []plan.Range
		if x.from != 0 {
			want = []plan.Range{{Lo: end + x.from, Hi: behind}, {Lo: behind + 0x1000, Hi: end + HeapRoom}}
		}
		if got := SpareRanges(maps); !slices.Equal(got, want) {
			t.Errorf("heap of %#x bytes: %#x, want %#x", x.size, got, want)
		}
	}
	if got := SpareRanges(maps[:1]); got != nil {
		t.Errorf("%#x without a heap", got)
	}
}

// Nothing above the end of user space is free: behind the stack, where it lies
// at fixed addresses, comes only the vsyscall page.
func TestFreeRangesEnd(t *testing.T) {
	maps := []symbols.Mapping{
		{Start: 0x7ffff7fc9000, End: 0x7ffff7ffe000, Path: "/lib/ld.so"},
		{Start: 0x7ffffffde000, End: 0x7ffffffff000, Path: "[stack]"},
		{Start: 0xffffffffff600000, End: 0xffffffffff601000, Path: "[vsyscall]"},
	}
	ranges := FreeRanges(maps)
	if len(ranges) == 0 {
		t.Fatal("nothing is free")
	}
	for _, r := range ranges {
		if r.Hi > Highest {
			t.Errorf("%#x-%#x is offered, user space ends at %#x", r.Lo, r.Hi, uint64(Highest))
		}
	}
}
