package vars

import (
	"debug/dwarf"

	"kprobe/fetch"
)

// isEmpty reports whether values of a type have no bytes, in Go or Rust: struct{}, [0]T, ().
// C's arrays without elements don't count: elements may follow them in memory.
func (f *frame) isEmpty(t ctype) bool {
	if t.size != 0 || t.entry.Unit() == nil || t.entry.Flag(dwarf.AttrDeclaration) {
		return false
	}
	l := f.language(t.entry)
	if !l.IsGo() && !l.IsRust() {
		return false
	}
	switch t.kind {
	case kindStruct:
		return true
	case kindArray:
		return t.count == 0 && f.dimension(t.entry, t.dim) == 0
	case kindUnknown:
		return t.entry.Tag() == dwarf.TagBaseType && t.name == "()"
	}
	return false
}

// emptyType is how a value without bytes is recorded: as an empty value.
func emptyType(t ctype) fetch.Type {
	return fetch.Type{Base: fetch.Hex, Size: 1, Count: 1, Layout: &fetch.Layout{Name: t.name, Members: []fetch.Member{}, Array: t.kind == kindArray}}
}
