package debuginfo

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"encoding/binary"
	"iter"
	"slices"
	"strings"
)

// FindFunctions finds the entries of functions by name: DW_AT_name alone
// (f), as C's; with namespaces and classes (ns::C::f), as C++'s and Rust's;
// or the linkage name. Declarations are left out; the abstract entry of an
// inlined function is in. Units that can't hold the name are not read.
func (d *Data) FindFunctions(name string) []Entry {
	if name == "" {
		return nil
	}
	want := name
	if i := strings.IndexByte(want, '('); i > 0 && !strings.HasPrefix(want, "operator") {
		want = want[:i] // parameters
	}
	last := want
	if i := strings.LastIndex(want, "::"); i >= 0 && i+2 < len(want) {
		last = want[i+2:]
	}
	var out []Entry
	var f, link once[nameFilter]
	for u := range d.unitsWith(last, want, name) {
		full := u.full()
		if full.data != d {
			sub, sublink := full.data.newNameFilter(last), full.data.newNameFilter(name)
			out = full.findFunctions(out, want, last, name, &sub, &sublink)
			continue
		}
		ff := f.get(func() nameFilter { return d.filter(last) })
		lf := link.get(func() nameFilter { return d.filter(name) })
		out = full.findFunctions(out, want, last, name, &ff, &lf)
	}
	return out
}

// unitsWith are the units that may have an entry with one of the names, in
// order. Each is let go when it was looked at.
func (d *Data) unitsWith(names ...string) iter.Seq[*Unit] {
	return func(yield func(*Unit) bool) {
		units := d.Units()
		visit := func(u *Unit) bool {
			more := yield(u)
			if d.release != nil {
				d.release(u.off, u.end)
			}
			return more
		}
		x := d.index()
		var some []uint32
		for _, n := range names {
			if x == nil {
				break
			}
			list, every := x.lookup(n)
			if every {
				x = nil
			}
			some = append(some, list...)
		}
		if x == nil {
			for _, u := range units {
				if !visit(u) {
					return
				}
			}
			return
		}
		slices.Sort(some)
		for _, i := range slices.Compact(some) {
			if int(i) < len(units) && !visit(units[i]) {
				return
			}
		}
	}
}

func (u *Unit) findFunctions(out []Entry, want, last, name string, f, link *nameFilter) []Entry {
	named, linked := f.in(u), link.in(u)
	if !named && !linked {
		return out
	}
	t := u.root()
	var hits []uint64
	u.names(u.planner(), func(s *spot) {
		if s.tag != dwarf.TagSubprogram || s.link && !linked {
			return
		}
		if s.link && u.says(t, s.v, name) || !s.link && (u.says(t, s.v, last) || want != last && u.says(t, s.v, want)) {
			hits = append(hits, s.off)
		}
	})
	for i, off := range hits {
		if i > 0 && hits[i-1] == off {
			continue
		}
		e, _, ok := u.entryAt(off)
		if !ok {
			continue
		}
		if last == want || e.Str(dwarf.AttrName) == want || linkageName(&e) == name || squeeze(e.QualifiedName()) == squeeze(want) {
			out = append(out, e)
		}
	}
	return out
}

// says reports whether a string is text.
func (u *Unit) says(t *unitTop, v Val, text string) bool {
	if v.form != formStrp {
		return string(u.stringOf(t, v)) == text
	}
	sec := u.data.sec.Str
	n := uint64(len(text))
	return v.U < uint64(len(sec)) && n < uint64(len(sec))-v.U && sec[v.U+n] == 0 && string(sec[v.U:v.U+n]) == text
}

func squeeze(s string) string { return strings.ReplaceAll(s, " ", "") }

// attrMIPSLinkageName is what linkage names were called before version 4.
const attrMIPSLinkageName dwarf.Attr = 0x2007

func linkageName(e *Entry) string {
	if s := e.Str(dwarf.AttrLinkageName); s != "" {
		return s
	}
	return e.Str(attrMIPSLinkageName)
}

// LinkageName is the mangled name of a function or variable, or "".
func (e *Entry) LinkageName() string {
	return chase(*e, func(e *Entry) (string, bool) {
		s := linkageName(e)
		return s, s != ""
	})
}

// QualifiedName is the name with the namespaces and classes around it, joined
// by ::. Where DWARF has none for one of them it is left out.
func (e *Entry) QualifiedName() string {
	home := *e
	for range 8 { // the declaration is where the name belongs
		r, ok := home.RefTo(dwarf.AttrSpecification)
		if !ok {
			if r, ok = home.RefTo(dwarf.AttrAbstractOrigin); !ok {
				break
			}
		}
		o, ok := r.Entry()
		if !ok {
			break
		}
		home = o
	}
	name := home.Str(dwarf.AttrName)
	if name == "" || home.unit == nil {
		return e.Name()
	}
	if l := home.unit.Language(); l.IsC() || l.IsGo() {
		return name
	}
	var b strings.Builder
	for _, p := range home.unit.path(home.off) {
		switch p.tag {
		case dwarf.TagNamespace, dwarf.TagClassType, dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagEnumerationType, dwarf.TagModule:
			if s := p.Str(dwarf.AttrName); s != "" && p.off != home.off {
				b.WriteString(s)
				b.WriteString("::")
			}
		}
	}
	return b.String() + name
}

