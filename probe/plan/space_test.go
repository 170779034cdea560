package plan

import (
	"cmp"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

func libc(t testing.TB) *object {
	return loadObject(t, fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"))
}

// Next against counting.
func TestNextDigits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var sets [4]ByteSet
		for i := range sets {
			switch rnd.IntN(3) {
			case 0:
				sets[i] = AnyByte()
			case 1:
				sets[i] = OneByte(byte(rnd.Uint32()))
			default:
				sets[i] = Traps()
			}
		}
		w := Want{Lo: 0, Hi: 1 << 60, Size: 1, Base: 1 << 40, Rel: sets}
		fits := func(a uint64) bool {
			d := uint32(a - w.Base)
			return sets[0].Has(byte(d)) && sets[1].Has(byte(d>>8)) && sets[2].Has(byte(d>>16)) && sets[3].Has(byte(d>>24))
		}
		for range 20 {
			from := w.Base - 1<<31 + rnd.Uint64N(1<<32)
			got, ok := w.Next(from)
			if ok && (got < from || !fits(got)) {
				t.Fatalf("%#x → %#x", from, got)
			}
			// Nothing in between, as far as can be counted.
			limit := from + 1<<14
			if ok {
				limit = min(limit, got)
			}
			for a := from; a < limit && a < w.Base+1<<31; a++ {
				if fits(a) {
					t.Fatalf("%#x → %#x, %v, but %#x fits", from, got, ok, a)
				}
			}
		}
	}
}

func TestNextEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		w    Want
		from uint64
		want uint64
		ok   bool
	}{
		{"whole reach", Want{Hi: ^uint64(0), Base: 1 << 40, Rel: free()}, 0, 1<<40 - 1<<31, true},
		{"past the reach", Want{Hi: ^uint64(0), Base: 1 << 40, Rel: free()}, 1<<40 + 1<<31, 0, false},
		{"last", Want{Hi: ^uint64(0), Base: 1 << 40, Rel: free()}, 1<<40 + 1<<31 - 1, 1<<40 + 1<<31 - 1, true},
		{"low base", Want{Hi: ^uint64(0), Base: 1 << 20, Rel: free()}, 0, 0, true},
		{"only beyond Hi", Want{Hi: 1<<40 + 5, Base: 1 << 40, Rel: [4]ByteSet{OneByte(6), AnyByte(), AnyByte(), AnyByte()}}, 1 << 40, 1<<40 + 6, false},
		{"beyond Hi", Want{Hi: 99, Base: 50, Rel: free()}, 100, 0, false},
		{"empty set", Want{Hi: ^uint64(0), Base: 1 << 40, Rel: [4]ByteSet{AnyByte(), {}, AnyByte(), AnyByte()}}, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := tt.w.Next(tt.from); got != tt.want || ok != tt.ok {
				t.Errorf("%#x, %v", got, ok)
			}
		})
	}
}

// TestAround bounds a detour so that a 32-bit displacement reaches from every end
// of an instruction in it, and by a byte at most further than need be.
func TestAround(t *testing.T) {
	for _, addr := range []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<31 + 1, base, 1 << 47} {
		for _, room := range []int{1, 16, 300} {
			lo, hi := around(addr, room)
			reaches := func(end uint64) bool { d := int64(addr - end); return d == int64(int32(d)) }
			if !reaches(lo+1) || !reaches(hi+uint64(room)) {
				t.Errorf("%#x is not reached from all of %#x … %#x, %d bytes", addr, lo, hi, room)
			}
			if reaches(hi+uint64(room)+2) || lo > 0 && reaches(lo-1) {
				t.Errorf("%#x … %#x could be wider for %#x, %d bytes", lo, hi, addr, room)
			}
		}
	}
}

