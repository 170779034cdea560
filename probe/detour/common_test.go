package detour

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// sharing lays functions out whose calls are in a table in common.
type sharing struct {
	*target
	k     Calls
	progs map[uint32]*fetch.Program
}

func newSharing(t *testing.T, memory int, texts map[uint32]string) *sharing {
	t.Helper()
	g := &sharing{newTarget(t, memory), Calls{}, map[uint32]*fetch.Program{}}
	entry := 0
	for id, text := range texts {
		g.progs[id] = g.program(text)
		entry = max(entry, g.progs[id].EntrySize())
	}
	var err error
	if g.k, err = NewCommonCalls(g.pools, entry, 256); err != nil {
		t.Fatal(err)
	}
	copy(g.at(g.k.Addr), g.k.Head(g.ways))
	g.pools += uint64(g.k.Size()+63) &^ 63
	return g
}

// probe is a probe, of which every fourth only counts.
func (g *sharing) probe(id uint32) Probe {
	return Probe{ID: id, Program: g.progs[id], CountOnly: id%4 == 0}
}

// add lays a function out, by whose returns it and the others may return.
func (g *sharing) add(id uint32, body func(c *asm.Code, self asm.Label, leave leaver), others ...uint32) (at uint64) {
	g.t.Helper()
	at = g.code
	probes := []Probe{g.probe(id)}
	for _, o := range others {
		probes = append(probes, g.probe(o))
	}
	g.function(func(c *asm.Code, self asm.Label) {
		body(c, self, func() {
			d, err := BuildLeaves(c.Here(), g.params(), probes, g.k, 0, func(c *asm.Code) error { c.Ret(); return nil })
			if err != nil {
				g.t.Fatal(err)
			}
			c.Raw(d.Code...)
		})
	}, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		d, err := BuildEnter(base, g.params(), nil, g.probe(id), g.k, tail)
		if err != nil {
			return nil, err
		}
		return d.Code, nil
	})
	return at
}

// jumping jumps to a function; hooking calls the hook before.
func (g *sharing) jumping(to uint64) func(*asm.Code, asm.Label, leaver) {
	return func(c *asm.Code, _ asm.Label, _ leaver) { g.passOn(c, to) }
}

func (g *sharing) hooking(to uint64) func(*asm.Code, asm.Label, leaver) {
	return func(c *asm.Code, _ asm.Label, _ leaver) {
		c.Push(asm.DI)
		c.MovImm(asm.AX, hookAt)
		c.CallMem(asm.At(asm.AX, 0))
		c.Pop(asm.DI)
		g.passOn(c, to)
	}
}

// passOn emits a jump that says so; the flags say that it is taken.
func (g *sharing) passOn(c *asm.Code, to uint64) {
	g.t.Helper()
	c.Test(asm.W64, asm.SP, asm.SP)
	d, err := BuildPassing(c.Here(), g.params(), g.k, PassesOn, asm.NE, false, func(c *asm.Code) error { c.JmpAddr(to); return nil })
	if err != nil {
		g.t.Fatal(err)
	}
	c.Raw(d.Code...)
}

