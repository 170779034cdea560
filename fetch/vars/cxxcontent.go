package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/fetch"
)

// cxxContent fills in the content of a class of C++'s standard library: of libstdc++ with
// either of its ABIs, or of libc++.
func (f *frame) cxxContent(t ctype, c *fetch.Content) bool {
	full := t.entry.Name()
	name, args, _ := strings.Cut(full, "<")
	v := f.start(t)
	switch name {
	case "stack", "queue", "priority_queue":
		return f.within(v, "c", c)
	case "vector":
		if strings.HasPrefix(args, "bool") {
			return f.cxxBits(v, c)
		}
	case "bitset":
		return f.cxxBitset(v, c)
	case "initializer_list":
		return f.cxxInitializers(v, c)
	case "atomic":
		return f.within(v, "_M_i|_M_base._M_i|_M_b._M_p|_M_fp|__a_.__a_value|__a_", c)
	case "complex":
		return f.within(v, "_M_value", c)
	case "path":
		return f.within(v, "_M_pathname|__pn_", c)
	case "weak_ptr":
		return f.cxxWeak(v, c)
	case "pair":
		if e := f.pair(t); e != nil {
			c.Kind, c.Members = e.Kind, e.Members
			return true
		}
		return false
	case "array":
		return f.cxxArray(v, c)
	case "deque":
		return f.cxxDeque(v, c)
	case "optional":
		return f.cxxOptional(v, c)
	case "variant":
		return f.cxxVariant(v, c)
	case "tuple":
		return f.cxxTuple(v, c)
	case "shared_ptr", "unique_ptr", "auto_ptr", "__shared_ptr":
		return f.cxxPointer(v, c)
	case "span":
		return f.cxxSpan(v, c)
	case "duration", "time_point":
		return f.cxxTime(v, c)
	case "basic_string", "basic_string_view":
		return f.cxxText(v, c)
	}
	for _, r := range f.cxx() {
		if r.name == name && f.cook(v, &r, c) {
			return true
		}
	}
	return false
}

// cxx is the table of recipes.
func (f *frame) cxx() []cxxRecipe {
	if f.recipes == nil {
		f.recipes = cxxRecipes()
	}
	return f.recipes
}

// within uses the content of a member as the content of the whole.
func (f *frame) within(v value, path string, c *fetch.Content) bool {
	w, ok := v.follow(path)
	if !ok {
		return false
	}
	off, isConst := w.p.sym.isConst()
	e := f.elem(w.t)
	if !isConst || e == nil || off != 0 {
		return false
	}
	name, size := c.Name, c.Size
	*c = *e
	c.Name, c.Size = name, size
	return true
}

// cook follows a recipe from the table.
func (f *frame) cook(v value, r *cxxRecipe, c *fetch.Content) (ok bool) {
	in, ok := v.follow(r.inner)
	if !ok {
		return false
	}
	in.t = f.whole(in.t)
	elem, ok := f.parameter(in.t, r.elem)
	if !ok {
		return false
	}
	elem = f.whole(elem)
	out := fetch.Content{Kind: r.kind, Name: c.Name, Size: c.Size, Style: r.style, Stride: elem.size}
	first, ok := in.follow(r.first)
	if !ok || first.t.kind != kindPointer {
		return false
	}
	if out.Ptr, ok = load(first); !ok {
		return false
	}
	if r.last != "" {
		if out.Bytes, ok = f.between(in, r.first, r.last); !ok || elem.size <= 0 {
			return false
		}
		if out.Elem = f.elem(elem); out.Elem == nil {
			return false
		}
		*c = out
		return true
	}
	if r.count != "" {
		if out.Count, ok = in.loaded(r.count); !ok {
			return false
		}
	}
	if r.end != "" {
		end, found := in.follow(r.end)
		if !found {
			return false
		}
		if out.End, ok = address(end); !ok {
			return false
		}
		if out.End == nil {
			out.End = fetch.Trail{}
		}
	}
	node, ok := f.node(in.t, first.t, elem, r)
	if !ok {
		return false
	}
	for _, p := range [...]struct {
		path string
		to   *fetch.Trail
	}{{r.next, &out.Next}, {r.left, &out.Left}, {r.right, &out.Right}, {r.parent, &out.Parent}} {
		if p.path == "" {
			continue
		}
		if *p.to, ok = f.start(node).loaded(p.path); !ok {
			return false
		}
	}
	at, ok := f.start(node).follow(r.value)
	if !ok {
		return false
	}
	if out.At, ok = address(at); !ok {
		return false
	}
	// libc++'s maps wrap their pairs.
	if strings.HasPrefix(elem.entry.Name(), "__value_type<") || strings.HasPrefix(elem.entry.Name(), "__hash_value_type<") {
		if pair, found := f.start(elem).follow("__cc_|__cc"); found {
			elem = pair.t
		}
	}
	*c = out
	if r.style == fetch.StyleMap || r.style == fetch.StyleMultimap {
		c.Elem = f.pair(elem)
	} else {
		c.Elem = f.elem(elem)
	}
	return c.Elem != nil
}

