package debuginfo

import (
	"debug/dwarf"
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// Entries of range lists (DWARF 5, table 7.30).
const (
	rleEnd = iota
	rleBaseAddressx
	rleStartxEndx
	rleStartxLength
	rleOffsetPair
	rleBaseAddress
	rleStartEnd
	rleStartLength
)

var le = binary.LittleEndian

// handUnit writes a unit of a version with 8-byte addresses, whose header is 11
// bytes before version 5 and 12 from then on.
func handUnit(version int, entries ...byte) []byte {
	b := le.AppendUint16(nil, uint16(version))
	if version >= 5 {
		b = append(b, utCompile, 8, 0, 0, 0, 0)
	} else {
		b = append(b, 0, 0, 0, 0, 8)
	}
	b = append(b, entries...)
	return append(le.AppendUint32(nil, uint32(len(b))), b...)
}

func words(list ...uint64) (b []byte) {
	for _, w := range list {
		b = le.AppendUint64(b, w)
	}
	return b
}

// handLists makes a unit at 0x1000 with an attribute of its only entry, as a
// section offset of 0.
func handLists(t *testing.T, version int, attr byte, sec Sections) *Unit {
	t.Helper()
	f := byte(formSecOffset)
	if version < 4 {
		f = byte(formData4)
	}
	sec.Abbrev = []byte{1, 0x11, 0, 0x11, byte(formAddr), attr, f, 0, 0, 0}
	if version >= 5 {
		sec.Abbrev = []byte{1, 0x11, 0, 0x11, byte(formAddr), attr, f, 0x73, byte(formSecOffset), 0, 0, 0}
	}
	entry := append([]byte{1}, words(0x1000)...)
	sec.Info = handUnit(version, append(entry, 0, 0, 0, 0, 0, 0, 0, 0)...)
	d := New(sec, Options{})
	if len(d.Units()) != 1 || !d.Units()[0].root().ok {
		t.Fatalf("version %d: %d units", version, len(d.Units()))
	}
	return d.Units()[0]
}

// TestLocationLists5 has each kind of entry of version 5's lists.
func TestLocationLists5(t *testing.T) {
	addr := words(0x7000, 0x7010, 0x8000)
	for name, c := range map[string]struct {
		list []byte
		want []Location
	}{
		"offset_pair":      {[]byte{lleOffsetPair, 0x10, 0x80, 1, 1, 0x50, lleEnd}, []Location{{Range{0x1010, 0x1080}, []byte{0x50}}}},
		"base_address":     {append(append([]byte{lleBaseAddress}, words(0x9000)...), lleOffsetPair, 1, 2, 1, 0x51, lleEnd), []Location{{Range{0x9001, 0x9002}, []byte{0x51}}}},
		"base_addressx":    {[]byte{lleBaseAddressx, 2, lleOffsetPair, 1, 2, 1, 0x51, lleEnd}, []Location{{Range{0x8001, 0x8002}, []byte{0x51}}}},
		"startx_endx":      {[]byte{lleStartxEndx, 0, 1, 2, 0x77, 8, lleEnd}, []Location{{Range{0x7000, 0x7010}, []byte{0x77, 8}}}},
		"startx_length":    {[]byte{lleStartxLength, 1, 4, 1, 0x50, lleEnd}, []Location{{Range{0x7010, 0x7014}, []byte{0x50}}}},
		"start_end":        {append(append([]byte{lleStartEnd}, words(0x1, 0x5)...), 1, 0x50, lleEnd), []Location{{Range{1, 5}, []byte{0x50}}}},
		"start_length":     {append(append([]byte{lleStartLength}, words(0x100)...), 0x80, 1, 1, 0x50, lleEnd), []Location{{Range{0x100, 0x180}, []byte{0x50}}}},
		"default":          {[]byte{lleDefault, 1, 0x30, lleOffsetPair, 0, 4, 1, 0x50, lleEnd}, []Location{{Range{0x1000, 0x1004}, []byte{0x50}}, {Range{}, []byte{0x30}}}},
		"nowhere between":  {[]byte{lleOffsetPair, 0, 4, 0, lleEnd}, []Location{{Range{0x1000, 0x1004}, []byte{}}}},
		"of no code":       {[]byte{lleOffsetPair, 4, 4, 1, 0x50, lleOffsetPair, 8, 4, 1, 0x50, lleEnd}, nil},
		"an unknown kind":  {[]byte{lleOffsetPair, 0, 4, 1, 0x50, 0x20, lleOffsetPair, 4, 8, 1, 0x51, lleEnd}, []Location{{Range{0x1000, 0x1004}, []byte{0x50}}}},
		"no such index":    {[]byte{lleOffsetPair, 0, 4, 1, 0x50, lleStartxEndx, 0, 9, 1, 0x50, lleEnd}, []Location{{Range{0x1000, 0x1004}, []byte{0x50}}}},
		"no end":           {[]byte{lleOffsetPair, 0, 4, 1, 0x50}, []Location{{Range{0x1000, 0x1004}, []byte{0x50}}}},
		"past the end":     {[]byte{lleOffsetPair, 0, 4, 200, 0x50, lleEnd}, nil},
		"a huge index":     {append([]byte{lleStartxLength, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 4, 1, 0x50, lleEnd), nil},
		"nothing but ends": {[]byte{lleEnd, lleEnd}, nil},
	} {
		u := handLists(t, 5, byte(dwarf.AttrLocation), Sections{LocLists: c.list, Addr: addr})
		e := u.root().entry
		got := e.Locations(dwarf.AttrLocation)
		same := slices.EqualFunc(got, c.want, func(a, b Location) bool { return a.Range == b.Range && slices.Equal(a.Expr, b.Expr) })
		if !same {
			t.Errorf("%s: %x, want %x", name, got, c.want)
		}
		for n := range c.list { // cut anywhere: no more than there was
			u := handLists(t, 5, byte(dwarf.AttrLocation), Sections{LocLists: c.list[:n:n], Addr: addr})
			e := u.root().entry
			for _, l := range e.Locations(dwarf.AttrLocation) {
				if !slices.ContainsFunc(c.want, func(w Location) bool { return w.Range == l.Range }) {
					t.Errorf("%s, cut at %d: %x", name, n, l)
				}
			}
		}
	}
}

// TestLocationLists4 has the lists before version 5: pairs that count from the
// unit's base, or another.
func TestLocationLists4(t *testing.T) {
	list := slices.Concat(words(0x10, 0x20), []byte{1, 0, 0x50}, words(^uint64(0), 0x9000), words(1, 3), []byte{2, 0, 0x77, 8},
		words(5, 5), []byte{1, 0, 0x51}, words(0, 0), words(1, 2), []byte{1, 0, 0x52})
	for _, version := range []int{2, 3, 4} {
		u := handLists(t, version, byte(dwarf.AttrLocation), Sections{Loc: list})
		e := u.root().entry
		got := e.Locations(dwarf.AttrLocation)
		if len(got) != 2 || got[0].Range != (Range{0x1010, 0x1020}) || got[1].Range != (Range{0x9001, 0x9003}) || !slices.Equal(got[1].Expr, []byte{0x77, 8}) {
			t.Errorf("version %d: %x", version, got)
		}
		for pc, want := range map[uint64]byte{0x1010: 0x50, 0x101f: 0x50, 0x9002: 0x77, 0x1020: 0, 0x9003: 0, 0: 0} {
			expr, all, ok := e.LocationAt(dwarf.AttrLocation, pc)
			if ok != (want != 0) || ok && expr[0] != want || len(all) != 2 {
				t.Errorf("version %d at %#x: % x, %v of %d", version, pc, expr, ok, len(all))
			}
		}
		if _, _, ok := e.LocationAt(dwarf.AttrFrameBase, 0x1010); ok {
			t.Errorf("version %d: an attribute that isn't there has a location", version)
		}
	}
}

// TestRangeLists5 has each kind of entry of version 5's ranges.
func TestRangeLists5(t *testing.T) {
	addr := words(0x7000, 0x7010, 0x8000)
	for name, c := range map[string]struct {
		list []byte
		want []Range
	}{
		"offset_pair":        {[]byte{rleOffsetPair, 0x10, 0x80, 1, rleEnd}, []Range{{0x1010, 0x1080}}},
		"base_address":       {append(append([]byte{rleBaseAddress}, words(0x9000)...), rleOffsetPair, 1, 2, rleEnd), []Range{{0x9001, 0x9002}}},
		"base_addressx":      {[]byte{rleBaseAddressx, 2, rleOffsetPair, 1, 2, rleOffsetPair, 4, 6, rleEnd}, []Range{{0x8001, 0x8002}, {0x8004, 0x8006}}},
		"startx_endx":        {[]byte{rleStartxEndx, 0, 1, rleEnd}, []Range{{0x7000, 0x7010}}},
		"startx_length":      {[]byte{rleStartxLength, 1, 4, rleEnd}, []Range{{0x7010, 0x7014}}},
		"start_end":          {append(append([]byte{rleStartEnd}, words(0x100, 0x105)...), rleEnd), []Range{{0x100, 0x105}}},
		"start_length":       {append(append([]byte{rleStartLength}, words(0x100)...), 0x80, 1, rleEnd), []Range{{0x100, 0x180}}},
		"thrown away":        {append(append([]byte{rleStartLength}, words(0)...), 9, rleStartxLength, 0, 1, rleEnd), []Range{{0x7000, 0x7001}}},
		"thrown away by lld": {append(append([]byte{rleBaseAddress}, words(^uint64(0))...), rleOffsetPair, 1, 9, rleEnd), nil},
		"backwards":          {[]byte{rleOffsetPair, 9, 4, rleEnd}, nil},
		"an unknown kind":    {[]byte{rleOffsetPair, 1, 2, 0x30, rleOffsetPair, 3, 4, rleEnd}, []Range{{0x1001, 0x1002}}},
		"no such index":      {[]byte{rleOffsetPair, 1, 2, rleStartxEndx, 0, 77, rleEnd}, []Range{{0x1001, 0x1002}}},
		"no end":             {[]byte{rleOffsetPair, 1, 2}, []Range{{0x1001, 0x1002}}},
		"half an entry":      {[]byte{rleOffsetPair, 1, 0x82}, nil},
	} {
		u := handLists(t, 5, byte(dwarf.AttrRanges), Sections{RngLists: c.list, Addr: addr})
		if got := u.root().entry.Ranges(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %x, want %x", name, got, c.want)
		}
	}
	list := slices.Concat(words(0x10, 0x20), words(^uint64(0), 0x9000), words(1, 3), words(7, 4), words(0, 0), words(1, 2))
	for _, version := range []int{3, 4} {
		u := handLists(t, version, byte(dwarf.AttrRanges), Sections{Ranges: list})
		want := []Range{{0x1010, 0x1020}, {0x9001, 0x9003}}
		if got := u.root().entry.Ranges(); !slices.Equal(got, want) {
			t.Errorf("version %d: %x, want %x", version, got, want)
		}
		for _, pc := range []uint64{0x1010, 0x9002} {
			if u.data.UnitAt(pc) != u || u.data.UnitAt(pc+0x100) != nil {
				t.Errorf("version %d: the unit isn't found at %#x", version, pc)
			}
		}
	}
}

// TestCircles has entries that are each other's origin and specification,
// siblings that lead back, and types nested without end: each question ends.
func TestCircles(t *testing.T) {
	abbrev := []byte{
		1, 0x11, 1, 0, 0,
		2, 0x2e, 1, 0x31, byte(formRef4), 0x01, byte(formRef4), 0, 0, // a function: origin, sibling
		3, 0x34, 0, 0x47, byte(formRef4), 0, 0, // a variable: specification
		4, 0x13, 1, 0, 0, // a structure
		5, 0x3d, 0, 0x18, byte(formRefAddr), 0, 0, // an imported unit
		0,
	}
	ref := func(off uint32) []byte { return le.AppendUint32(nil, off) }
	// The first entry is at 11, the function at 12 and behind its 9 bytes its
	// variable at 21.
	entries := slices.Concat([]byte{1, 2}, ref(12), ref(12), []byte{3}, ref(21), []byte{5}, ref(0), []byte{0}, slices.Repeat([]byte{4}, 3000))
	start := time.Now()
	for _, indexFrom := range []int{0, 1} {
		d := New(Sections{Info: handUnit(4, entries...), Abbrev: abbrev}, Options{IndexFrom: indexFrom})
		if len(d.Units()) != 1 {
			t.Fatalf("%d units", len(d.Units()))
		}
		u := d.Units()[0]
		seen, deepest := 0, 0
		u.walk(func(e *Entry, depth int) bool {
			seen, deepest = seen+1, max(deepest, depth)
			if n := e.Name(); n != "" {
				t.Errorf("%#x has the name %q", e.off, n)
			}
			e.QualifiedName()
			_, _, found := e.Chased(dwarf.AttrType)
			if found {
				t.Errorf("%#x has a type", e.off)
			}
			return true
		})
		if seen < 5 || deepest > maxDepth {
			t.Errorf("%d entries were seen, up to %d deep", seen, deepest)
		}
		for _, off := range []uint64{11, 12, 21, 500, uint64(len(entries)), ^uint64(0)} {
			if p := u.path(off); len(p) > maxDepth+1 {
				t.Errorf("the path to %#x has %d entries", off, len(p))
			}
		}
		if list := d.FindFunctions("f"); len(list) != 0 {
			t.Errorf("%d functions are found", len(list))
		}
		if _, ok := d.FindType("t", nil); ok {
			t.Error("a type is found")
		}
		if s := d.Scopes(0x1000); s != nil {
			t.Errorf("%d scopes", len(s))
		}
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestUnitsCutShort cuts a unit at each byte and gives its header each value
// of each byte: what is read of it lies within it.
func TestUnitsCutShort(t *testing.T) {
	abbrev := []byte{1, 0x11, 0, 0x03, byte(formString), 0x11, byte(formAddr), 0, 0, 0}
	for _, version := range []int{2, 3, 4, 5} {
		whole := handUnit(version, append([]byte{1, 'a', '.', 'c', 0}, words(0x1000)...)...)
		d := New(Sections{Info: whole, Abbrev: abbrev}, Options{})
		if len(d.Units()) != 1 || d.Units()[0].Name() != "a.c" || d.Units()[0].root().low != 0x1000 {
			t.Fatalf("version %d: %d units", version, len(d.Units()))
		}
		for n := range whole {
			if u := New(Sections{Info: whole[:n:n], Abbrev: abbrev}, Options{}).Units(); len(u) != 0 {
				t.Errorf("version %d: %d of %d bytes are a unit", version, n, len(whole))
			}
		}
		for at := range 12 {
			for v := range 256 {
				b := slices.Clone(whole)
				b[at] = byte(v)
				for _, u := range New(Sections{Info: b, Abbrev: abbrev}, Options{}).Units() {
					if u.end > uint64(len(b)) || u.first > u.end || u.version < 2 || u.version > 5 {
						t.Errorf("version %d, byte %d is %#x: %+v", version, at, v, u)
					}
					u.Name()
					u.Lines()
				}
			}
		}
	}
}

// FuzzLists reads arbitrary location and range lists of all versions: what is
// in them is never backwards.
func FuzzLists(f *testing.F) {
	f.Add([]byte{lleOffsetPair, 0x10, 0x80, 1, 1, 0x50, lleDefault, 1, 0x30, lleEnd}, uint8(5))
	f.Add(slices.Concat(words(0x10, 0x20), []byte{1, 0, 0x50}, words(^uint64(0), 0x9000), words(0, 0)), uint8(4))
	f.Add([]byte{rleStartxEndx, 0, 1, rleEnd}, uint8(5))
	f.Fuzz(func(t *testing.T, list []byte, version uint8) {
		sec := Sections{Loc: list, LocLists: list, Ranges: list, RngLists: list, Addr: words(0x7000, 0x7010)}
		u := handLists(t, 2+int(version%4), byte(dwarf.AttrRanges), sec)
		e := u.root().entry
		for _, r := range e.Ranges() {
			if r.Low >= r.High {
				t.Errorf("the range %x", r)
			}
		}
		for _, l := range e.Locations(dwarf.AttrRanges) {
			if !l.Everywhere() && l.Low >= l.High || len(l.Expr) > len(list) {
				t.Errorf("the location %x", l)
			}
		}
	})
}