// TestSpaceMapsLittle has a detour that may lie anywhere mapped with little around
// it, and one whose displacement is bound with much, so that its neighbours find room there.
func TestSpaceMapsLittle(t *testing.T) {
	for name, c := range map[string]struct {
		bind int
		want uint64
	}{"free": {-1, chunkSize}, "lowest byte": {0, chunkSize}, "second highest": {2, wideChunk}, "highest": {3, wideChunk}} {
		s := NewSpace([]Range{{(base + 1<<25) &^ (wideChunk - 1), base + 1<<31}})
		w := Want{Lo: base, Hi: base + 1<<31 - 1, Size: 20, Base: base, Rel: free(), Near: base}
		if c.bind >= 0 {
			w.Rel[c.bind] = OneByte(0x0c)
		}
		if _, ok := s.Find(w); !ok {
			t.Fatalf("%s: no room", name)
		}
		if f := s.Fresh(); len(f) != 1 || f[0].Hi-f[0].Lo != c.want {
			t.Errorf("%s: %#x is mapped, want one range of %#x bytes", name, f, c.want)
		}
	}
}

// TestChunkJoins keeps what is taken as few ranges: neighbours are one.
func TestChunkJoins(t *testing.T) {
	c := &chunk{Range: Range{0, chunkSize}}
	for _, r := range []Range{{0, 16}, {32, 48}, {64, 80}, {48, 64}, {16, 32}} {
		c.take(r)
	}
	if want := []Range{{0, 80}}; !slices.Equal(slices.Concat(c.used.blocks...), want) {
		t.Errorf("taken is %v, want %v", c.used, want)
	}
	c.used.remove(Range{16, 48})
	if want := []Range{{0, 16}, {48, 80}}; !slices.Equal(slices.Concat(c.used.blocks...), want) {
		t.Errorf("what is left is %v, want %v", c.used, want)
	}
}

