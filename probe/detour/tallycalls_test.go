package detour

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// tallying lays functions out whose calls are noted, pass on and leave by a tally's pieces.
// All of them are counted, and may return by any return.
type tallying struct {
	*sharing
	tally *Tally
	own   bool // detours count and look by themselves
	bare  int  // of the functions with numbers up to this one, detours know no tally
}

func newTallying(t *testing.T, rseq int32, own bool) *tallying {
	t.Helper()
	texts := map[uint32]string{}
	for id := uint32(1); id < 60; id++ {
		texts[id] = "r f"
	}
	g := &tallying{sharing: newSharing(t, 16<<20, texts), own: own}
	g.rseq = rseq
	g.k.Anywhere = true
	var err error
	if g.tally, err = BuildTally(g.code, g.params(), &g.k); err != nil {
		t.Fatal(err)
	}
	copy(g.at(g.code), g.tally.Code)
	g.code += uint64(len(g.tally.Code)+63) &^ 63
	return g
}

func (g *tallying) params() *Params {
	p := g.sharing.params()
	p.Tally, p.TallyOff, p.OwnCounts = g.tally, g.l.TallyOff(), g.own
	return p
}

// paramsOf are the parameters of a function's detours.
func (g *tallying) paramsOf(id uint32) *Params {
	p := g.params()
	if int(id) <= g.bare {
		p.Tally, p.OwnCounts = nil, false
	}
	return p
}

func (g *tallying) probe(id uint32) Probe {
	return Probe{ID: id, Program: g.progs[id], CountOnly: true, Anywhere: true}
}

// lay lays a function out. What happens at its entry is noted, nothing, or arrives.
func (g *tallying) lay(id uint32, at string, body func(c *asm.Code, self asm.Label, leave leaver)) (start uint64) {
	g.t.Helper()
	start = g.code
	const most = 60 // bytes of a detour that leaves all to the tally
	short := func(d *Detour, err error) []byte {
		if err != nil {
			g.t.Fatal(err)
		}
		if len(d.Code) > most && int(id) > g.bare {
			g.t.Errorf("a detour of %d bytes: not by the tally", len(d.Code))
		}
		return d.Code
	}
	looks := short
	if g.own {
		looks = func(d *Detour, err error) []byte {
			if err != nil {
				g.t.Fatal(err)
			}
			if len(d.Code) <= most {
				g.t.Errorf("a detour of %d bytes: it doesn't look by itself", len(d.Code))
			}
			return d.Code
		}
	}
	g.function(func(c *asm.Code, self asm.Label) {
		body(c, self, func() {
			leaves := func(c *asm.Code) error {
				c.Raw(looks(BuildLeaves(c.Here(), g.paramsOf(id), []Probe{g.probe(id)}, g.k, 0, func(c *asm.Code) error { c.Ret(); return nil }))...)
				return nil
			}
			if at != "alone" {
				_ = leaves(c)
				return
			}
			own := []Probe{g.probe(id)}
			if p := g.paramsOf(id); p.CountsReturns(own, own, g.k) {
				d, err := BuildReturns(c.Here(), p, own, own, g.k, func(c *asm.Code) error { c.Ret(); return nil })
				c.Raw(looks(d, err)...)
				return
			}
			d, err := BuildExit(c.Here(), g.paramsOf(id), []Probe{g.probe(id)}, nil, leaves) // each of its returns is its own, too
			if err != nil {
				g.t.Fatal(err)
			}
			c.Raw(d.Code...)
		})
	}, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		switch at {
		case "noted":
			return short(BuildEnter(base, g.paramsOf(id), nil, g.probe(id), g.k, tail)), nil
		case "alone":
			return looks(BuildPassing(base, g.paramsOf(id), g.k, Arrives, 0, true, tail)), nil
		}
		c := asm.New(base)
		if err := tail(c); err != nil {
			return nil, err
		}
		return c.Bytes()
	})
	return start
}

// onward jumps to a function; the flags say that the jump is taken. Where the entry didn't
// note the call the jump does.
func (g *tallying) onward(id uint32, noted, joined bool, to uint64) func(*asm.Code, asm.Label, leaver) {
	return func(c *asm.Code, _ asm.Label, _ leaver) {
		c.Test(asm.W64, asm.SP, asm.SP)
		tail := func(c *asm.Code) error { c.JmpAddr(to); return nil }
		k := g.k
		k.Joined = joined
		d, err := BuildPassing(c.Here(), g.paramsOf(id), k, PassesOn, asm.NE, false, tail)
		if !noted {
			d, err = BuildJump(c.Here(), g.paramsOf(id), []Probe{g.probe(id)}, k, asm.NE, false, tail)
		}
		if err != nil {
			g.t.Fatal(err)
		}
		c.Raw(d.Code...)
	}
}

