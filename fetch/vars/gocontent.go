package vars

import (
	"debug/dwarf"
	"reflect"
	"strings"
	"sync"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// goContent fills in the content of Go's own types. It uses the structures of Go's runtime,
// which the linker describes for each type that a program uses.
func (f *frame) goContent(t ctype, c *fetch.Content) bool {
	v := f.start(t)
	if t.kind == kindPointer {
		if t.elem.IsZero() {
			return false
		}
		to := f.whole(f.resolve(t.elem))
		if to.kind != kindStruct {
			return false
		}
		c.Word = true
		w := f.start(to)
		switch name, _, _ := strings.Cut(to.entry.Name(), "<"); {
		case strings.HasPrefix(t.name, "*"), !strings.Contains(to.entry.Name(), "<"):
			return false
		case name == "map":
			return f.goSwiss(w, c)
		case name == "hash":
			return f.goBuckets(w, c)
		case name == "hchan":
			return f.goChan(w, c)
		}
		return false
	}
	if t.kind != kindStruct {
		return false
	}
	switch name := t.entry.Name(); {
	case strings.HasPrefix(name, "[]"), f.goKind(t) == reflect.Slice:
		p, ok := v.follow("array")
		if !ok || p.t.kind != kindPointer || p.t.elem.IsZero() {
			return false
		}
		elem := f.whole(f.resolve(p.t.elem))
		ok2 := false
		c.Ptr, ok = load(p)
		c.Count, ok2 = v.loaded("len")
		if room, known := v.loaded("cap"); known && ok2 && isWord(c.Count) && isWord(room) {
			// Go never makes a slice that is longer than its capacity.
			c.Count[0].Op, c.Count[0].Imm2 = fetch.StepAtMost, room[0].Imm
		}
		c.Kind, c.Stride, c.Elem = fetch.ContentSequence, elem.size, f.elem(elem)
		return ok && ok2 && elem.size >= 0 && c.Elem != nil
	case name == "runtime.iface" || name == "runtime.eface":
		return f.goInterface(v, c)
	case name == "time.Time", strings.HasPrefix(name, shapeOfTime):
		ok, ok2 := false, false
		c.Ptr, ok = v.loaded("wall")
		c.Count, ok2 = v.loaded("ext")
		c.Kind = fetch.ContentTime
		return ok && ok2
	}
	return false
}

// shapeOfTime is how debug information names time.Time as the type argument of a generic function.
// Go 1.18 appends the argument's number.
const shapeOfTime = "go.shape.struct { time.wall uint64; time.ext int64; time.loc *time.Location }"

// isWord reports whether a trail loads exactly one word.
func isWord(t fetch.Trail) bool {
	return len(t) == 1 && t[0].Op == fetch.StepLoad && t[0].Size == 8
}

// goChan describes the values that wait in a channel's buffer.
func (f *frame) goChan(v value, c *fetch.Content) bool {
	elem, ok := v.goElem("recvq.first.elem")
	if !ok {
		return false
	}
	list := [...]struct {
		name string
		to   *fetch.Trail
	}{{"buf", &c.Ptr}, {"qcount", &c.Count}, {"recvx", &c.First}, {"dataqsiz", &c.Cap}}
	for _, p := range list {
		trail, ok := v.loaded(p.name)
		if !ok {
			return false
		}
		*p.to = behind(trail)
	}
	c.Kind, c.Stride, c.Elem = fetch.ContentSequence, elem.size, f.elem(elem)
	return c.Elem != nil && elem.size >= 0
}

// behind makes a trail start at the address that a word holds, instead of at the word.
func behind(t fetch.Trail) fetch.Trail { return append(word(0), t...) }

// goElem returns the type that a pointer in a structure leads to.
func (v value) goElem(path string) (ctype, bool) {
	w, ok := v.follow(path)
	if !ok || w.t.kind != kindPointer || w.t.elem.IsZero() {
		return ctype{}, false
	}
	t := v.f.whole(v.f.resolve(w.t.elem))
	return t, t.kind != kindVoid
}

// goAttrRuntime is where a type's description lies, counted from the first description
// (DW_AT_go_runtime_type, cmd/internal/dwarf). Before Go 1.22 it is an address.
const goAttrRuntime dwarf.Attr = 0x2904

// goSwiss describes a map of Go 1.24 or later.
func (f *frame) goSwiss(v value, c *fetch.Content) bool {
	m := &fetch.MapContent{Swiss: true}
	table, ok := v.follow("dirPtr")
	if !ok || table.t.kind != kindPointer || table.t.elem.IsZero() {
		return false
	}
	first, err := table.deref()
	if err != nil || first.t.kind != kindPointer || first.t.elem.IsZero() {
		return false
	}
	w := f.start(f.whole(f.resolve(first.t.elem)))
	data, ok := w.follow("groups.data")
	if !ok || data.t.kind != kindPointer || data.t.elem.IsZero() {
		return false
	}
	group := f.start(f.whole(f.resolve(data.t.elem)))
	ok2, ok3, ok4, ok5 := false, false, false, false
	c.Count, ok = v.loaded("used")
	m.Dir, ok2 = load(table)
	m.DirLen, ok3 = v.loaded("dirLen")
	m.Groups, ok4 = load(data)
	m.Mask, ok5 = w.loaded("groups.lengthMask")
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || group.t.size <= 0 {
		return false
	}
	m.GroupSize = group.t.size
	ctrl, ok := group.follow("ctrl")
	off, isConst := ctrl.p.sym.isConst()
	if !ok || !isConst {
		return false
	}
	m.Ctrl = int64(off)
	var key, val ctype
	if slots, ok := group.follow("slots"); ok && slots.t.kind == kindArray {
		at, isConst := slots.p.sym.isConst()
		slot, stride := f.element(slots.t)
		if !isConst || !f.goCell(f.start(slot), "key", int64(at), stride, &m.Key, &m.Stride, &key) ||
			!f.goCell(f.start(slot), "elem", int64(at), stride, &m.Val, &m.ValStride, &val) {
			return false
		}
	} else if !f.goArray(group, "keys", &m.Key, &m.Stride, &key) || !f.goArray(group, "elems", &m.Val, &m.ValStride, &val) {
		return false
	}
	c.Kind, c.Map, c.Style = fetch.ContentMap, m, fetch.StyleMap
	return f.goEntries(v.t, m, key, val)
}

// goEntries fills in the types of a map's keys and values. A map holds a pointer instead of a
// key or value of more than 128 bytes. The name of the map's type says whether it does:
// map<KEY,VALUE>, hash<KEY,VALUE>.
func (f *frame) goEntries(t ctype, m *fetch.MapContent, key, val ctype) bool {
	for i := range 4 {
		k, v := key, val
		ok, ok2 := true, true
		if i&1 != 0 {
			k, ok = f.goFarEntry(key)
		}
		if i&2 != 0 {
			v, ok2 = f.goFarEntry(val)
		}
		if !ok || !ok2 || !strings.HasSuffix(t.entry.Name(), "<"+k.entry.Name()+","+v.entry.Name()+">") {
			continue
		}
		m.KeyElem, m.ValElem = f.elem(k), f.elem(v)
		m.KeyFar, m.ValFar = i&1 != 0, i&2 != 0
		return m.KeyElem != nil && m.ValElem != nil
	}
	// Interfaces and maps have other names there. A key or value that doesn't point to a large
	// type lies in the map itself.
	for _, t := range [...]ctype{key, val} {
		if to, ok := f.goFarEntry(t); ok && to.size > maxGoEntry {
			return false
		}
	}
	m.KeyElem, m.ValElem = f.elem(key), f.elem(val)
	return m.KeyElem != nil && m.ValElem != nil
}

// maxGoEntry is the largest key or value, in bytes, that lies in a map itself (internal/abi:
// MapMaxKeyBytes, MapMaxElemBytes).
const maxGoEntry = 128

// goFarEntry returns the type that a pointer in the place of a key or value leads to.
func (f *frame) goFarEntry(t ctype) (ctype, bool) {
	if t.kind != kindPointer || t.elem.IsZero() {
		return t, false
	}
	return f.whole(f.resolve(t.elem)), true
}

// goCell finds a member in the elements of an array.
func (f *frame) goCell(slot value, name string, from, by int64, off, stride *int64, t *ctype) bool {
	w, ok := slot.follow(name)
	at, isConst := w.p.sym.isConst()
	if !ok || !isConst || by <= 0 {
		return false
	}
	*off, *stride, *t = from+int64(at), by, f.whole(w.t)
	return true
}

// goArray finds an array in a structure.
func (f *frame) goArray(v value, name string, off, stride *int64, t *ctype) bool {
	w, ok := v.follow(name)
	at, isConst := w.p.sym.isConst()
	if !ok || !isConst || w.t.kind != kindArray {
		return false
	}
	elem, by := f.element(w.t)
	*off, *stride, *t = int64(at), by, f.whole(elem)
	return by > 0 || elem.size == 0
}

// goBuckets describes a map from before Go 1.24.
func (f *frame) goBuckets(v value, c *fetch.Content) bool {
	m := &fetch.MapContent{}
	b, ok := v.follow("buckets")
	if !ok || b.t.kind != kindPointer || b.t.elem.IsZero() {
		return false
	}
	bucket := f.start(f.whole(f.resolve(b.t.elem)))
	ok2, ok3, ok4, ok5 := false, false, false, false
	c.Count, ok = v.loaded("count")
	m.Buckets, ok2 = load(b)
	m.Old, ok3 = v.loaded("oldbuckets")
	m.B, ok4 = v.loaded("B")
	m.Flags, ok5 = v.loaded("flags")
	tops, ok6 := bucket.follow("tophash")
	over, ok7 := bucket.follow("overflow")
	at, isConst := tops.p.sym.isConst()
	to, isConst2 := over.p.sym.isConst()
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || !isConst || !isConst2 || bucket.t.size <= 0 {
		return false
	}
	m.Tops, m.Over, m.BucketSize = int64(at), int64(to), bucket.t.size
	c.Kind, c.Map, c.Style = fetch.ContentMap, m, fetch.StyleMap
	var key, val ctype
	return f.goArray(bucket, "keys", &m.Key, &m.Stride, &key) && f.goArray(bucket, "values", &m.Val, &m.ValStride, &val) && f.goEntries(v.t, m, key, val)
}

// goInterface leads to the value in an interface. Its type is known only when the value is
// read.
func (f *frame) goInterface(v value, c *fetch.Content) bool {
	ok, ok2 := false, false
	if c.Tag, ok = v.loaded("tab.Type|tab._type"); !ok {
		if c.Tag, ok = v.loaded("_type"); !ok {
			return false
		}
	}
	c.Ptr, ok2 = v.loaded("data")
	types := f.goTypeList()
	if !ok2 || types == nil || len(c.Ptr) != 1 {
		return false
	}
	c.Kind, c.Dynamic = fetch.ContentInterface, types.content
	return true
}

// goTypes finds types by the addresses of their descriptions.
type goTypes struct {
	scope *Scope
	base  uint64 // of the descriptions in the process
	bias  uint64 // of the module
	refs  map[uint64]debuginfo.Ref

	mu    sync.Mutex
	known map[uint64]*fetch.Content
}

// goTypeList lists the types of the program.
func (f *frame) goTypeList() *goTypes {
	if f.types != nil {
		return f.types
	}
	list := f.module.File.Lookup("runtime.types")
	if len(list) == 0 {
		return nil
	}
	g := &goTypes{scope: f.scope, base: uint64(f.module.Addr(list[0].Vaddr)), bias: f.module.Bias, refs: map[uint64]debuginfo.Ref{}, known: map[uint64]*fetch.Content{}}
	for _, u := range f.data.Units() {
		if !u.Language().IsGo() {
			continue
		}
		for e := range u.Top() {
			switch e.Tag() {
			case dwarf.TagSubprogram, dwarf.TagVariable, dwarf.TagConstant:
				continue
			}
			if v, ok := e.Val(goAttrRuntime); ok && v.U != 0 {
				g.refs[v.U] = e.Ref()
			}
		}
	}
	f.types = g
	return g
}

// content returns how a value is recorded whose type has its description at an address. It is
// nil if debug information doesn't know the type.
func (g *goTypes) content(at uint64) *fetch.Content {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c, ok := g.known[at]; ok {
		return c
	}
	ref, ok := g.refs[at-g.base]
	if !ok {
		ref, ok = g.refs[at-g.bias]
	}
	var c *fetch.Content
	if ok {
		_ = g.scope.read(func(f *frame) error {
			f.types = g
			c = f.goDynamic(f.resolve(ref))
			return nil
		})
	}
	g.known[at] = c
	return c
}

// goDynamic describes a value in an interface. If the value is a pointer, what it leads to is
// shown.
func (f *frame) goDynamic(t ctype) *fetch.Content {
	t = f.whole(t)
	if t.kind == kindPointer {
		if c := f.container(t); c != nil {
			return c
		}
		var e *fetch.Content
		if !t.elem.IsZero() && strings.HasPrefix(t.name, "*") {
			e = f.elem(f.whole(f.resolve(t.elem)))
		}
		if e == nil {
			c := f.plainContent(t, 0, 0)
			if c != nil {
				c.Word = true
			}
			return c
		}
		return &fetch.Content{Kind: fetch.ContentPointer, Name: t.name, Size: 8, Ptr: word(0), Elem: e, Word: true}
	}
	c := f.elem(t)
	if c == nil {
		return nil
	}
	own := *c
	own.Name, own.Word = t.name, f.goWord(t, 0)
	return &own
}

// goWord reports whether a value is a single pointer, which an interface holds itself.
func (f *frame) goWord(t ctype, depth int) bool {
	switch {
	case depth > maxNested:
		return false
	case t.kind == kindPointer:
		return true
	case t.kind == kindStruct && t.size == 8:
		list := f.members(t)
		word := false
		for _, m := range list {
			if m.typ.size == 0 {
				continue
			}
			word = f.goWord(m.typ, depth+1)
		}
		return word
	case t.kind == kindArray && t.count == 1:
		elem, _ := f.element(t)
		return f.goWord(elem, depth+1)
	}
	return false
}
