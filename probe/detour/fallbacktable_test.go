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