// between returns the trail to the distance between two pointers.
func (f *frame) between(v value, low, high string) (fetch.Trail, bool) {
	a, ok := v.loaded(low)
	b, ok2 := v.loaded(high)
	if !ok || !ok2 || len(a) != 1 || len(b) != 1 {
		return nil, false
	}
	return fetch.Trail{{Op: fetch.StepDiff, Imm: b[0].Imm, Imm2: a[0].Imm}}, true
}

// node finds the type of a container's nodes: by the class's own name for them, by their
// template's name, or by what debug information says about pointers to them.
func (f *frame) node(class, pointer, elem ctype, r *cxxRecipe) (ctype, bool) {
	if t, ok := f.typedef(class, r.node); ok {
		if _, ok := f.start(t).follow(r.value); ok {
			return t, true
		}
	}
	// libc++: the base class of the nodes has the pointer to a node as its parameter.
	if !pointer.elem.IsZero() {
		if p, ok := f.parameter(f.whole(f.resolve(pointer.elem)), 0); ok && p.kind == kindPointer && !p.elem.IsZero() {
			t := f.whole(f.resolve(p.elem))
			if _, ok := f.start(t).follow(r.value); ok {
				return t, true
			}
		}
	}
	name := elem.name
	if elem.entry.Unit() != nil {
		name = elem.entry.QualifiedName()
	}
	for _, end := range [...]string{">", " >", ", false>", ", true>"} {
		if e, ok := f.data.FindType(r.template+name+r.behind+end, f.fn.Unit()); ok {
			return f.resolve(e.Ref()), true
		}
	}
	return ctype{}, false
}

func (f *frame) cxxArray(v value, c *fetch.Content) bool {
	w, ok := v.follow("_M_elems|__elems_")
	if !ok || w.t.kind != kindArray || w.t.count <= 0 {
		return false
	}
	elem, stride := f.element(w.t)
	at, ok := address(w)
	if !ok || stride <= 0 {
		return false
	}
	c.Kind, c.Ptr, c.Stride = fetch.ContentSequence, append(fetch.Trail{}, at...), stride
	c.Count = fetch.Trail{{Op: fetch.StepAnd}, {Op: fetch.StepAdd, Imm: uint64(w.t.count)}}
	c.Elem = f.elem(elem)
	return c.Elem != nil
}

func (f *frame) cxxDeque(v value, c *fetch.Content) bool {
	elem, ok := f.parameter(v.t, 0)
	if elem = f.whole(elem); !ok || elem.size <= 0 {
		return false
	}
	c.Kind, c.Stride = fetch.ContentDeque, elem.size
	if c.Elem = f.elem(elem); c.Elem == nil {
		return false
	}
	const start, finish = "_M_impl._M_start.", "_M_impl._M_finish."
	if c.Ptr, ok = v.loaded(start + "_M_node"); ok {
		ok2, ok3, ok4 := false, false, false
		c.Bytes, ok = f.between(v, start+"_M_node", finish+"_M_node")
		c.First, ok2 = f.between(v, start+"_M_first", start+"_M_cur")
		c.Cap, ok3 = f.between(v, start+"_M_first", start+"_M_last")
		c.End, ok4 = f.between(v, finish+"_M_first", finish+"_M_cur")
		return ok && ok2 && ok3 && ok4
	}
	if c.Ptr, ok = v.loaded("__map_.__begin_"); !ok {
		return false
	}
	ok2 := false
	c.Count, ok = v.loaded("__size_.__value_|__size_")
	c.First, ok2 = v.loaded("__start_")
	// __deque_block_size: no variable holds it.
	block := uint64(16)
	if elem.size < 256 {
		block = uint64(4096 / elem.size)
	}
	c.Cap = fetch.Trail{{Op: fetch.StepAnd}, {Op: fetch.StepAdd, Imm: block}}
	return ok && ok2
}

