package detour

import (
	"encoding/binary"
	"testing"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// keeping is returns for a pool of which CPUs keep instances.
func (g *target) keeping(id uint32, text string, count int, made func(Pool)) func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
	return func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		prog := g.program(text)
		pool, err := NewPool(g.pools, prog, count, maxStripes)
		if err != nil {
			return nil, err
		}
		if pool.KeepOn(g.l.CPUs); !pool.Keeps {
			g.t.Fatalf("%d CPUs keep none of %d instances", g.l.CPUs, count)
		}
		copy(g.at(pool.Addr), pool.Head(g.ways))
		g.pools += uint64(pool.Size()+63) &^ 63
		r, err := BuildReturn(base, g.params(), Probe{ID: id, Program: prog, IP: base}, pool, tail)
		if err != nil {
			return nil, err
		}
		made(pool)
		return r.Code, nil
	}
}

// everyFree checks that each instance is free, and in one list or kept by one CPU. It returns how often one was
// taken from a stripe, and how many are kept.
func (g *target) everyFree(p Pool) (taken, kept int) {
	g.t.Helper()
	mem := g.at(p.Addr)[:p.Size()]
	le := binary.LittleEndian
	where := map[int]int{}
	for s := range p.Stripes {
		head := mem[stripeSize*s:]
		taken += int(le.Uint32(head))
		for n := le.Uint32(head[4:]); n != 0 && where[int(n)] < 2; n = nextFree(p, mem, n) {
			where[int(n)]++
		}
		if at := le.Uint64(head[keptAt:]); at != 0 {
			kept++
			where[int(at-p.Addr-uint64(p.first()))>>p.Shift+1]++
		}
	}
	for n := 1; n <= p.Count; n++ {
		if where[n] != 1 {
			g.t.Errorf("instance %d is free at %d places", n, where[n])
		}
	}
	if len(where) != p.Count || len(p.Used(mem)) != 0 {
		g.t.Errorf("%d instances are free, %d in use; there are %d", len(where), len(p.Used(mem)), p.Count)
	}
	return taken, kept
}

// TestKept: threads that race for instances which CPUs keep follow all of their calls, and leave every
// instance free.
func TestKept(t *testing.T) {
	for _, tt := range []struct {
		name    string
		threads int
		none    bool // the threads have no area where others have one
	}{{"one thread", 1, false}, {"threads", 8, false}, {"no areas", 8, true}} {
		t.Run(tt.name, func(t *testing.T) {
			const n = 20000
			g := newTarget(t, 16<<20)
			g.share(rseqArea(t))
			if tt.none {
				t.Setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
			}
			g.pools = seenPoolAt
			var pools [2]Pool
			g.function(func(c *asm.Code, _ asm.Label) { c.Ret() }, g.keeping(1, "r f", 32, func(p Pool) { pools[0] = p }))
			g.function(func(c *asm.Code, self asm.Label) {
				c.OpImm(asm.Add, asm.W64, asm.AX, 100)
				shallow(c, self, c.Ret)
			}, g.keeping(2, "r f v=$retval", tt.threads*16+4*g.l.CPUs, func(p Pool) { pools[1] = p }))
			for _, s := range g.run("plain", tt.threads, n, func(*ring.Record) error { return nil }) {
				var want uint64
				for i := range uint64(n) {
					want += i + i&^15 + 100 + 2*(i&15)
				}
				if s != want {
					t.Errorf("sum %d, want %d", s, want)
				}
			}
			var deep uint64
			for i := range uint64(n) {
				deep += i&15 + 1
			}
			for id, want := range map[uint32]uint64{1: n, 2: deep} {
				if c := g.counts(id); c.Hits != want*uint64(tt.threads) || c.Missed != 0 {
					t.Errorf("probe %d: %+v, want %d hits", id, c, want*uint64(tt.threads))
				}
			}
			for i, p := range pools {
				taken, kept := g.everyFree(p)
				if (kept == 0) != tt.none {
					t.Errorf("pool %d: %d instances are kept", i, kept)
				}
				if calls := n * tt.threads; !tt.none && i == 0 && taken > calls/2 || tt.none && taken < calls {
					t.Errorf("pool %d: %d of %d calls took their instances from stripes", i, taken, calls)
				}
			}
		})
	}
}

// TestKeptInterrupted: signal handlers that interrupt a call or a return at any instruction, and need an instance
// themselves, leave every instance free.
func TestKeptInterrupted(t *testing.T) {
	const threads, n, rounds, signals = 4, 100000, 200, 100
	g := newTarget(t, 4<<20)
	g.share(rseqArea(t))
	g.pools = seenPoolAt
	var pool Pool
	g.function(func(c *asm.Code, _ asm.Label) { c.Ret() }, g.keeping(1, "r f", 256, func(p Pool) { pool = p }))
	g.function(func(c *asm.Code, _ asm.Label) { c.Ret() }, g.keeping(2, "r f v=$retval", 256, func(Pool) {}))
	var calls, came uint64
	for round := 0; came < signals; round++ {
		if round == rounds {
			t.Errorf("%d signals came", came)
			break
		}
		sums := g.run("signal", threads, n, func(*ring.Record) error { return nil })
		for _, s := range sums[:threads] {
			if want := uint64(n * (n - 1)); s != want {
				t.Errorf("sum %d, want %d", s, want)
			}
		}
		calls, came = calls+threads*n+sums[threads], came+sums[threads]
		g.everyFree(pool)
	}
	for id := uint32(1); id <= 2; id++ {
		if c := g.counts(id); c.Hits != calls || c.Missed != 0 {
			t.Errorf("probe %d: %+v, want %d hits", id, c, calls)
		}
	}
}

// TestKeepOn: CPUs keep instances if each of them has a stripe, and then a quarter of them at most.
func TestKeepOn(t *testing.T) {
	prog := must(t, "r f")
	for _, tt := range []struct {
		cpus, count int
		want        bool
	}{{1, 3, false}, {1, 4, true}, {2, 7, false}, {2, 8, true}, {16, 64, true}, {17, 64, false}, {64, 256, true}, {65, 65536, false}} {
		p, err := NewPool(0x1000, prog, tt.count, maxStripes)
		if err != nil {
			t.Fatal(err)
		}
		if p.KeepOn(tt.cpus); p.Keeps != tt.want {
			t.Errorf("%d CPUs, %d instances: %v", tt.cpus, tt.count, p.Keeps)
		}
	}
}
