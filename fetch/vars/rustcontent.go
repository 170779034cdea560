package vars

import (
	"strings"

	"kprobe/fetch"
)

// rustContent fills in the content of a type of Rust's std. The names of structures are std's
// own and may change with any version. A type whose parts aren't found is no container.
func (f *frame) rustContent(t ctype, c *fetch.Content) bool {
	full := t.entry.Name()
	name := lastName(full)
	v := f.start(t)
	if t.kind == kindPointer {
		if name != "Box" && !strings.HasPrefix(full, "&") || t.elem.IsZero() {
			return false
		}
		to := f.whole(f.resolve(t.elem))
		if _, _, isText := f.textParts(to); name != "Box" && !isText && f.container(to) == nil {
			return false // other references are printed as addresses
		}
		c.Kind, c.Ptr, c.Elem = fetch.ContentPointer, word(0), f.elem(to)
		return c.Elem != nil
	}
	if t.kind != kindStruct {
		return false
	}
	if _, _, isText := f.textParts(t); isText {
		return false // it is printed as its text
	}
	if _, ok := v.follow("data_ptr"); ok {
		return f.rustSlice(v, c)
	}
	switch name {
	case "CString":
		w, ok := v.follow("inner")
		return ok && strings.HasSuffix(t.entry.QualifiedName(), "c_str::CString") && f.rustSlice(w, c) && asText(c, true)
	case "Vec", "VecDeque":
		elem, ok := f.parameter(t, 0)
		return ok && f.rustVec(v, elem, c)
	case "Rc", "Arc":
		return f.rustCounted(v, c)
	case "HashMap":
		return f.rustHash(v, "base.table", fetch.StyleMap, c) || f.rustHash(v, "table", fetch.StyleMap, c)
	case "HashSet":
		return f.rustHash(v, "base.map.table", fetch.StyleList, c) || f.rustHash(v, "map.table", fetch.StyleList, c)
	case "BTreeMap":
		return f.rustBTree(v, c, true)
	case "BTreeSet":
		w, ok := v.follow("map")
		return ok && f.rustBTree(w, c, false)
	case "LinkedList":
		return f.rustList(v, c)
	}
	return false
}

// ofUnsized returns what a pointer, Box, Rc or Arc with a length leads to, by the type's name.
// Debug information describes a slice and a structure that ends in one alike. A text must be
// one of std's.
func ofUnsized(name string) (isText, known bool) {
	for _, prefix := range [...]string{"&mut ", "&", "*const ", "*mut "} {
		if of, ok := strings.CutPrefix(name, prefix); ok {
			return unsized(of)
		}
	}
	_, of, ok := strings.Cut(name, "<")
	if !ok {
		return false, false
	}
	return unsized(of)
}

// isC reports whether a name is that of a pointer to a CStr, whose length counts the zero at
// the end.
func isC(name string) bool { return strings.Contains(name, "::c_str::CStr") }

// asText makes a slice of bytes a text. C's texts end at their zero.
func asText(c *fetch.Content, ofC bool) bool {
	c.Kind, c.Stride, c.Elem = fetch.ContentText, 0, nil
	if ofC {
		c.Count = nil
	}
	return true
}

func unsized(of string) (isText, known bool) {
	if strings.HasPrefix(of, "[") {
		return false, true
	}
	if i := strings.IndexAny(of, ",>"); i >= 0 {
		of = of[:i]
	}
	switch of {
	case "str", "std::path::Path", "std::ffi::os_str::OsStr", "core::ffi::c_str::CStr", "std::ffi::c_str::CStr":
		return true, true
	}
	return false, false
}

// lastName returns the name of a generic type without its path and parameters. It is "" for a
// type that has no name of its own, such as a tuple or a pointer.
func lastName(full string) string {
	name, _, _ := strings.Cut(full, "<")
	if strings.ContainsAny(name, "(&*[ ") {
		return ""
	}
	return name[strings.LastIndexByte(name, ':')+1:]
}

// inner goes through wrappers to a pointer.
func (v value) inner(path string) (value, bool) {
	w, ok := v.follow(path)
	for range maxNested {
		if !ok || w.t.kind != kindStruct {
			break
		}
		w, ok = w.only()
	}
	return w, ok && w.t.kind == kindPointer
}