func (f *frame) cxxOptional(v value, c *fetch.Content) bool {
	tag, ok := v.loaded("_M_payload._M_engaged|__engaged_")
	w, ok2 := v.follow("_M_payload._M_payload._M_value|_M_payload._M_payload|__val_")
	if !ok || !ok2 {
		return false
	}
	c.Kind, c.Tag = fetch.ContentOptional, tag
	at, ok := address(w)
	c.Ptr, c.Elem = append(fetch.Trail{}, at...), f.elem(w.t)
	return ok && c.Elem != nil
}

// cxxVariant describes a variant. All alternatives lie in one union.
func (f *frame) cxxVariant(v value, c *fetch.Content) bool {
	tag, ok := v.loaded("_M_index|__impl.__index|__impl_.__index")
	w, ok2 := v.follow("_M_u|__impl.__data|__impl_.__data")
	if !ok || !ok2 {
		return false
	}
	off, isConst := w.p.sym.isConst()
	if !isConst {
		return false
	}
	c.Kind, c.Tag, c.Style = fetch.ContentVariant, tag, fetch.StyleIndex
	for i := range maxFields {
		t, ok := f.parameter(v.t, i)
		if !ok {
			break
		}
		e := f.elem(f.whole(t))
		if e == nil {
			return false
		}
		c.Members = append(c.Members, fetch.ContentMember{Off: int64(off), Elem: e, Cases: []uint64{uint64(i)}})
	}
	return len(c.Members) > 0
}

func (f *frame) cxxSpan(v value, c *fetch.Content) bool {
	p, ok := v.follow("_M_ptr|__data_|__data")
	if !ok || p.t.kind != kindPointer {
		return false
	}
	elem := f.whole(f.resolve(p.t.elem))
	c.Kind, c.Stride, c.Elem = fetch.ContentSequence, elem.size, f.elem(elem)
	if c.Ptr, ok = load(p); !ok || elem.size <= 0 || c.Elem == nil {
		return false
	}
	if c.Count, ok = v.loaded("_M_extent._M_extent_value|__size_|__size"); ok {
		return true
	}
	for p := range v.t.entry.Children() {
		if n, ok := p.Int(dwarf.AttrConstValue); ok && p.Tag() == dwarf.TagTemplateValueParameter && n >= 0 {
			c.Count = fetch.Trail{{Op: fetch.StepAnd}, {Op: fetch.StepAdd, Imm: uint64(n)}}
			return true
		}
	}
	return false
}

// cxxTime describes a duration, or a point in time as the duration since its clock's epoch: a
// number with a unit.
func (f *frame) cxxTime(v value, c *fetch.Content) bool {
	if w, ok := v.follow("__d_|__d"); ok {
		v = w
	}
	n, ok := v.follow("__r|__rep_")
	period, ok2 := f.parameter(f.whole(v.t), 1)
	if !ok || !ok2 || n.t.kind != kindInt && n.t.kind != kindUint && n.t.kind != kindFloat {
		return false
	}
	off, isConst := n.p.sym.isConst()
	_, args, _ := strings.Cut(period.entry.Name(), "<")
	unit, known := map[string]string{
		"1,1": "s", "1,1000": "ms", "1,1000000": "us", "1,1000000000": "ns", "60,1": "min", "3600,1": "h", "86400,1": "d",
	}[strings.NewReplacer(" ", "", "l", "", "L", "", ">", "").Replace(args)]
	if !isConst || !known || off != 0 {
		return false
	}
	e := f.plainContent(n.t, 0, 0)
	if e == nil {
		return false
	}
	c.Kind, c.Type = fetch.ContentPlain, e.Type
	c.Type.Layout = &fetch.Layout{Name: c.Name, Unit: unit}
	c.Size = n.t.size
	return true
}