// A function that is counted at its returns, one that is noted at its jump to it, one that
// is noted at its entry and jumps to that, and one that is noted at its jump there: each
// call is counted for each of them, once, on eight threads and in signal handlers.
func TestTallyCalls(t *testing.T) {
	for _, way := range []struct {
		rseq int32
		own  bool
		bare int
	}{{}, {rseq: rseqArea(t)}, {rseqArea(t), true, 0}, {rseqArea(t), false, 21}, {rseqArea(t), true, 23}, {rseqArea(t), true, 28}, {0, false, 44}} {
		for _, how := range []string{"plain", "signal"} {
			for _, off := range []uint32{0, 21, 23, 28, 44} {
				t.Run(fmt.Sprintf("%s, %+v, %d is off", how, way, off), func(t *testing.T) {
					const threads, n = 8, 600
					g := newTallying(t, way.rseq, way.own)
					g.bare = way.bare
					inner := g.lay(21, "alone", shallow)
					third := g.lay(23, "alone", g.onward(23, false, true, inner))
					second := g.lay(28, "noted", g.onward(28, true, false, third))
					g.lay(44, "", g.onward(44, false, false, second))
					if off != 0 {
						binary.LittleEndian.PutUint32(g.at(g.params().Flags+4*uint64(off)), 0)
					}
					sums := g.run(how, threads, n, func(*ring.Record) error { return nil })
					want := map[uint32]uint64{21: 0, 23: 3 * n * threads, 28: 2 * n * threads, 44: n * threads}
					sum := uint64(0)
					for i := range uint64(n) {
						want[21] += 4 * threads * (i&15 + 1)
						sum += 4 * (i&^15 + 2*(i&15))
					}
					for _, s := range sums[:threads] {
						if s != sum {
							t.Errorf("sum %d, want %d", s, sum)
						}
					}
					if how == "signal" {
						want[21] += 4 * 6 * sums[threads]
						for i, id := range []uint32{44, 28, 23} {
							want[id] += uint64(i+1) * sums[threads]
						}
					}
					if off != 0 {
						want[off] = 0
					}
					for id, n := range want {
						if c := g.counts(id); c.Hits != n || c.Missed != 0 {
							t.Errorf("probe %d: %+v, want %d", id, c, n)
						}
					}
					if u := g.inUse(g.k); u != 0 {
						t.Errorf("%d calls are left", u)
					}
				})
			}
		}
	}
}

// Calls that longjmp leaves are nobody's returns for a tally either, also where the next
// call with their slot is of the function that they had jumped to.
func TestTallyCallsLongjmp(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprint(own), func(t *testing.T) { tallyCallsLongjmp(t, own) })
	}
}

func tallyCallsLongjmp(t *testing.T, own bool) {
	const n = 3000
	g := newTallying(t, rseqArea(t), own)
	at := g.lay(5, "alone", hooked)
	g.lay(6, "", func(c *asm.Code, self asm.Label, leave leaver) {
		c.Push(asm.DI)
		c.MovImm(asm.AX, hookAt)
		c.CallMem(asm.At(asm.AX, 0))
		c.Pop(asm.DI)
		g.onward(6, false, false, at)(c, self, leave)
	})
	g.addrs = []string{g.addrs[1], g.addrs[0], g.addrs[1]}
	g.run("jump", 1, n, func(*ring.Record) error { return nil })
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
	for id, n := range map[uint32]uint64{5: five, 6: six} {
		if c := g.counts(id); c.Hits != n || c.Missed != 0 {
			t.Errorf("probe %d: %+v, want %d hits", id, c, n)
		}
	}
	if u := g.inUse(g.k); u > 1 {
		t.Errorf("%d calls are left", u)
	}
}

// More functions jump to one another than a row has room for: each call is counted for each of them, once.
func TestTallyCallsChain(t *testing.T) {
	for _, own := range []bool{false, true} {
		for _, bare := range []int{0, 10} {
			t.Run(fmt.Sprintf("%v, %d without a tally", own, bare), func(t *testing.T) {
				const threads, n, last, first = 4, 500, 10, 10 + moreOwners + 4
				g := newTallying(t, rseqArea(t), own)
				g.bare = bare
				at := g.lay(last, "alone", shallow)
				for id := uint32(last + 1); id <= first; id++ {
					at = g.lay(id, "alone", g.onward(id, false, id < first, at))
				}
				g.run("plain", threads, n, func(*ring.Record) error { return nil })
				for id := uint32(last + 1); id <= first; id++ { // each of them is called, too
					if c, want := g.counts(id), uint64(threads*n*(first-id+1)); c.Hits != want || c.Missed != 0 {
						t.Errorf("probe %d: %+v, want %d hits", id, c, want)
					}
				}
				if u := g.inUse(g.k); u != 0 {
					t.Errorf("%d calls are left", u)
				}
			})
		}
	}
}

