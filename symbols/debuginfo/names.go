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

// FindFunctions finds the entries of functions by name: by DW_AT_name alone (f), as in C; with
// namespaces and classes (ns::C::f), as in C++ and Rust; or by the linkage name. The abstract
// entry of an inlined function is included. A declaration that nothing completes may be left
// out. Units that can't have the name are not read.
func (d *Data) FindFunctions(name string) []Entry {
	if name == "" {
		return nil
	}
	list := d.named.get(name, func() (out []Ref) {
		for _, e := range d.findFunctions(name) {
			out = append(out, e.Ref())
		}
		return out
	})
	var out []Entry
	for _, r := range list {
		if e, _, ok := r.unit.entryAt(r.off); ok {
			out = append(out, e)
		}
	}
	return out
}

func (d *Data) findFunctions(name string) []Entry {
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
	for p := range d.partsWith(ofFuncs, last, want, name) {
		full := p.u.full()
		switch {
		case full.data != d:
			sub, sublink := full.data.newNameFilter(last), full.data.newNameFilter(name)
			if sub.in(full) || sublink.in(full) {
				out = full.findFunctions(out, want, last, name, part{u: full, from: full.first, to: full.end})
			}
		case p.from == p.u.first && p.to == p.u.end && !p.searched:
			ff := f.get(func() nameFilter { return d.newNameFilter(last) })
			lf := link.get(func() nameFilter { return d.newNameFilter(name) })
			if ff.in(full) || lf.in(full) {
				out = full.findFunctions(out, want, last, name, p)
			}
		default:
			out = full.findFunctions(out, want, last, name, p)
		}
	}
	if d.alt != nil { // declarations, and functions that are inlined alone
		out = append(out, d.alt.FindFunctions(name)...)
	}
	return out
}

// partsWith returns the parts of units that may have an entry with one of the names, in order.
// Each part's pages are released after it was examined.
func (d *Data) partsWith(table int, names ...string) iter.Seq[part] {
	return func(yield func(part) bool) {
		for _, p := range d.partsOf(table, names) {
			more := yield(p)
			if d.release != nil {
				d.release(p.from, p.to)
			}
			if !more {
				return
			}
		}
	}
}

func (d *Data) partsOf(table int, names []string) (out []part) {
	units := d.Units()
	whole := func(u *Unit) part { return part{u: u, from: u.first, to: u.end} }
	x := d.ready()
	if x == nil && d.indexes() {
		found, ok := d.searched(slices.Clone(names))
		if ok {
			return found
		}
		if d.keeps() || d.searches.Load() < 0 {
			x = d.index()
		}
	}
	var cells []uint32
	for _, n := range names {
		if x == nil {
			break
		}
		list, every := x.names[table].lookup(n)
		if every {
			x = nil
		}
		cells = append(cells, list...)
	}
	if x == nil {
		for _, u := range units {
			out = append(out, whole(u))
		}
		return out
	}
	slices.Sort(cells)
	for _, c := range slices.Compact(cells) {
		out = d.cell(x, out, c)
	}
	if len(x.blind) == 0 {
		return out
	}
	blind := make(map[*Unit]bool, len(x.blind))
	for _, i := range x.blind {
		if int(i) < len(units) {
			blind[units[i]] = true
		}
	}
	out = slices.DeleteFunc(out, func(p part) bool { return blind[p.u] })
	for u := range blind {
		out = append(out, whole(u))
	}
	slices.SortFunc(out, func(a, b part) int { return cmp.Compare(a.from, b.from) })
	return out
}

// unitsWith is partsWith for whole units.
func (d *Data) unitsWith(table int, names ...string) iter.Seq[*Unit] {
	return func(yield func(*Unit) bool) {
		var last *Unit
		for _, p := range d.partsOf(table, names) {
			if p.u == last {
				continue
			}
			last = p.u
			more := yield(p.u)
			if d.release != nil {
				d.release(p.u.off, p.u.end)
			}
			if !more {
				return
			}
		}
	}
}

func (u *Unit) findFunctions(out []Entry, want, last, name string, in part) []Entry {
	t := u.root()
	var hits []uint64
	for s := u.scan(u.planner(), in.from, in.to); s.next(); {
		if s.plan.kind != kindFunc {
			continue
		}
		is := func(v Val, text string) bool { return v.form != 0 && u.says(t, v, text) }
		if n := s.val(slotName); is(n, last) || want != last && is(n, want) || want != name && is(n, name) || is(s.val(slotLink), name) {
			hits = append(hits, s.off)
		}
	}
	for _, off := range hits {
		e, _, ok := u.entryAt(off)
		if !ok {
			continue
		}
		if n := e.Str(dwarf.AttrName); n == want || n == name || last == want && n == last || linkageName(&e) == name || squeeze(e.QualifiedName()) == squeeze(want) {
			out = append(out, e)
		}
	}
	return out
}

// says reports whether a string equals text.
func (u *Unit) says(t *unitTop, v Val, text string) bool {
	if v.form != formStrp {
		return string(u.stringOf(t, v)) == text
	}
	sec := u.data.sec.Str
	n := uint64(len(text))
	return v.U < uint64(len(sec)) && n < uint64(len(sec))-v.U && sec[v.U+n] == 0 && string(sec[v.U:v.U+n]) == text
}

func squeeze(s string) string { return strings.ReplaceAll(s, " ", "") }

// attrMIPSLinkageName is the attribute for linkage names before version 4.
const attrMIPSLinkageName dwarf.Attr = 0x2007

func linkageName(e *Entry) string {
	if s := e.Str(dwarf.AttrLinkageName); s != "" {
		return s
	}
	return e.Str(attrMIPSLinkageName)
}

// LinkageName returns the mangled name of a function or variable, or "".
func (e *Entry) LinkageName() string {
	return chase(*e, func(e *Entry) (string, bool) {
		s := linkageName(e)
		return s, s != ""
	})
}

// QualifiedName returns the name with the namespaces and classes around it, joined by ::. A
// scope without a name is left out.
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

// nameFilter quickly selects the units that may have an entry of a name: those whose bytes
// contain the name itself, or the offset of one of its places among the strings.
type nameFilter struct {
	inline  []byte
	offsets [][]byte
	indexed bool // the name may be referred to by an index, which can be any byte
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
	return f.indexed || len(f.offsets) == maxPlaces || bytes.Contains(b, f.inline) || f.refers(b)
}

// refers reports whether the bytes contain the offset of one of the name's places.
func (f *nameFilter) refers(b []byte) bool {
	return slices.ContainsFunc(f.offsets, func(p []byte) bool { return bytes.Contains(b, p) })
}