// nameFilter tells quickly which units may have an entry of a name: those whose
// bytes hold the name itself, or the offset of one of its places among the
// strings.
type nameFilter struct {
	inline  []byte
	offsets [][]byte
	indexed bool // the name is reached by an index, which could be any byte
}

// maxPlaces bounds how many places of one name among the strings are looked
// for; linkers keep one of each.
const maxPlaces = 64

func (d *Data) newNameFilter(name string) nameFilter {
	f := nameFilter{inline: append([]byte(name), 0)}
	f.inStrings(d, d.sec.Str)
	if d.alt != nil {
		f.inStrings(d, d.alt.sec.Str)
	}
	return f
}

// filter is a filter for units that unitsWith gives: it lets all pass where the
// index chose them.
func (d *Data) filter(name string) nameFilter {
	if x := d.index(); x != nil {
		if _, every := x.lookup(name); !every {
			return nameFilter{indexed: true}
		}
	}
	return d.newNameFilter(name)
}

func (f *nameFilter) inStrings(d *Data, str []byte) {
	for at := 0; len(f.offsets) < maxPlaces; {
		i := bytes.Index(str[at:], f.inline)
		if i < 0 {
			return
		}
		at += i
		pat := binary.LittleEndian.AppendUint32(nil, uint32(at))
		f.offsets = append(f.offsets, pat)
		f.indexed = f.indexed || bytes.Contains(d.sec.StrOffsets, pat)
		at++
	}
}

func (f *nameFilter) in(u *Unit) bool {
	b := u.bytes()[u.first:]
	if f.indexed || len(f.offsets) == maxPlaces || bytes.Contains(b, f.inline) {
		return true
	}
	for _, p := range f.offsets {
		if bytes.Contains(b, p) {
			return true
		}
	}
	return false
}

// family tells which entries complete a function's entry, through any number of
// abstract origins and specifications.
type family struct {
	fn    Entry
	known map[uint64]bool // by offset in the unit's section
}

func (f *family) has(e *Entry) bool {
	for range 6 {
		if e.off == f.fn.off && e.unit.off == f.fn.unit.off && e.unit.data == f.fn.unit.data {
			return true
		}
		r, ok := e.RefTo(dwarf.AttrAbstractOrigin)
		if !ok {
			if r, ok = e.RefTo(dwarf.AttrSpecification); !ok {
				return false
			}
		}
		o, ok := r.Entry()
		if !ok {
			return false
		}
		e = &o
	}
	return false
}

// origin is has for an offset of the unit, remembered.
func (f *family) origin(u *Unit, off uint64) bool {
	in, ok := f.known[off]
	if !ok {
		if e, _, ok := u.entryAt(off); ok {
			in = f.has(&e)
		}
		f.known[off] = in
	}
	return in
}

// Instances are the places where a function, by its abstract entry or its
// declaration, was inlined.
func (d *Data) Instances(fn Entry) []Entry {
	var out []Entry
	for _, u := range d.relatives(fn) {
		f := family{fn, map[uint64]bool{}}
		for _, in := range u.contents().inlines {
			if in.origin != 0 && !f.origin(u, in.origin) {
				continue
			}
			if e, _, ok := u.entryAt(in.off); ok && (in.origin != 0 || f.has(&e)) {
				out = append(out, e)
			}
		}
	}
	return out
}

// Bodies are the entries with code of a function by its abstract entry or its
// declaration: itself, or clones that the compiler made of it (.isra, .part,
// .constprop; the several constructors of C++).
func (d *Data) Bodies(fn Entry) []Entry {
	var out []Entry
	for _, u := range d.relatives(fn) {
		f := family{fn, map[uint64]bool{}}
		for _, span := range u.contents().funcs {
			e, _, ok := u.entryAt(span.off)
			if !ok || !f.has(&e) {
				continue
			}
			if low, ok := e.EntryPC(); ok && low == span.Low {
				out = append(out, e)
			}
		}
	}
	return out
}

// relatives are the units that may refer to a function's entry: its own, and
// those whose bytes hold its offset.
func (d *Data) relatives(fn Entry) []*Unit {
	var out []*Unit
	units := d.Units()
	if x := d.index(); x != nil && fn.unit.data == d {
		units = nil
		home, _ := slices.BinarySearchFunc(d.Units(), fn.unit.off, func(u *Unit, off uint64) int { return cmp.Compare(u.off, off) })
		list := append(slices.Concat(x.refs, x.blind), uint32(home))
		slices.Sort(list)
		for _, i := range slices.Compact(list) {
			if int(i) < d.info {
				units = append(units, d.units[i])
			}
		}
	}
	for _, u := range units {
		full := u.full()
		if full.data == fn.unit.data && (full.off == fn.unit.off || full.refersOut(fn)) {
			out = append(out, full)
		}
	}
	return out
}

// refersOut reports whether a unit may refer to an entry of another: by its
// offset in the section, which its bytes must then hold.
func (u *Unit) refersOut(fn Entry) bool {
	pat := binary.LittleEndian.AppendUint32(nil, uint32(fn.off))
	return bytes.Contains(u.bytes()[u.first:], pat)
}