// TestTallyCallsMissed: more calls at one place than the table follows are missed.
func TestTallyCallsMissed(t *testing.T) {
	const n = 400
	g := newTallying(t, 0, false)
	g.lay(6, "noted", recursing)
	g.run("plain", 1, n, func(*ring.Record) error { return nil })
	var calls uint64
	for i := range uint64(n) {
		calls += i + 1
	}
	if c := g.counts(6); c.Hits+c.Missed != calls || c.Missed == 0 || c.Hits < calls/2 {
		t.Errorf("%+v of %d calls", c, calls)
	}
	if u := g.inUse(g.k); u != 0 {
		t.Errorf("%d calls are left", u)
	}
}

// tallied puts a table in common into the machine, and a tally with pieces for it. own says that detours with the parameters
// count and look by themselves.
func (m *machine) tallied(own bool) (k Calls, p Params) {
	m.t.Helper()
	k, err := NewCommonCalls(poolAt, 0, 256)
	if err != nil {
		m.t.Fatal(err)
	}
	k.Anywhere = true
	p = *m.params()
	if p.Tally, err = BuildTally(m.code, &p, &k); err != nil {
		m.t.Fatal(err)
	}
	p.OwnCounts = own
	copy(m.at(k.Addr), k.Head(m.texts))
	copy(m.at(m.code), p.Tally.Code)
	m.code = (m.code + uint64(len(p.Tally.Code)) + 63) &^ 63
	return k, p
}

// TestTallyCallsUnwind: at each instruction of the pieces, and of the detours that call
// them, the program's registers can be told, and none of them changes.
func TestTallyCallsUnwind(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprint(own), func(t *testing.T) { tallyCallsUnwind(t, own) })
	}
}