// A function, one that jumps to it, one that jumps to that, two more whose calls are
// only counted, and twenty that are never called return by the same instruction: each
// call is recorded for each of them, with its own entry's values, on eight threads and in
// signal handlers.
func TestLeavesOfMany(t *testing.T) {
	for _, how := range []string{"plain", "signal"} {
		for _, off := range []uint32{0, 21, 22, 23, 28} {
			t.Run(fmt.Sprintf("%s, %d is off", how, off), func(t *testing.T) {
				const threads, n = 8, 600
				texts := map[uint32]string{21: "r f v=$retval a=$arg1", 22: "r f v=$retval b=$arg1 s=+0($arg2):string", 23: "r f b=$arg1 if b >= 100"}
				others := []uint32{40, 24, 22, 30, 23}
				for id := uint32(24); id < 48; id++ {
					texts[id] = "r f"
					if id != 40 && id != 24 && id != 30 {
						others = append(others, id)
					}
				}
				g := newSharing(t, 16<<20, texts)
				inner := g.add(21, shallow, others...)
				g.add(44, g.jumping(g.add(28, g.jumping(g.add(23, g.jumping(g.add(22, g.jumping(inner))))))))
				if off != 0 {
					binary.LittleEndian.PutUint32(g.at(g.params().Flags+4*uint64(off)), 0)
				}
				got := map[uint32]uint64{}
				var vals []fetch.Value
				sums := g.run(how, threads, n, func(r *ring.Record) error {
					got[r.ID]++
					var err error
					if vals, err = g.progs[r.ID].Decode(r.Data[:len(r.Data)-ReturnTail], vals); err != nil {
						return err
					}
					if r.ID == 23 {
						return nil
					}
					if a := vals[1].Int; vals[0].Int != a&^15+2*(a&15) || r.ID == 22 && string(vals[2].Bytes) != "hello, world" {
						t.Errorf("probe %d: %+v", r.ID, vals)
					}
					return nil
				})
				want := map[uint32]uint64{21: 0, 22: 4 * n * threads, 23: 3 * n * threads, 28: 2 * n * threads, 44: n * threads}
				sum := uint64(0)
				for i := range uint64(n) {
					want[21] += 5 * threads * (i&15 + 1)
					sum += 5 * (i&^15 + 2*(i&15))
				}
				for _, s := range sums[:threads] {
					if s != sum {
						t.Errorf("sum %d, want %d", s, sum)
					}
				}
				if how == "signal" {
					want[21] += 5 * 6 * sums[threads]
					for i, id := range []uint32{44, 28, 23, 22} {
						want[id] += uint64(i+1) * sums[threads]
					}
				}
				delete(want, off)
				for id := uint32(21); id < 48; id++ {
					if c := g.counts(id); c.Hits != want[id] || c.Missed != 0 || id != 23 && id%4 != 0 && got[id]+c.Lost != want[id] || id%4 == 0 && got[id] != 0 {
						t.Errorf("probe %d: %+v, %d records, want %d", id, c, got[id], want[id])
					}
				}
				if u := g.inUse(g.k); u != 0 {
					t.Errorf("%d calls are left", u)
				}
			})
		}
	}
}

// Calls that are left by longjmp are nobody's returns, and are forgotten: also where the
// next call with their slot, by the same instruction, is of a function that they would
// have jumped to. Who arrives there is asked where it is probed, and where not.
func TestLeavesLongjmp(t *testing.T) {
	const n = 3000
	for _, probed := range []bool{true, false} {
		g := newSharing(t, 8<<20, map[uint32]string{5: "r f v=$retval a=$arg1", 6: "r f v=$retval a=$arg1"})
		at := g.code
		if probed {
			g.add(5, hooked, 6)
		} else {
			g.function(func(c *asm.Code, _ asm.Label) {
				hooked(c, 0, func() {
					d, err := BuildLeaves(c.Here(), g.params(), []Probe{g.probe(6)}, g.k, 0, func(c *asm.Code) error { c.Ret(); return nil })
					if err != nil {
						t.Fatal(err)
					}
					c.Raw(d.Code...)
				})
			}, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
				d, err := BuildPassing(base, g.params(), g.k, Arrives, 0, true, tail)
				return d.Code, err
			})
		}
		g.add(6, g.hooking(at))
		g.addrs = []string{g.addrs[1], g.addrs[0], g.addrs[1]}
		g.run("jump", 1, n, func(*ring.Record) error { return nil })
		// Each round calls the hook five times, if none is left: where a function jumps to
		// the other both do.
		var five, six uint64
		hooks := 0
		hook := func() (left bool) { hooks++; return hooks%97 == 0 }
		for range n {
			for _, f := range []int{6, 5, 6} {
				if f == 6 && hook() || hook() {
					continue
				}
				if five++; f == 6 {
					six++
				}
			}
		}
		if !probed {
			five = 0
		}
		for id, n := range map[uint32]uint64{5: five, 6: six} {
			if c := g.counts(id); c.Hits != n || c.Missed != 0 {
				t.Errorf("probed %v: probe %d: %+v, want %d hits", probed, id, c, n)
			}
		}
		if u := g.inUse(g.k); u > 2 {
			t.Errorf("%d calls are left", u)
		}
	}
}

// More calls lie together than a table in common follows: the innermost are missed, and
// nothing else.
func TestLeavesMissed(t *testing.T) {
	const n = 400
	g := newSharing(t, 32<<20, map[uint32]string{6: "r f v=$retval a=$arg1"})
	g.add(6, recursing)
	sums := g.run("plain", 1, n, func(*ring.Record) error { return nil })
	var calls, want uint64
	for i := range uint64(n) {
		calls += i + 1
		want += 2 * i
	}
	if c := g.counts(6); c.Hits+c.Missed != calls || c.Missed == 0 || c.Hits < calls/2 || sums[0] != want {
		t.Errorf("%+v of %d calls, sum %d, want %d", c, calls, sums[0], want)
	}
	if u := g.inUse(g.k); u != 0 {
		t.Errorf("%d calls are left", u)
	}
}

