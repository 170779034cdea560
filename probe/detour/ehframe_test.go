package detour

import (
	"debug/elf"
	"fmt"
	"os/exec"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Exceptions pass through return trampolines, and backtraces go on behind them.
func TestFrames(t *testing.T) {
	const n, instances = 300, 1000
	prog := fixture.Build(t, "detour_throw.cc", "-O1", "-no-pie", "-fno-pie")
	f, err := elf.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var work uint64
	for _, s := range syms {
		if s.Name == "work" {
			work = s.Value
		}
	}
	const code, frames, pools = 0x5000_0000, 0x5100_0000, 0x5200_0000
	m := newMachine(t, 1, 8192, shared{code, 0, 1 << 20, protRX}, shared{frames, 0, 1 << 20, protRW}, shared{pools, 0, 1 << 20, protRW})
	p := must(t, "r f v=$retval")
	pool, err := NewPool(pools, p, instances, maxStripes)
	if err != nil {
		t.Fatal(err)
	}
	copy(m.at(pools), pool.Head(m.common(m.params())))
	r, err := BuildReturn(code, m.params(), Probe{ID: 1, Program: p}, pool, func(c *asm.Code) error {
		c.JmpAddr(work + 16) // the padding is all that is displaced
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(m.at(code), r.Code)
	copy(m.at(frames), r.Frames(pool))
	out, err := exec.Command(prog, m.path, hex(code), hex(frames), fmt.Sprint(n)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var caught, sum int64
	var before, after int
	if _, err := fmt.Sscan(string(out), &caught, &sum, &before, &after); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var wantSum int64
	returned, thrown := uint64(6), 0 // of the last call, six deep
	for i := range int64(n) {
		if i%3 == 0 {
			thrown += int(i%4) + 1
			continue
		}
		wantSum += i + i%4
		returned += uint64(i%4) + 1
	}
	if caught != n/3 || sum != wantSum {
		t.Errorf("caught %d, sum %d; want %d, %d", caught, sum, n/3, wantSum)
	}
	if after != before+6 {
		t.Errorf("a backtrace through 6 return trampolines has %d frames, %d without", after, before)
	}
	if h, miss := m.hits(1), m.counter(1, ring.CounterMissed); h != returned || miss != 0 {
		t.Errorf("%d returns, %d missed; want %d", h, miss, returned)
	}
	if used := pool.Used(m.at(pools)); len(used) != thrown {
		t.Errorf("%d instances in use, want those of %d calls that were left", len(used), thrown)
	}
}