// What Find returns is wanted, free, mapped, and nobody else's; and comes back
// after Release.
func TestSpace(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	gaps := []Range{{base - 1<<30, base - 1<<29}, {base + 1<<20 + 5, base + 1<<22}, {base + 1<<25, base + 1<<31}}
	s := NewSpace(gaps)
	old := Range{base + 1<<21, base + 1<<21 + 1<<16}
	taken := []Range{{old.Lo - 100, old.Lo + 100}, {old.Lo + 5000, old.Lo + 5016}, {old.Hi - 8, old.Hi + 8}}
	s.Mapped(old, taken)
	mapped := []Range{old}
	for n := range 6000 {
		w := Want{Size: 1 + rnd.IntN(300), Base: base + rnd.Uint64N(1<<20), Rel: free(), Near: base}
		w.Lo, w.Hi = w.Base-1<<31, w.Base+1<<31-1
		for i := range w.Rel {
			if rnd.IntN(4) == 0 {
				w.Rel[i] = Traps()
			}
		}
		a, ok := s.Find(w)
		if !ok {
			t.Fatalf("%d: nothing for %+v", n, w)
		}
		r := Range{a, a + uint64(w.Size)}
		d := uint32(a - w.Base)
		for i := range w.Rel {
			if !w.Rel[i].Has(byte(d >> (8 * i))) {
				t.Fatalf("displacement %#x", d)
			}
		}
		mapped = append(mapped, s.Fresh()...)
		in := false
		for _, m := range mapped {
			in = in || m.Lo <= r.Lo && r.Hi <= m.Hi
		}
		if !in {
			t.Fatalf("%#x is not mapped", r)
		}
		i, _ := slices.BinarySearchFunc(taken, r, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
		if i > 0 && taken[i-1].Hi > r.Lo || i < len(taken) && taken[i].Lo < r.Hi {
			t.Fatalf("%#x is taken", r)
		}
		if rnd.IntN(3) == 0 {
			s.Release(a, w.Size)
			continue
		}
		taken = slices.Insert(taken, i, r)
	}
	slices.SortFunc(mapped, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	for i, m := range mapped {
		if i > 0 && mapped[i-1].Hi > m.Lo || m.Lo%pageSize != 0 || m.Hi%pageSize != 0 {
			t.Errorf("mapped %#x", m)
		}
	}
}

func TestSpaceFull(t *testing.T) {
	s := NewSpace([]Range{{base, base + pageSize}, {base + 1<<20 + 1, base + 1<<20 + 4097}})
	w := Want{Size: 1000, Base: base, Rel: free(), Lo: 0, Hi: ^uint64(0)}
	for range 4 {
		if _, ok := s.Find(w); !ok {
			t.Fatal("full too early")
		}
	}
	if a, ok := s.Find(w); ok {
		t.Errorf("%#x of a full page", a)
	}
	if r := s.Fresh(); len(r) != 1 || r[0] != (Range{base, base + pageSize}) {
		t.Errorf("fresh %#x", r)
	}
	s.Release(base, 1000)
	if a, ok := s.Find(w); !ok || a != base {
		t.Errorf("after Release: %#x, %v", a, ok)
	}
	if _, ok := s.Find(Want{}); ok {
		t.Error("found room for nothing")
	}
}

// Spare addresses are used only by what Spared calls. What was claimed of them stays mapped, and serves others, too.
func TestSpaceSpare(t *testing.T) {
	const spare = base + 1<<24
	s := NewSpace([]Range{{base, base + pageSize}, {base + 1<<28, base + 1<<28 + pageSize}})
	w := Want{Size: pageSize, Base: base, Rel: free(), Lo: 0, Hi: ^uint64(0), Near: base}
	s.Spared(func() { t.Error("called without spare addresses") })
	s.SetSpare([]Range{{spare + 1, spare + 3*pageSize}})
	s.Exclude(Range{spare + pageSize, spare + 2*pageSize})
	if a, ok := s.Find(w); !ok || a != base {
		t.Fatalf("%#x, %v", a, ok)
	}
	beyond := w
	beyond.Lo, beyond.Hi = spare, spare+1<<20
	if a, ok := s.Find(beyond); ok {
		t.Fatalf("%#x is spare", a)
	}
	s.Spared(func() {
		if a, ok := s.Find(beyond); !ok || a != spare+2*pageSize {
			t.Errorf("%#x, %v", a, ok)
		}
	})
	want := []Range{{base, base + pageSize}, {spare + 2*pageSize, spare + 3*pageSize}}
	if got := s.Fresh(); !slices.Equal(got, want) {
		t.Errorf("fresh %#x, want %#x", got, want)
	}
	s.Release(spare+2*pageSize, pageSize)
	if a, ok := s.Find(beyond); !ok || a != spare+2*pageSize {
		t.Errorf("released: %#x, %v", a, ok)
	}
	if a, ok := s.Find(w); !ok || a != base+1<<28 {
		t.Errorf("%#x, %v", a, ok)
	}
}

// All functions of a library at once: how long, how much memory.
func TestBatch(t *testing.T) {
	o := libc(t)
	space := NewSpace(o.gaps)
	began := time.Now()
	var patches []*Patch
	for n := range o.funcs {
		f := o.fn(n)
		sites := f.Sites()
		if len(sites) == 0 {
			continue
		}
		ps, err := Plan(f, []Site{{Addr: sites[0], Room: 160}}, space, nil)
		if err != nil {
			t.Fatal(err)
		}
		patches = append(patches, ps...)
	}
	took := time.Since(began)
	pages := map[uint64]bool{}
	for i, p := range patches {
		if !p.Tactic.Jump() {
			t.Errorf("%#x: %v, %s", p.At, p.Tactic, p.Why)
		}
		for a := p.Detour; a < p.Detour+uint64(p.Room); a++ {
			pages[a/pageSize] = true
		}
		_ = i
	}
	fresh := space.Fresh()
	perProbe := len(pages) * pageSize / len(patches)
	t.Logf("%d patches in %v, %d mappings, %d pages, %d bytes per probe", len(patches), took, len(fresh), len(pages), perProbe)
	if len(fresh) > 300 || perProbe > 512 {
		t.Errorf("%d mappings, %d bytes per probe", len(fresh), perProbe)
	}
}

func BenchmarkPlan(b *testing.B) {
	o := libc(b)
	if os.Getenv("KPROBE_TEST_FULL") != "" {
		o = loadObject(b, fixture.NeedFile(b, "/usr/bin/node"))
	}
	var fs []*Func
	for n := range o.funcs {
		if f := o.fn(n); len(f.insts) > 0 {
			fs = append(fs, f)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		space := NewSpace(o.gaps)
		for _, f := range fs {
			if _, err := Plan(f, []Site{{Addr: f.start, Room: 160}}, space, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(fs)), "ns/site")
}
