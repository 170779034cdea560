package detour

import (
	"encoding/binary"
	"errors"
	"math/rand"
	"testing"
)

// find looks a site up as the net does.
func find(m memory, site uint64) uint64 {
	le := binary.LittleEndian
	mask := le.Uint64(m[tableMask:])
	f := uint64(hashFactor)
	i := site * f >> le.Uint64(m[tableShift:])
	for n := uint64(0); n <= mask; n, i = n+1, i+1 {
		s := m[tableSlots+slotSize*(i&mask):]
		switch le.Uint64(s) {
		case site:
			return le.Uint64(s[8:])
		case 0:
			return 0
		}
	}
	return 0
}

func TestTableAgainstMap(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	m := make(memory, TableSize(10))
	tab, err := NewTable(m, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]uint64{}
	for range 5000 {
		site, to := uint64(r.Intn(900)+1)*16, uint64(r.Int63())|1
		switch r.Intn(4) {
		case 0:
			tab.Remove(site)
			delete(want, site)
		case 1:
			tab.Retire(site)
			if _, ok := want[site]; ok {
				want[site] = site
			}
		default:
			if err := tab.Insert(site, to); err == nil {
				want[site] = to
			} else if !errors.Is(err, ErrTableFull) || tab.Len() < 768 {
				t.Fatalf("insert with %d in use: %v", tab.Len(), err)
			}
		}
		// A removed site that was retired is not resurrected by Retire.
		if _, ok := want[site]; !ok {
			tab.Remove(site)
		}
	}
	check := func(name string, m memory, tab *Table) {
		for site := uint64(16); site <= 900*16; site += 16 {
			if got := find(m, site); got != want[site] {
				t.Errorf("%s: %#x goes to %#x, want %#x", name, site, got, want[site])
			}
			if to, ok := tab.Lookup(site); to != want[site] || ok != (want[site] != 0) {
				t.Errorf("%s: Lookup(%#x) = %#x, %v; want %#x", name, site, to, ok, want[site])
			}
		}
	}
	check("as made", m, tab)
	again, err := OpenTable(m, m)
	if err != nil {
		t.Fatal(err)
	}
	check("opened", m, again)
}

// ordered fails a test whose writes could show a reader a key without value.
type ordered struct {
	t *testing.T
	m memory
}

func (o ordered) Put(off int, b []byte) {
	o.m.Put(off, b)
	if off >= tableSlots && (off-tableSlots)%slotSize == 0 && binary.LittleEndian.Uint64(o.m[off+8:]) == 0 {
		o.t.Errorf("key %#x shown before its value", b)
	}
	if len(b) != 8 || off%8 != 0 {
		o.t.Errorf("write of %d bytes at %d isn't one store", len(b), off)
	}
}

func TestTableOrder(t *testing.T) {
	tab, err := NewTable(ordered{t, make(memory, TableSize(6))}, 6)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(40) {
		if err := tab.Insert(i*3+1, i+9); err != nil {
			t.Fatal(err)
		}
		tab.Retire(i)
	}
}

func TestTableBad(t *testing.T) {
	good := make(memory, TableSize(4))
	tab, err := NewTable(good, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Insert(0, 5); !errors.Is(err, ErrTable) {
		t.Errorf("site 0: %v", err)
	}
	if err := tab.Insert(7, 5); err != nil {
		t.Fatal(err)
	}
	edit := func(off int, v uint64) memory {
		b := append(memory(nil), good...)
		binary.LittleEndian.PutUint64(b[off:], v)
		return b
	}
	slot7 := tableSlots + slotSize*tab.where[7]
	for name, b := range map[string]memory{
		"empty":      nil,
		"zeros":      make(memory, 1024),
		"short":      good[:len(good)-1],
		"mask":       edit(tableMask, 14),
		"huge":       edit(tableMask, ^uint64(0)),
		"shift":      edit(tableShift, 59),
		"other size": edit(tableMask, 31),
		"twice":      edit((slot7-tableSlots+slotSize)%(16*slotSize)+tableSlots, 7),
	} {
		if _, err := OpenTable(b, b); !errors.Is(err, ErrTable) {
			t.Errorf("%s: error %v, want ErrTable", name, err)
		}
	}
	for _, bits := range []int{-1, 3, 25} {
		if _, err := NewTable(good, bits); !errors.Is(err, ErrTable) {
			t.Errorf("%d bits: error %v", bits, err)
		}
	}
}

func FuzzOpenTable(f *testing.F) {
	m := make(memory, TableSize(4))
	tab, _ := NewTable(m, 4)
	_ = tab.Insert(0x1000, 0x2000)
	f.Add([]byte(m))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := append(memory(nil), b...)
		tab, err := OpenTable(m, b)
		if err != nil {
			return
		}
		for i, k := range tab.keys {
			if to, ok := tab.Lookup(k); k != 0 && ok && to != tab.vals[i] {
				t.Fatalf("Lookup(%#x) = %#x", k, to)
			}
		}
		_ = tab.Insert(0x1234, 0x5678)
	})
}

func TestActionRoundTrip(t *testing.T) {
	m := make(memory, NetDataSize+64)
	d := NetData{W: m, Off: 64}
	old := Action{Handler: 1 << 40, Flags: saSiginfo | saReset, Restorer: 3, Mask: 1<<63 | 2}
	d.SetAction(11, old)
	d.SetAction(16, Action{Handler: 9}) // out of range: nowhere
	d.SetLandings(NetLandings, 1, 1)
	if got := NetAction(m[64:], 11); got != old {
		t.Errorf("got %+v, want %+v", got, old)
	}
	for _, c := range []struct {
		old     Action
		restart bool
	}{{Action{}, true}, {Action{Handler: 1}, true}, {Action{Handler: 2}, false}, {Action{Handler: 2, Flags: saRestart}, true}} {
		a := NetLabels{Handler: 5, Restorer: 6}.Action(c.old)
		if a.Handler != 5 || a.Restorer != 6 || a.Mask != 0 || (a.Flags&saRestart != 0) != c.restart || a.Flags&saNodefer == 0 {
			t.Errorf("for %+v: %+v", c.old, a)
		}
	}
}
