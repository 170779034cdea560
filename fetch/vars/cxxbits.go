package vars

import (
	"debug/dwarf"

	"kprobe/fetch"
)

// boolContent describes a single bit.
func boolContent() *fetch.Content {
	return &fetch.Content{Kind: fetch.ContentPlain, Name: "bool", Size: 1, Type: fetch.Type{Base: fetch.Unsigned, Size: 1, Layout: &fetch.Layout{Name: "bool", Bool: true}}}
}

// cxxBits describes vector<bool>.
func (f *frame) cxxBits(v value, c *fetch.Content) (ok bool) {
	c.Kind, c.Elem = fetch.ContentBits, boolContent()
	if c.Ptr, ok = v.loaded("__begin_"); ok {
		c.Count, ok = v.loaded("__size_")
		return ok
	}
	const start, finish = "_M_impl._M_start.", "_M_impl._M_finish."
	ok2, ok3 := false, false
	if c.Ptr, ok = v.loaded(start + "_M_p"); !ok {
		return false
	}
	c.Bytes, ok = f.between(v, start+"_M_p", finish+"_M_p")
	c.First, ok2 = v.loaded(start + "_M_offset")
	c.Cap, ok3 = v.loaded(finish + "_M_offset")
	return ok && ok2 && ok3
}

// cxxBitset describes a bitset. Only its type says how many bits it has.
func (f *frame) cxxBitset(v value, c *fetch.Content) bool {
	n := int64(-1)
	for p := range v.t.entry.Children() {
		if k, ok := p.Int(dwarf.AttrConstValue); ok && p.Tag() == dwarf.TagTemplateValueParameter {
			n = k
		}
	}
	c.Kind, c.Elem, c.Ptr = fetch.ContentBits, boolContent(), fetch.Trail{}
	c.Count = fetch.Trail{{Op: fetch.StepAnd}, {Op: fetch.StepAdd, Imm: uint64(n)}}
	if n == 0 {
		return true
	}
	w, ok := v.follow("_M_w|__first_")
	if !ok {
		return false
	}
	at, ok := address(w)
	c.Ptr = append(c.Ptr, at...)
	return ok && n > 0 && (n+7)/8 <= v.t.size
}

// cxxWeak describes a weak_ptr, whose object may be gone.
func (f *frame) cxxWeak(v value, c *fetch.Content) bool {
	if !f.cxxPointer(v, c) {
		return false
	}
	ok := false
	if c.Tag, ok = v.loaded("_M_refcount._M_pi._M_use_count"); ok {
		return true
	}
	if c.Tag, ok = v.loaded("__cntrl_.__shared_owners_"); !ok {
		if c.Tag, ok = v.sharedOwners(); !ok {
			return false
		}
	}
	c.Tag = append(c.Tag, fetch.Step{Op: fetch.StepAdd, Imm: 1}) // libc++ counts from -1
	return true
}

// sharedOwners returns the trail to libc++'s count of owners if the count's class is only
// declared. In optimized programs its definition is in the library's file only. The library's
// ABI fixes its first members: a table of functions, and the count.
func (v value) sharedOwners() (fetch.Trail, bool) {
	w, ok := v.follow("__cntrl_")
	if !ok || w.t.kind != kindPointer || w.t.elem.IsZero() {
		return nil, false
	}
	to := v.f.resolve(w.t.elem)
	trail, ok := load(w)
	if to.kind != kindStruct || !to.entry.Flag(dwarf.AttrDeclaration) || to.entry.Name() != "__shared_weak_count" {
		return nil, false
	}
	return append(trail, fetch.Step{Op: fetch.StepLoad, Imm: 8, Size: 8}), ok
}

func (f *frame) cxxInitializers(v value, c *fetch.Content) bool {
	p, ok := v.follow("_M_array|__begin_")
	if !ok || p.t.kind != kindPointer || p.t.elem.IsZero() {
		return false
	}
	elem := f.whole(f.resolve(p.t.elem))
	ok2 := false
	c.Ptr, ok = load(p)
	c.Count, ok2 = v.loaded("_M_len|__size_")
	c.Kind, c.Stride, c.Elem = fetch.ContentSequence, elem.size, f.elem(elem)
	return ok && ok2 && elem.size > 0 && c.Elem != nil
}
