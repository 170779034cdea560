package vars

import (
	"debug/dwarf"
	"strings"
)

// leaf is one of the numbers that make up a value.
type leaf struct {
	off, size int64
	float     bool
}

func (l leaf) overlaps(o leaf) bool { return l.off < o.off+o.size && o.off < l.off+l.size }

// leafList are all numbers that make up a value.
type leafList struct {
	list  []leaf
	kinds []typeKind // the kind of each number
	mixed bool       // variants have numbers of different kinds in the same place
}

// maxLeaves is one more than the numbers that are passed in registers.
const maxLeaves = 3

// made says what a value consists of.
type made uint8

const (
	ofNumbers made = iota
	ofMore         // of something other than numbers, or of too many numbers
	ofUnknown      // debug information doesn't say
)

// leaves lists the numbers that make up a value.
func (f *frame) leaves(t ctype, off int64, out *leafList, depth int) made {
	if depth > maxNested {
		return ofUnknown
	}
	switch t.kind {
	case kindStruct:
		return f.structLeaves(t, off, out, depth)
	case kindInt, kindUint, kindChar, kindBool, kindFloat, kindPointer, kindReference, kindEnum:
		switch {
		case t.size <= 0 || t.size > 8:
			return ofUnknown
		case len(out.list) == maxLeaves:
			return ofMore
		}
		kind := t.kind
		switch {
		case kind == kindReference:
			kind = kindPointer
		case kind == kindInt || kind == kindEnum && t.signed:
			kind = kindInt
		case kind != kindPointer && kind != kindFloat:
			kind = kindUint
		}
		out.list = append(out.list, leaf{off, t.size, t.kind == kindFloat})
		out.kinds = append(out.kinds, kind)
		return ofNumbers
	case kindArray:
		switch {
		case isVector(t):
			return ofUnknown
		case t.size > 0:
			return ofMore
		}
	}
	if t.size == 0 { // (), PhantomData, !
		return ofNumbers
	}
	return ofUnknown
}

func (f *frame) structLeaves(t ctype, off int64, out *leafList, depth int) made {
	t = f.whole(t)
	name := t.entry.Name()
	if t.entry.Tag() == dwarf.TagUnionType || t.entry.Flag(dwarf.AttrDeclaration) || strings.HasPrefix(name, "__m") || strings.HasPrefix(name, "Simd<") {
		return ofUnknown // unions consist of numbers or of bytes; vectors
	}
	var tag *leaf
	var variants []leafList
	is := ofNumbers
	for _, m := range f.members(t) {
		if m.static.Unit() != nil {
			continue
		}
		if n, ok := m.typ.entry.Int(dwarf.AttrByteSize); m.tag && ok && n > m.typ.size {
			return ofUnknown // a number of 128 bits, of which only the lower half is read
		}
		to := out
		if m.variant && !m.tag {
			to = &leafList{}
		}
		if is = max(is, f.leaves(m.typ, off+m.off, to, depth+1)); is == ofUnknown {
			return is
		}
		switch {
		case m.tag && len(out.list) > 0:
			tag = &out.list[len(out.list)-1]
		case m.variant && !m.tag:
			variants = append(variants, *to)
		}
	}
	if is == ofMore || len(variants) == 0 {
		return is
	}
	if tag == nil { // there is only one possible variant
		if len(variants) > 1 || len(out.list) > 0 {
			return ofUnknown
		}
		*out = variants[0]
		return ofNumbers
	}
	return out.join(*tag, variants)
}

// join adds the numbers of the variants to the tag, which is the last number in the list.
func (l *leafList) join(tag leaf, variants []leafList) made {
	var with []leafList
	for _, v := range variants {
		if len(v.list) > 0 {
			with = append(with, v)
		}
		l.mixed = l.mixed || v.mixed
	}
	if len(with) == 0 {
		return ofNumbers
	}
	for _, v := range with {
		for _, x := range v.list {
			switch {
			case !x.overlaps(tag):
			case len(with) > 1:
				return ofMore
			case x.off != tag.off || x.size != tag.size:
				return ofUnknown
			default: // the tag lies in the number, as a value that the number can't have
				n := len(l.list) - 1
				l.list, l.kinds = append(l.list[:n], v.list...), append(l.kinds[:n], v.kinds...)
				return ofNumbers
			}
		}
	}
	one := with[0]
	for _, v := range with {
		if len(v.list) > 1 || v.list[0] != one.list[0] {
			return ofMore
		}
		l.mixed = l.mixed || v.kinds[0] != one.kinds[0]
	}
	l.list, l.kinds = append(l.list, one.list...), append(l.kinds, one.kinds...)
	return ofNumbers
}

func inOrder(l []leaf) []leaf {
	if l[0].off > l[1].off {
		l[0], l[1] = l[1], l[0]
	}
	return l
}

// isPair reports whether two numbers lie where rustc puts the numbers of a pair: each at a
// multiple of its size, and with no more bytes after them than the larger one's alignment
// needs.
func (f *frame) isPair(t ctype, l []leaf) bool {
	align := max(l[0].size, l[1].size)
	if n, ok := t.entry.Int(attrAlignment); ok && n != align {
		return false
	}
	second := (l[0].size + l[1].size - 1) &^ (l[1].size - 1)
	return l[0].off == 0 && l[1].off == second && t.size == (second+l[1].size+align-1)&^(align-1)
}