func tallyCallsUnwind(t *testing.T, own bool) {
	m := newMachine(t, 1, 64<<10, shared{logAt, 0, 4 << 20, protRW})
	m.rseq = rseqArea(t)
	k, p := m.tallied(own)
	s := p.Tally
	probes := []Probe{{ID: 7, Program: must(t, "r f"), CountOnly: true, Anywhere: true}}
	more := append(probes, Probe{ID: 900, Program: must(t, "r g"), CountOnly: true, Anywhere: true})
	regs := fetch.Regs{Flags: 0x202}
	for i := range regs.GPR {
		regs.GPR[i] = uint64(i) * 0x1111_1111_1111
	}
	regs.GPR[fetch.SP] = stackAt + stackSize - 4096
	const back = codeAt + 0x1234
	itself := map[string]bool{"arrive": true, "leave": true, "leave nothing": true, "own alone": true, "own and one": true} // where detours look by themselves
	above := map[string]uint64{}                                                                                            // the slot, by name of a landing
	var name string
	landing := func(l Landing, up uint64) func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
		l.Tally = s
		return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			above[name] = up
			if l.Return == 0 {
				l.Return = back
			}
			return Build(base, &p, []Probe{{ID: 1, Program: must(t, "p f"), Landing: &l}}, tail)
		}
	}
	// With the third probe's hit one is taken. While a row is taken out, one more than there are probes.
	ownTook := map[string][]int{"own alone": {0, 1}, "own and one": {0, 1, 3, 1}, "own and two": {0, 1}}
	third := []Probe{{ID: 40, Program: must(t, "r h"), CountOnly: true, Anywhere: true}}
	together := func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
		return BuildReturns(base, &p, third, probes, k, tail)
	}
	for _, tt := range []struct {
		name string
		make func(base uint64, tail func(*asm.Code) error) (*Detour, error)
		rows int // that are in use behind it
		hits uint64
	}{
		{"enter", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildEnter(base, &p, nil, probes[0], k, tail)
		}, 1, 0},
		{"enter anew", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildEnter(base, &p, nil, probes[0], k, tail)
		}, 1, 0},
		{"pass", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildPassing(base, &p, k, PassesOn, 0, true, tail)
		}, 1, 0},
		{"arrive", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildPassing(base, &p, k, Arrives, 0, true, tail)
		}, 1, 0},
		{"leave", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildLeaves(base, &p, probes, k, 0, tail)
		}, 0, 1},
		{"jump", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildJump(base, &p, more, k, 0, true, tail)
		}, 1, 0},
		{"leave twice", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildLeaves(base, &p, more, k, 0, tail)
		}, 0, 2},
		{"jump to land", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildJump(base, &p, probes[:1], k, 0, true, tail)
		}, 1, 0},
		{"land elsewhere", landing(Landing{Return: codeAt + 0x4321}, 8), 1, 0},
		{"land wide elsewhere", landing(Landing{Return: codeAt + 0x4321, Wide: true}, 40), 1, 0},
		{"land too high", landing(Landing{}, 16), 1, 0},
		{"land", landing(Landing{}, 8), 0, 1},
		{"land again", landing(Landing{}, 8), 0, 0},
		{"enter to be left", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildEnter(base, &p, nil, probes[0], k, tail)
		}, 1, 0},
		{"land left", landing(Landing{}, 8), 0, 0},
		{"enter to land wide", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildEnter(base, &p, nil, probes[0], k, tail)
		}, 1, 0},
		{"land wide, too high", landing(Landing{Wide: true}, 8*(wideSlots+1)), 1, 0},
		{"land wide, too low", landing(Landing{Wide: true}, 0), 1, 0},
		{"land wide", landing(Landing{Wide: true}, 8*wideSlots), 0, 1},
		{"enter to be over", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildEnter(base, &p, nil, probes[0], k, tail)
		}, 1, 0},
		{"over elsewhere", landing(Landing{Return: codeAt + 0x4321, Over: true}, 8), 1, 0},
		{"over", landing(Landing{Over: true}, 8), 0, 0},
		{"enter to be over wide", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildEnter(base, &p, nil, probes[0], k, tail)
		}, 1, 0},
		{"over wide", landing(Landing{Over: true, Wide: true}, 24), 0, 0},
		{"leave nothing", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildLeaves(base, &p, more, k, 0, tail)
		}, 0, 0},
		{"own alone", together, 0, 1},
		{"enter for own", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildEnter(base, &p, nil, probes[0], k, tail)
		}, 1, 0},
		{"own and one", together, 0, 2},
		{"jump for own", func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildJump(base, &p, more, k, 0, true, tail)
		}, 1, 0},
		{"own and two", together, 0, 3},
	} {
		if !own && strings.HasPrefix(tt.name, "own ") {
			continue
		}
		name = tt.name
		binary.LittleEndian.PutUint64(m.at(regs.GPR[fetch.SP]), back) // frames of landings lie over it
		d, err := m.place(tt.make)
		if err != nil {
			t.Fatal(err)
		}
		hits := func() (n uint64) {
			for _, x := range slices.Concat(more, third) {
				n += m.counter(x.ID, ring.CounterHits) + m.counter(x.ID, ring.CounterHits+ring.CounterSeq)
			}
			return n
		}
		before := hits()
		was := regs
		regs.GPR[fetch.SP] += above[name]
		regs.Flags = 0x202 | 0x8d5 | 0x100 // all arithmetic flags; step
		m.setCase(0, d.Base, &regs, &fetch.Vector{})
		inside, outside := 0, 0
		var took []int
		for _, st := range m.step(&Detour{Base: s.Base, Code: make([]byte, d.Base+uint64(len(d.Code))-s.Base)}) {
			now := st.regs
			in, err := s.Caller(&now, st.mem)
			if err != nil {
				t.Fatal(err)
			}
			if in {
				inside++
			} else {
				outside++
			}
			n, in, err := d.Undo(&now, st.mem)
			if err != nil {
				t.Fatal(err)
			}
			if in {
				took = append(took, n)
			}
			if now.GPR != regs.GPR || (now.Flags^regs.Flags)&0xcd5 != 0 {
				t.Errorf("%s at +%#x: registers %x, flags %#x; want %x, %#x", tt.name, st.regs.IP-s.Base, now.GPR, now.Flags, regs.GPR, regs.Flags)
			}
		}
		if want := ownTook[tt.name]; want != nil && !slices.Equal(slices.Compact(took), want) {
			t.Errorf("%s: hits that were taken, from instruction to instruction: %v, want %v", tt.name, slices.Compact(took), want)
		}
		regs = was
		if n := len(k.Used(m.at(k.Addr)[:k.Size()])); (inside == 0) != (own && itself[tt.name]) || inside+outside < 20 || inside != 0 && inside < 20 || n != tt.rows || hits()-before != tt.hits {
			t.Errorf("%s: %d instructions in the tally, %d outside, %d rows in use, %d hits; want %d, %d", tt.name, inside, outside, n, hits()-before, tt.rows, tt.hits)
		}
	}
}
