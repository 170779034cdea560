package detour

import (
	"encoding/binary"
	"errors"
	"math/rand"
	"testing"
)

const tableAt = 0x7000_0000

// find looks a site up as the fallback handler does.
func find(m memory, site uint64) uint64 {
	le := binary.LittleEndian
	h := m[le.Uint64(m[tableForce:])-tableAt:]
	mask := le.Uint64(h[tableMask:])
	f := uint64(hashFactor)
	i := site * f >> le.Uint64(h[tableShift:])
	for n := uint64(0); n <= mask; n, i = n+1, i+1 {
		s := h[tableSlots+slotSize*(i&mask):]
		switch le.Uint64(s) {
		case site:
			return le.Uint64(s[8:])
		case 0:
			return 0
		}
	}
	return 0
}

// watched is a table's room that after each store looks whether who finds the
// table so, its tracer killed, finds all sites that are wanted.
type watched struct {
	t    *testing.T
	m    memory
	want map[uint64]uint64
	puts int
}

func (w *watched) Put(off int, b []byte) {
	w.m.Put(off, b)
	w.puts++
	if binary.LittleEndian.Uint64(w.m) == 0 {
		return // not made yet
	}
	for site, to := range w.want {
		if got := find(w.m, site); got != to {
			w.t.Fatalf("after store %d, at %d, %#x goes to %#x, want %#x", w.puts, off, site, got, to)
		}
	}
	if len(b) == 8 && off%8 != 0 {
		w.t.Errorf("the store at %d isn't one", off)
	}
}

func newWatched(t *testing.T, n int) (*watched, *Table) {
	t.Helper()
	w := &watched{t: t, m: make(memory, TableSize(n)), want: map[uint64]uint64{}}
	tab, err := NewTable(w, tableAt, len(w.m))
	if err != nil {
		t.Fatal(err)
	}
	return w, tab
}

// TestTableAgainstMap compares a table with a map, after each of its stores.
func TestTableAgainstMap(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	const sites = 300
	w, tab := newWatched(t, sites)
	for range 4000 {
		site, to := uint64(r.Intn(sites)+1)*16, uint64(r.Int63())|1
		was, there := w.want[site]
		delete(w.want, site) // either is right in between
		switch r.Intn(5) {
		case 0:
			tab.Remove(site)
			there = false
		case 1:
			tab.Retire(site)
			was = site
		case 2:
			tab.Forget(site)
			there = there && was != site
		default:
			if err := tab.Insert(site, to); err != nil {
				t.Fatalf("insert with %d there: %v", len(w.want), err)
			}
			was, there = to, true
		}
		if there {
			w.want[site] = was
		}
	}
	if tab.Len() != len(w.want) {
		t.Errorf("%d sites are there, want %d", tab.Len(), len(w.want))
	}
	for site := uint64(16); site <= sites*16; site += 16 {
		if got := find(w.m, site); got != w.want[site] {
			t.Errorf("%#x goes to %#x, want %#x", site, got, w.want[site])
		}
		if to, ok := tab.Lookup(site); to != w.want[site] || ok != (w.want[site] != 0) {
			t.Errorf("Lookup(%#x) = %#x, %v; want %#x", site, to, ok, w.want[site])
		}
	}
}

// TestTableComesBack puts more sites in and takes them out again than the room
// has slots, some of which stay.
func TestTableComesBack(t *testing.T) {
	w, tab := newWatched(t, 100)
	if cap := 2 << tab.most; cap > 2000 {
		t.Fatalf("room for %d slots", cap)
	}
	for i := range uint64(20_000) {
		site := 0x1000 + 64*i
		if err := tab.Insert(site, site+1); err != nil {
			t.Fatalf("site %d, %d stay: %v", i, len(w.want), err)
		}
		if i%400 == 0 {
			w.want[site] = site + 1
			continue
		}
		tab.Retire(site)
		if find(w.m, site) != site {
			t.Fatalf("site %#x isn't retired", site)
		}
		if i%2 == 0 {
			tab.Remove(site)
		} else {
			tab.Forget(site)
		}
	}
}

