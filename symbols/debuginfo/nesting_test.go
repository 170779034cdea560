package debuginfo

import (
	"slices"
	"testing"
)

// TestPath compares the way down to each entry with the entries that a walk of
// the unit is in.
func TestPath(t *testing.T) {
	for name, path := range programs(t) {
		t.Run(name, func(t *testing.T) {
			d := New(sectionsOf(t, path), Options{})
			for _, u := range d.Units()[:min(len(d.Units()), 40)] {
				var in []uint64
				n := 0
				u.walk(func(e *Entry, depth int) bool {
					in = append(in[:depth], e.off)
					if n++; n%7 != 0 && depth > 1 {
						return true // the rest is like it
					}
					var got []uint64
					for _, p := range u.path(e.off) {
						got = append(got, p.off)
					}
					if !slices.Equal(got, in) {
						t.Fatalf("%#x is in %#x, not %#x", e.off, in, got)
					}
					return true
				})
			}
		})
	}
}

// TestPathReadsOnce: the way to an entry costs the entries on it, however many of
// the unit are before it.
func TestPathReadsOnce(t *testing.T) {
	const n = 3000
	// 1: the unit, 2: a namespace, 3: a function; neither has values.
	abbrev := []byte{1, 0x11, 1, 0, 0, 2, 0x39, 1, 0, 0, 3, 0x2e, 0, 0, 0, 0}
	entries := []byte{1}
	for range n {
		entries = append(entries, 2, 3, 0)
	}
	u := New(Sections{Info: handUnit(4, append(entries, 0)...), Abbrev: abbrev}, Options{}).Units()[0]
	last := u.first + 3*n - 1
	if got := u.path(last); len(got) != 3 || got[1].off != last-1 || got[2].off != last {
		t.Fatalf("the last function is in %v", got)
	}
	first := testing.AllocsPerRun(10, func() { u.path(u.first + 2) })
	if far := testing.AllocsPerRun(10, func() { u.path(last) }); far > first {
		t.Errorf("the first function's path takes %v allocations, the last one's %v", first, far)
	}
	before := u.nesting()
	if u.path(last); u.nesting() != before || len(before.list) != n+1 {
		t.Errorf("%d entries with children are noted, of %d", len(before.list), n+1)
	}
}

// TestPathOfDamage: behind damage no path is known, and before it every one.
func TestPathOfDamage(t *testing.T) {
	abbrev := []byte{1, 0x11, 1, 0, 0, 2, 0x39, 1, 0, 0, 0}
	for name, c := range map[string]struct {
		entries []byte
		damage  int // the first entry that has no path, behind the unit's
	}{
		"deep":    {slices.Repeat([]byte{2}, 2000), maxDepth - 2},
		"unknown": {[]byte{2, 0, 2, 2, 99, 2, 2}, 3},
		"cut":     {[]byte{2, 2, 2}, 3},
	} {
		u := New(Sections{Info: handUnit(4, append([]byte{1}, c.entries...)...), Abbrev: abbrev}, Options{}).Units()[0]
		for i := range c.damage {
			if got := u.path(u.first + 1 + uint64(i)); c.entries[i] != 0 && len(got) < 2 {
				t.Errorf("%s: entry %d has the path %v", name, i, got)
			}
		}
		for i := c.damage + 1; i < len(c.entries); i++ {
			if got := u.path(u.first + 1 + uint64(i)); got != nil {
				t.Errorf("%s: entry %d behind the damage has the path %v", name, i, got)
			}
		}
	}
}
