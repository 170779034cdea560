//go:build linux && amd64

package tracee

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// TestTouched: all pages that were written are yielded, within the bounds and in order, and nearly no others.
func TestTouched(t *testing.T) {
	g := spawn(t, events(t), "idle")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	const pages = 5000
	do(t, tr, func() error {
		got, err := p.Syscall(context.Background(), nil, unix.SYS_MMAP, 0, pages*pageSize, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
		if err != nil {
			return err
		}
		base := symbols.Addr(got)
		written := map[int]bool{}
		for _, n := range []int{0, 1, 7, 300, 1023, 1024, 1025, 2048, 4000, 4000 + touchedGap, pages - 1} {
			written[n] = true
			if err := p.WriteMemory([]byte{1}, base+symbols.Addr(n*pageSize)); err != nil {
				return err
			}
		}
		for _, bounds := range [][2]int{{0, pages * pageSize}, {64, pages*pageSize - 64}, {2 * pageSize, 3 * pageSize}, {300*pageSize + 128, 300*pageSize + 192}} {
			at, end := base+symbols.Addr(bounds[0]), base+symbols.Addr(bounds[1])
			seen, last := 0, at
			covered := map[int]bool{}
			for lo, hi := range p.Touched(at, end) {
				if lo < last || hi <= lo || hi > end {
					t.Errorf("%v to %v of %v to %v, behind %v", lo, hi, at, end, last)
				}
				last = hi
				for n := int(lo-base) / pageSize; n <= int(hi-1-base)/pageSize; n++ {
					covered[n] = true
					seen++
				}
			}
			for n := range written {
				if from := base + symbols.Addr(n*pageSize); from < end && from+pageSize > at && !covered[n] {
					t.Errorf("page %d of %v is missing", n, bounds)
				}
			}
			if most := len(written) * (touchedGap + 1); seen > most {
				t.Errorf("%d pages of %v, want at most %d", seen, bounds, most)
			}
		}
		return nil
	})
}
