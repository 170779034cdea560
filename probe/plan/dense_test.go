package plan

import (
	"math/rand/v2"
	"testing"
)

// text is a function's code under patches.
type text struct {
	f     *Func
	now   []byte
	owner []*Patch
}

func newText(f *Func) *text {
	return &text{f: f, now: append([]byte(nil), f.code...), owner: make([]*Patch, len(f.code))}
}

func (x *text) read(at uint64) byte {
	if at-x.f.start < uint64(len(x.now)) {
		return x.now[at-x.f.start]
	}
	return 0
}

// put writes a patch, or takes it out, and keeps the owners of the bytes.
func (x *text) put(t *testing.T, p *Patch, in bool) {
	t.Helper()
	for r := range packed(p).Owns() {
		for at := r.Lo; at < r.Hi; at++ {
			o := at - x.f.start
			if was := x.owner[o]; was != nil && was != p {
				t.Errorf("the byte at +%#x belongs to the patches at %#x and %#x", o, was.At, p.At)
			}
			if x.owner[o] = nil; in {
				x.owner[o] = p
			}
		}
	}
	for q := p; q != nil; q = q.Island {
		for _, w := range q.Writes {
			for k, b := range w.Bytes {
				if o := w.At + uint64(k) - x.f.start; in {
					x.now[o] = b
				} else {
					x.now[o] = x.f.code[o]
				}
			}
		}
	}
}

// verify executes the text: each armed patch is a breakpoint or leads to its
// detour, its island's copy is reached, old boundaries trap where they are
// guarded, and all instructions that belong to nobody are as they were.
func (x *text) verify(t *testing.T, armed map[*Patch]bool) {
	t.Helper()
	for p := range armed {
		if !p.Tactic.Jump() {
			if x.read(p.At) != 0xcc {
				t.Errorf("no breakpoint at %#x but %#x", p.At, x.read(p.At))
			}
			continue
		}
		for q := p; q != nil; q = q.Island {
			if to, _ := follow(x.read, q.At); to != q.Detour && !packed(q).GuardsStart() {
				t.Errorf("%#x, %v: leads to %#x, not to %#x", q.At, q.Tactic, to, q.Detour)
			}
			if q.Tactic == Bypass {
				checkBypass(t, x.f, p, q.Sites[0])
			}
			for _, g := range q.Guards {
				if x.read(g.At) != g.Byte || !Traps().Has(g.Byte) {
					t.Errorf("%#x, %v: the guard at %#x is %#x", q.At, q.Tactic, g.At, x.read(g.At))
				}
			}
		}
	}
	for _, i := range x.f.insts {
		for o := i.off; o < i.end(); o++ {
			if x.owner[o] == nil && x.now[o] != x.f.code[o] {
				t.Errorf("the byte at +%#x belongs to nobody and is changed", o)
			}
		}
	}
}

// TestDenseSets plans dense sets of sites of real functions one after the
// other, each knowing what the armed ones own, as probes come to a running
// target; a patch whose bytes a new site needs is taken out and its sites are
// planned again. Others are taken out, stepped back and armed again in between.
func TestDenseSets(t *testing.T) {
	o := libc(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	tactics := map[Tactic]int{}
	islands := 0
	for range 1500 {
		f := o.fn(rnd.IntN(len(o.funcs)))
		all := f.Sites()
		if len(all) == 0 {
			continue
		}
		from := rnd.IntN(len(all))
		all = all[from:min(len(all), from+30)]
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		space := NewSpace(o.gaps)
		x, armed := newText(f), map[*Patch]bool{}
		for len(all) > 0 {
			n := min(len(all), 1+rnd.IntN(4))
			var sites []Site
			for _, a := range all[:n] {
				sites = append(sites, Site{Addr: a, Room: 64 + rnd.IntN(100), Trap: rnd.IntN(12) == 0})
			}
			all = all[n:]
			// Who stands where they come goes, and comes again with them.
			for again := true; again; {
				again = false
				for p := range armed {
					for _, s := range sites {
						if packed(p).Owned(s.Addr, f.endOf(s.Addr)) {
							again = true
						}
					}
					if again {
						delete(armed, p)
						x.put(t, p, false)
						for _, a := range p.AllSites() {
							sites = append(sites, Site{Addr: a, Room: 100})
						}
						break
					}
				}
			}
			var taken []Range
			for p := range armed {
				for r := range packed(p).Owns() {
					taken = append(taken, r)
				}
			}
			ps, err := Plan(f, sites, space, taken)
			if err != nil {
				t.Fatal(err)
			}
			rnd.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
			for _, p := range ps {
				check(t, f, p)
				tactics[p.Tactic]++
				if p.Island != nil {
					islands++
				}
				if p.Tactic != Refused {
					armed[p] = true
					x.put(t, p, true)
				}
			}
			x.verify(t, armed)
			// Any of them goes for a while, in any order.
			var gone []*Patch
			for p := range armed {
				if rnd.IntN(3) == 0 {
					gone = append(gone, p)
					delete(armed, p)
					x.put(t, p, false)
				}
			}
			x.verify(t, armed)
			rnd.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
			for _, p := range gone {
				armed[p] = true
				x.put(t, p, true)
			}
			x.verify(t, armed)
			if t.Failed() {
				t.Fatalf("in the function at %#x", f.start)
			}
		}
		for p := range armed {
			x.put(t, p, false)
		}
		x.verify(t, nil)
		if string(x.now) != string(f.code) {
			t.Fatalf("%#x: the text is not what it was", f.start)
		}
	}
	t.Logf("%v, %d holes", tactics, islands)
	for _, want := range []Tactic{Breakpoint, Single, Window, Pun, ShortJump, Bypass} {
		if tactics[want] == 0 {
			t.Errorf("none of the patches is a %v", want)
		}
	}
	if islands == 0 {
		t.Error("none of the patches has an island")
	}
}

// endOf is where the instruction at an address ends.
func (f *Func) endOf(addr uint64) uint64 { return f.start + uint64(f.insts[f.index(addr)].end()) }