// TestFirstRows: calls of a deep recursion begin at rows of their own, with room for a second one, wherever the stack lies;
// and the stacks of threads begin far apart.
func TestFirstRows(t *testing.T) {
	k, err := NewCommonCalls(poolAt, 0, CommonRows)
	if err != nil {
		t.Fatal(err)
	}
	for top := uint64(0x7ffc_0000_0000); top < 0x7ffc_0180_0000; top += 52_976 {
		begins := make([]bool, k.Count)
		for slot := top; slot > top-490_000; slot -= 16 {
			row := k.firstRow(slot)
			if begins[row] || begins[(row+1)%k.Count] || begins[(row+k.Count-1)%k.Count] {
				t.Fatalf("stack at %#x: a call at %#x begins at the row of another, or at the next", top, slot)
			}
			begins[row] = true
		}
	}
	for _, size := range []uint64{256<<10 + 4096, 512<<10 + 4096, 1 << 20, 1<<20 + 4096, 2 << 20, 2<<20 + 4096, stackApart, 8<<20 + 64<<10, 16<<20 + 4096} {
		var rows []int
		for n := range uint64(16) {
			rows = append(rows, k.firstRow(0x7f12_3456_7890-n*size))
		}
		slices.Sort(rows)
		for i, row := range rows {
			if apart := (rows[(i+1)%16] - row + k.Count) % k.Count; apart < 1900 {
				t.Errorf("of 16 stacks of %d KiB two begin %d rows apart", size>>10, apart)
			}
		}
	}
}

func TestCommonCalls(t *testing.T) {
	for _, n := range []int{0, 64, 200, MaxInstances * 2} {
		if _, err := NewCommonCalls(0x1000, 0, n); err == nil {
			t.Errorf("a table of %d calls is laid out", n)
		}
	}
	k, err := NewCommonCalls(0x1000, 40, 128)
	if err != nil || 1<<k.Shift < callEntry+40+ownerBefore || k.check() != nil {
		t.Fatalf("%+v, %v", k, err)
	}
	mem := make([]byte, k.Size())
	row := mem[k.offset(3):]
	binary.LittleEndian.PutUint64(row[callSlot:], 0x7000)
	binary.LittleEndian.PutUint32(row[1<<k.Shift-ownerBefore:], 9)
	if _, ok := k.Find(mem, 8, 0x7000); ok {
		t.Error("another probe's call is found")
	}
	if in, ok := k.Find(mem, 9, 0x7000); !ok || in.Number != 3 {
		t.Errorf("found %+v, %v", in, ok)
	}
	large, err := NewCommonCalls(0x1000, 40, 256)
	if err != nil {
		t.Fatal(err)
	}
	mem = make([]byte, large.Size())
	put := func(row int, slot, ra uint64) {
		b := mem[large.offset(row&255):]
		binary.LittleEndian.PutUint64(b[callSlot:], slot)
		binary.LittleEndian.PutUint64(b[callReturn:], ra)
	}
	for slot := uint64(0x7fff_1234_0008); slot < 0x7fff_1234_1008; slot += 16 {
		clear(mem)
		first := -1
		for from := range large.Near(slot) {
			if first < 0 {
				first = (from - callsHead) >> large.Shift
			}
		}
		put(first+commonReach-1, slot, 3) // the last, behind the table's end for half of the slots
		put(first+1, slot, 2)
		put(first+2, slot+8, 4)
		put(first+commonReach, slot, 5) // which no return looks at
		if list := large.With(mem, slot); len(list) != 2 || list[0].Return != 2 || list[1].Return != 3 {
			t.Fatalf("%#x: %+v", slot, list)
		}
		if in, ok := large.First(mem, slot, 3); !ok || in.Number != (first+commonReach-1)&255 {
			t.Fatalf("%#x: first is %+v, %v", slot, in, ok)
		}
	}
	near := map[int]bool{}
	for slot := uint64(0x7fff_1234_0008); slot < 0x7fff_1235_0000; slot += 16 {
		n := 0
		for from, end := range k.Near(slot) {
			n += (end - from) >> k.Shift
			near[from] = true
		}
		if n != k.Count {
			t.Fatalf("%d rows are near %#x", n, slot)
		}
	}
	if len(near) != k.Count {
		t.Errorf("%d rows are the first of some", len(near))
	}
	if _, err := BuildLeaves(codeAt, &Params{}, nil, k, 0, nil); err == nil {
		t.Error("an exit of nobody is built")
	}
}