// rustSlice describes what a pointer with a length leads to: a slice or a text. A structure of
// the program's own that ends in a slice is neither.
func (f *frame) rustSlice(v value, c *fetch.Content) bool {
	isText, known := ofUnsized(v.t.entry.Name())
	if !known {
		return false
	}
	p, ok := v.follow("data_ptr")
	if !ok || p.t.kind != kindPointer || p.t.elem.IsZero() {
		return false
	}
	ptr, ok := load(p)
	n, ok2 := v.loaded("length")
	if !ok || !ok2 {
		return false
	}
	c.Ptr, c.Count = ptr, n
	if isText {
		return asText(c, isC(v.t.entry.Name()))
	}
	elem := f.whole(f.resolve(p.t.elem))
	c.Kind, c.Stride, c.Elem = fetch.ContentSequence, elem.size, f.elem(elem)
	return c.Elem != nil && elem.size >= 0
}

func (f *frame) rustVec(v value, elem ctype, c *fetch.Content) bool {
	elem = f.whole(elem)
	c.Kind, c.Stride = fetch.ContentSequence, elem.size
	ok, ok2 := false, false
	c.Ptr, ok = v.loaded("buf")
	c.Count, ok2 = v.loaded("len")
	if !ok || !ok2 || elem.size < 0 {
		return false
	}
	if first, isRing := v.loaded("head"); isRing {
		c.First = first
		if c.Cap, ok = v.loaded("buf.inner.cap|buf.cap"); !ok {
			return false
		}
	} else if strings.HasPrefix(v.t.entry.Name(), "VecDeque") {
		return false // an older version, which has a tail instead of a length
	}
	c.Elem = f.elem(elem)
	return c.Elem != nil
}

// rustCounted describes what a reference counted pointer leads to, after the counts.
func (f *frame) rustCounted(v value, c *fetch.Content) bool {
	fat, ok := v.follow("ptr")
	for range maxNested {
		if _, isFat := fat.follow("data_ptr"); !ok || isFat || fat.t.kind != kindStruct {
			break
		}
		fat, ok = fat.only()
	}
	p, ok2 := v.inner("ptr")
	if !ok || !ok2 || p.t.elem.IsZero() {
		return false
	}
	if _, isFat := fat.follow("data_ptr"); isFat {
		return f.rustCountedSlice(v, fat, p, c)
	}
	to, ok := f.start(f.whole(f.resolve(p.t.elem))).follow("value|data")
	if !ok {
		return false
	}
	c.Kind = fetch.ContentPointer
	c.Ptr, ok = load(p)
	c.At, ok2 = address(to)
	c.Elem = f.elem(to.t)
	return ok && ok2 && c.Elem != nil
}

// rustCountedSlice describes an Rc or Arc of a slice or str, whose elements follow the counts.
// A trait object isn't described, because only its table says what it is.
func (f *frame) rustCountedSlice(v, fat, p value, c *fetch.Content) bool {
	isText, known := ofUnsized(v.t.entry.Name())
	if !known {
		return false
	}
	n, ok := fat.loaded("length")
	to, ok2 := f.start(f.whole(f.resolve(p.t.elem))).follow("value|data")
	ptr, ok3 := load(p)
	at, ok4 := address(to)
	if !ok || !ok2 || !ok3 || !ok4 {
		return false
	}
	c.Ptr, c.Count = append(append(fetch.Trail{}, ptr...), at...), n
	if isText {
		return asText(c, isC(v.t.entry.Name()))
	}
	elem := to.t
	if elem.kind == kindArray && elem.count <= 0 && !f.hasNone(elem) {
		elem, _ = f.element(elem)
	}
	elem = f.whole(elem)
	c.Kind, c.Stride, c.Elem = fetch.ContentSequence, elem.size, f.elem(elem)
	return c.Elem != nil && elem.size >= 0
}

func (f *frame) rustHash(v value, table string, style fetch.ContentStyle, c *fetch.Content) bool {
	raw, ok := v.follow(table)
	if !ok {
		return false
	}
	raw.t = f.whole(raw.t)
	elem, ok := f.parameter(raw.t, 0)
	if elem = f.whole(elem); !ok || elem.size <= 0 {
		return false
	}
	in, ok := raw.follow("table|.")
	if !ok {
		return false
	}
	ok2, ok3 := false, false
	c.Ptr, ok = in.loaded("ctrl")
	c.Count, ok2 = in.loaded("items")
	c.Cap, ok3 = in.loaded("bucket_mask")
	if !ok || !ok2 || !ok3 {
		return false
	}
	c.Kind, c.Stride, c.Style = fetch.ContentHash, elem.size, style
	key, ok := f.start(elem).follow("__0")
	val, ok2 := f.start(elem).follow("__1")
	if !ok || !ok2 {
		return false
	}
	pair := &fetch.Content{Kind: fetch.ContentStruct, Name: elem.name, Size: elem.size}
	for _, w := range [...]value{key, val} {
		off, isConst := w.p.sym.isConst()
		e := f.elem(w.t)
		if !isConst || e == nil {
			return false
		}
		pair.Members = append(pair.Members, fetch.ContentMember{Name: w.t.name, Off: int64(off), Elem: e})
		if style == fetch.StyleList {
			break // a set has no values
		}
	}
	if c.Elem = pair; style == fetch.StyleList {
		pair.Style = fetch.StyleHidden
	}
	return true
}

