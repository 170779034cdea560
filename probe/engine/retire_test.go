package engine

import (
	"testing"

	"kprobe/symbols"
)

// TestRetirement takes what was taken out through its states: it is given back once, when
// nobody is in it and the reader has given its records.
func TestRetirement(t *testing.T) {
	var x retirement
	x.add(&retired{}) // a change that took nothing out
	site := &retired{sites: []*Site{{Addr: 1}}}
	probe := &retired{probes: []*Placed{{}}, at: 10}
	x.add(site)
	x.add(probe)
	if x.Len() != 2 || x.vacated() {
		t.Fatalf("%d are retired, vacated %v", x.Len(), x.vacated())
	}
	given := uint64(10)
	take := func(want ...*retired) (waiting int) {
		t.Helper()
		empty, waiting := x.takeEmpty(func() uint64 { return given })
		if len(empty) != len(want) {
			t.Fatalf("%d are given back, want %d", len(empty), len(want))
		}
		for i, r := range empty {
			if r != want[i] {
				t.Errorf("another one is given back than what is empty")
			}
		}
		return waiting
	}
	if n := take(); n != 2 {
		t.Errorf("%d wait before threads were looked at", n)
	}
	site.quiet, site.vacated = true, true
	probe.quiet = true
	if n := take(site); n != 1 {
		t.Errorf("%d wait while records are to be read", n)
	}
	given = 11
	if n := take(); n != 0 || x.vacated() || x.Len() != 1 {
		t.Errorf("%d wait while a call is under way; vacated %v, %d left", n, x.vacated(), x.Len())
	}
	probe.vacated = true
	if !x.vacated() {
		t.Error("a thread is in what it has left")
	}
	if n := take(probe); n != 0 || x.Len() != 0 {
		t.Errorf("%d wait, %d left at the end", n, x.Len())
	}
	take()
}

// TestBirthPlaces asks for the places of births by addresses at their system calls, behind
// them and beside them; what a file tells is found out once.
func TestBirthPlaces(t *testing.T) {
	var b births
	asked := 0
	for range 2 {
		if _, err := b.of(nil, func() (birthsIn, error) { asked++; return birthsIn{}, nil }); err != nil || asked != 1 {
			t.Fatalf("asked %d times: %v", asked, err)
		}
	}
	m := &symbols.Module{}
	one := bornAt{module: m}
	one.At, one.Behind = 0x10, 0x12
	b.places, b.trusted = []bornAt{one}, true
	for at, want := range map[symbols.Vaddr]bool{0xf: false, 0x10: true, 0x11: false, 0x12: true} {
		if got := b.at(m.Addr(at)) != nil; got != want {
			t.Errorf("a place at %#x: %v", uint64(at), got)
		}
	}
	if b.undo(); b.trusted || b.at(m.Addr(0x10)) != nil {
		t.Error("jumps that were taken out still count tasks")
	}
}
