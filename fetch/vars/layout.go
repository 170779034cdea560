package vars

import (
	"debug/dwarf"
	"math/bits"

	"kprobe/fetch"
)

// Limits of what is recorded of a structure.
const (
	maxDepth    = 4    // structures inside structures
	maxRecorded = 2040 // bytes: 255 words
	maxElements = 64   // of an array
	maxFields   = 128
	maxEnum     = 4096
)

// words is the type of n bytes as words of the largest size that divides n. Bytes beyond the
// limit are cut off.
func words(n int64) (t fetch.Type, recorded int64) {
	size := int64(1)
	for size < 8 && n%(size*2) == 0 {
		size *= 2
	}
	count := min(n/size, 255)
	return fetch.Type{Base: fetch.Hex, Size: uint8(size), Count: uint8(count)}, count * size
}

// structType records a structure as words with a layout.
func (f *frame) structType(t ctype, depth int) fetch.Type {
	if t.size <= 0 || depth > maxDepth {
		return fetch.Type{}
	}
	out, have := words(t.size)
	l := &fetch.Layout{Name: t.name, Members: []fetch.Member{}, More: f.hasVirtualBase(t)}
	tags := 0
	for _, m := range f.members(t) {
		if m.static.Unit() != nil {
			continue
		}
		if len(l.Members) == maxFields || m.off < 0 || m.off+m.reach() > have {
			l.More = true
			continue
		}
		off := m.off
		inner := depth + 1
		if m.isCase {
			inner = depth // a variant is the enum itself, not a structure inside of it
		}
		ft := f.fieldType(m.typ, m.width, m.bit, inner)
		if ptr, length, ok := f.textParts(m.typ); ok && m.typ.kind == kindStruct && ft.Base != fetch.Container {
			off, ft = off+ptr, textAt(m.typ, ptr, length)
		}
		if m.lost {
			ft = fetch.Type{Base: fetch.Hex, Size: 1, Layout: &fetch.Layout{Gone: fetch.OptimizedOut}}
		}
		if ft.Size == 0 {
			l.More = true
			continue
		}
		if m.tag {
			tags++
			l.Switch = len(l.Members) + 1
		}
		l.Members = append(l.Members, fetch.Member{Name: m.shown(), Off: int(off), Type: ft, Case: m.isCase, Cases: m.cases})
	}
	switched(l, tags)
	out.Layout = l
	return out
}

// textAt describes a string with a length. It is recorded as the word with its address.
func textAt(t ctype, ptr, length int64) fetch.Type {
	return fetch.Type{Base: fetch.String, Size: 8, Layout: &fetch.Layout{Name: t.name, Len: int(length - ptr)}}
}

// switched narrows the cases of variants to what the deciding member can hold. Without a
// deciding member, or with several variant parts, all variants are shown.
func switched(l *fetch.Layout, tags int) {
	if tags != 1 {
		l.Switch = 0
		return
	}
	size := l.Members[l.Switch-1].Type.Size
	for i := range l.Members {
		for k := range l.Members[i].Cases {
			if size < 8 {
				l.Members[i].Cases[k] &= 1<<(8*size) - 1
			}
		}
	}
}

// arrayType records an array: numbers as an array of the definition language, bytes of text as
// text, and other elements as words with a layout.
func (f *frame) arrayType(t ctype, depth int) fetch.Type {
	if depth > maxDepth || t.count <= 0 {
		return fetch.Type{}
	}
	elem, stride := f.element(t)
	if stride <= 0 {
		return fetch.Type{}
	}
	n := min(t.count, maxElements)
	ft := f.fieldType(elem, 0, 0, depth+1)
	switch {
	case ft.Size == 0:
		return fetch.Type{}
	case elem.kind == kindChar && elem.size == 1:
		n = min(t.count, 255)
		return fetch.Type{Base: fetch.Char, Size: 1, Count: uint8(n), Layout: &fetch.Layout{Name: t.name, Text: true, More: n < t.count}}
	case ft.Count == 0 && int64(ft.Size) == stride && ft.Base != fetch.Container:
		ft.Count = uint8(n)
		if l := ft.Layout; l != nil {
			own := *l
			own.More, own.Name = n < t.count, t.name
			ft.Layout = &own
		} else if n < t.count {
			ft.Layout = &fetch.Layout{Name: t.name, More: true}
		}
		return ft
	}
	n = min(n, maxRecorded/stride)
	if n == 0 {
		return fetch.Type{}
	}
	out, have := words(n * stride)
	l := &fetch.Layout{Name: t.name, Array: true, More: n < t.count}
	at := int64(0)
	if ptr, length, ok := f.textParts(elem); ok && ft.Base != fetch.Container {
		at, ft = ptr, textAt(elem, ptr, length)
	}
	for i := range n {
		if i*stride+at+int64(ft.Size)*max(1, int64(ft.Count)) > have {
			l.More = true
			break
		}
		l.Members = append(l.Members, fetch.Member{Off: int(i*stride + at), Type: ft})
	}
	out.Layout = l
	return out
}

// maxDimensions limits the dimensions of an array.
const maxDimensions = 16

// element returns the type of an array's elements, and the distance between two of them in
// bytes. The elements of an array of several dimensions are arrays.
func (f *frame) element(t ctype) (elem ctype, stride int64) {
	elem = f.resolve(t.elem)
	next := f.dimension(t.entry, t.dim+1)
	if next < 0 {
		return elem, elem.size
	}
	size := elem.size
	for i := t.dim + 1; i < maxDimensions; i++ {
		n := f.dimension(t.entry, i)
		if n < 0 {
			break
		}
		if size *= min(n, 1<<20); size > 1<<40 {
			return ctype{}, 0
		}
	}
	row := ctype{kind: kindArray, size: size, entry: t.entry, elem: t.elem, count: next, dim: t.dim + 1}
	row.name = elem.name + dimensions(f, t.entry, row.dim)
	return row, row.size
}

// enumLayout reads the enumerators.
func (f *frame) enumLayout(t ctype) *fetch.Layout {
	l := &fetch.Layout{Name: t.name}
	single := true
	for c := range t.entry.Children() {
		if c.Tag() != dwarf.TagEnumerator || len(l.Enum) == maxEnum {
			continue
		}
		v, ok := c.Val(dwarf.AttrConstValue)
		if !ok {
			continue
		}
		n, ok := v.Int()
		if !ok {
			continue
		}
		u := uint64(n)
		if unused := 64 - 8*uint(t.size); t.size > 0 && t.size < 8 {
			u <<= unused
			if t.signed {
				u = uint64(int64(u) >> unused)
			} else {
				u >>= unused
			}
		}
		single = single && (u == 0 || bits.OnesCount64(u) == 1)
		l.Enum = append(l.Enum, fetch.Enumerator{Name: c.Name(), Value: u})
	}
	l.Flags = single && len(l.Enum) > 2
	return l
}