func (f *frame) rustList(v value, c *fetch.Content) bool {
	first, ok := v.inner("head.Some.__0")
	if !ok || first.t.elem.IsZero() {
		return false
	}
	node := f.start(f.whole(f.resolve(first.t.elem)))
	next, ok := node.inner("next.Some.__0")
	at, ok2 := node.follow("element")
	if !ok || !ok2 {
		return false
	}
	ok3, ok4 := false, false
	c.Ptr, ok = load(first)
	c.Next, ok2 = load(next)
	c.At, ok3 = address(at)
	c.Count, ok4 = v.loaded("len")
	c.Kind, c.Elem = fetch.ContentList, f.elem(at.t)
	return ok && ok2 && ok3 && ok4 && c.Elem != nil
}

// rustBTree describes a B-tree. Leaves have keys and values. Inner nodes begin with a leaf,
// which their edges follow.
func (f *frame) rustBTree(v value, c *fetch.Content, withValues bool) bool {
	root, ok := v.follow("root.Some.__0")
	if !ok {
		return false
	}
	node, ok := root.inner("node")
	if !ok || node.t.elem.IsZero() {
		return false
	}
	leaf := f.start(f.whole(f.resolve(node.t.elem)))
	b := &fetch.BTreeContent{}
	ok2, ok3, ok4 := false, false, false
	c.Ptr, ok = load(node)
	c.Count, ok2 = v.loaded("length")
	b.Height, ok3 = root.loaded("height")
	b.Len, ok4 = leaf.loaded("len")
	if !ok || !ok2 || !ok3 || !ok4 {
		return false
	}
	if b.Keys, b.KeyStride, b.Key, ok = f.rustCells(leaf, "keys", 0); !ok {
		return false
	}
	if withValues {
		if b.Vals, b.ValStride, b.Val, ok = f.rustCells(leaf, "vals", 1); !ok {
			return false
		}
	}
	name := strings.Replace(leaf.t.entry.Name(), "LeafNode<", "InternalNode<", 1)
	e, found := f.data.FindType(name, leaf.t.entry.Unit())
	if !found {
		return false
	}
	edges, ok := f.start(f.resolve(e.Ref())).follow("edges")
	off, isConst := edges.p.sym.isConst()
	b.Edges = int64(off)
	c.Kind, c.BTree, c.Style = fetch.ContentBTree, b, fetch.StyleList
	return ok && isConst
}

// rustCells describes an array of MaybeUninit.
func (f *frame) rustCells(leaf value, name string, param int) (off, stride int64, elem *fetch.Content, ok bool) {
	w, ok := leaf.follow(name)
	at, isConst := w.p.sym.isConst()
	t, ok2 := f.parameter(leaf.t, param)
	if !ok || !ok2 || !isConst || w.t.kind != kindArray {
		return 0, 0, nil, false
	}
	_, stride = f.element(w.t)
	elem = f.elem(f.whole(t))
	return int64(at), stride, elem, elem != nil
}

// referred returns what a Rust reference stands for, if that is one of std's own types: a
// container, a String, an Option or a Result. Other references are recorded as addresses.
func (v value) referred() (value, bool) {
	if v.t.kind != kindPointer || v.t.entry.Unit() == nil || !strings.HasPrefix(v.t.entry.Name(), "&") || !v.f.language(v.t.entry).IsRust() {
		return v, false
	}
	to, err := v.deref()
	if err != nil || to.t.kind != kindStruct {
		return v, false
	}
	to.t = v.f.whole(to.t)
	if name := to.t.entry.Name(); !strings.HasPrefix(name, "Option<") && !strings.HasPrefix(name, "Result<") && v.f.container(to.t) == nil {
		if _, _, isText := v.f.textParts(to.t); !isText {
			return v, false
		}
	}
	return to, to.t.size > 0
}