// TestTableFull fills a table with sites that are all needed: the error leaves
// it as it is, and one that goes makes room for others.
func TestTableFull(t *testing.T) {
	w, tab := newWatched(t, 100)
	var site uint64
	for {
		site += 64
		err := tab.Insert(site, site+1)
		if errors.Is(err, ErrTableFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		w.want[site] = site + 1
	}
	if len(w.want) < 100 || len(w.want) < 1<<tab.most/16*11 {
		t.Errorf("it took %d sites in 1<<%d slots", len(w.want), tab.most)
	}
	delete(w.want, 64)
	if err := tab.Insert(64, 7); err != nil || find(w.m, 64) != 7 {
		t.Errorf("a site that is there: %v, it goes to %#x", err, find(w.m, 64))
	}
	for gone := uint64(64); gone <= 64*60; gone += 64 {
		delete(w.want, gone)
		tab.Remove(gone)
	}
	if err := tab.Insert(site, site+1); err != nil {
		t.Errorf("with 60 sites gone: %v", err)
	}
}

// ordered fails a test whose writes could show a reader a key without value.
type ordered struct {
	t *testing.T
	m memory
}

func (o ordered) Put(off int, b []byte) {
	o.m.Put(off, b)
	if len(b) != 8 {
		return // a half that nobody reads is cleared
	}
	half := (len(o.m) - tableHalf) / 2
	at := (off - tableHalf) % half
	if off >= tableHalf && at >= tableSlots && (at-tableSlots)%slotSize == 0 && binary.LittleEndian.Uint64(o.m[off+8:]) == 0 {
		o.t.Errorf("key %#x shown before its value", b)
	}
}

func TestTableOrder(t *testing.T) {
	m := make(memory, TableSize(40))
	tab, err := NewTable(ordered{t, m}, tableAt, len(m))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(400) {
		if err := tab.Insert(i*3+1, i+9); err != nil {
			t.Fatal(err)
		}
		tab.Retire(i*3 + 1)
		tab.Forget((i-min(i, 20))*3 + 1)
	}
}

func TestTableBad(t *testing.T) {
	m := make(memory, TableSize(1))
	tab, err := NewTable(m, tableAt, len(m))
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Insert(0, 5); !errors.Is(err, ErrTable) {
		t.Errorf("site 0: %v", err)
	}
	if err := tab.Insert(5, 0); !errors.Is(err, ErrTable) {
		t.Errorf("a site that leads nowhere: %v", err)
	}
	for _, room := range []int{-1, 0, 64, len(m) - 64} {
		if _, err := NewTable(m, tableAt, room); !errors.Is(err, ErrTable) {
			t.Errorf("%d bytes: error %v", room, err)
		}
	}
}

func TestActionRoundTrip(t *testing.T) {
	m := make(memory, FallbackDataSize+64)
	d := FallbackData{W: m, Off: 64}
	old := Action{Handler: 1 << 40, Flags: saSiginfo | saReset, Restorer: 3, Mask: 1<<63 | 2}
	d.SetAction(11, old)
	d.SetAction(16, Action{Handler: 9}) // out of range: nowhere
	d.SetTrampolines(FallbackLandings, 1, 1)
	if got := FallbackAction(m[64:], 11); got != old {
		t.Errorf("got %+v, want %+v", got, old)
	}
	for _, c := range []struct {
		old     Action
		restart bool
	}{{Action{}, true}, {Action{Handler: 1}, true}, {Action{Handler: 2}, false}, {Action{Handler: 2, Flags: saRestart}, true}} {
		a := FallbackLabels{Handler: 5, Restorer: 6}.Action(c.old)
		if a.Handler != 5 || a.Restorer != 6 || a.Mask != 0 || (a.Flags&saRestart != 0) != c.restart || a.Flags&saNodefer == 0 {
			t.Errorf("for %+v: %+v", c.old, a)
		}
	}
}

// pages counts how often a table's stores go on in another page.
type pages struct {
	m     memory
	last  int
	turns int
}

func (p *pages) Put(off int, b []byte) {
	p.m.Put(off, b)
	if page := off / 4096; page != p.last {
		p.last = page
		p.turns++
	}
}

// TestTableTogether: sites that are entered together are there afterwards, each with what was inserted last, beside
// those that were there before; and the stores went through the pages a few times only.
func TestTableTogether(t *testing.T) {
	const before, sites = 1000, 3*togetherMost + 7
	w := &pages{m: make(memory, TableSize(2*sites))}
	tab, err := NewTable(w, tableAt, len(w.m))
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]uint64{}
	for i := range uint64(before) {
		want[16*i+16] = i + 1
		if err := tab.Insert(16*i+16, i+1); err != nil {
			t.Fatal(err)
		}
	}
	w.turns = 0
	err = tab.Together(sites, func() error {
		for i := range uint64(sites) {
			want[16*i+16] = 2*i + 5
			if err := tab.Insert(16*i+16, 2*i+5); err != nil {
				return err
			}
			if i%7 == 0 {
				want[16*i+16] = 3*i + 9
				if err := tab.Insert(16*i+16, 3*i+9); err != nil {
					return err
				}
			}
		}
		return tab.Insert(1<<40, 77)
	})
	want[1<<40] = 77
	if err != nil || tab.Len() != len(want) {
		t.Fatalf("%d sites are there, want %d: %v", tab.Len(), len(want), err)
	}
	if most := 10 * slotSize * len(tab.slots) / 4096; w.turns > most {
		t.Errorf("its stores went to another page %d times, want at most %d", w.turns, most)
	}
	for site, to := range want {
		if got := find(w.m, site); got != to {
			t.Fatalf("%#x goes to %#x, want %#x", site, got, to)
		}
	}
	if err := tab.Insert(1<<41, 1); err != nil || find(w.m, 1<<41) != 1 {
		t.Errorf("one that comes alone: %v, it goes to %#x", err, find(w.m, 1<<41))
	}
}

// TestTableTogetherFull enters more sites together than there is room for: those before the error are there. An error
// of who enters them is passed on.
func TestTableTogetherFull(t *testing.T) {
	w, tab := newWatched(t, 100)
	var last uint64
	err := tab.Together(1, func() error {
		for site := uint64(64); ; site += 64 {
			if !tab.Spare() && last == 0 {
				last = site - 64
			}
			if err := tab.Insert(site, site+1); err != nil {
				return err
			}
		}
	})
	most := 3 << tab.most / 4
	if !errors.Is(err, ErrTableFull) || tab.Len() != most {
		t.Errorf("with %d sites, of at most %d: %v", tab.Len(), most, err)
	}
	for site := uint64(64); site <= uint64(most)*64; site += 64 {
		if find(w.m, site) != site+1 {
			t.Errorf("%#x goes to %#x", site, find(w.m, site))
		}
	}
	if n := int(last / 64); n != 1<<tab.most/16*5 {
		t.Errorf("half of the room was taken with %d sites", n)
	}
	odd := errors.New("odd")
	if err := tab.Together(1, func() error { return odd }); err != odd {
		t.Errorf("the error is %v", err)
	}
}
