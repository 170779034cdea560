package memory

import (
	"testing"

	"kprobe/symbols"
)

// A place that was refused is not offered again: the middle of the nearest
// gap is next, then its other end, then the gap behind; and none is offered that
// is mapped, out of reach, or where the heap grows.
func TestFindGap(t *testing.T) {
	maps := []symbols.Mapping{
		{Start: 0x400000, End: 0x5600000, Path: "/bin/prog"},
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
