package vars

import (
	"debug/dwarf"

	"kprobe/symbols/debuginfo"
)

// respaced puts the pieces of a Go variable where they belong. Go's compiler lists the parts
// of a structure one after the other, without the padding between them
// (cmd/compile/internal/ssa/debug.go). It doesn't list a part that is a constant everywhere.
// So a location is understood only if it has a piece for each part. A location without pieces
// has the only part that is left, or the whole variable in memory.
func (f *frame) respaced(e *debuginfo.Entry, p place) (place, error) {
	if p.kind != inPieces && p.kind != isValue && p.kind != inMemory || !f.language(*e).IsGo() {
		return p, nil
	}
	_, list, _ := e.LocationAt(dwarf.AttrLocation, f.pc)
	if len(list) == 0 || list[0].Everywhere() {
		return p, nil
	}
	t, err := f.typeOf(e)
	if err != nil {
		return p, err
	}
	var parts []piece
	known := f.goLeaves(t, 0, &parts, 0)
	unclear := unknown("it is not known where each of its parts is")
	switch {
	case p.kind == inMemory && (f.staysInMemory(t) || known && len(parts) <= 1 || f.hasPieces(e, list) || f.usedWhole(p)):
		return p, nil
	case p.kind == isValue && known && len(parts) <= 1:
		return f.onlyPart(t, p), nil
	case p.kind != inPieces, !known:
		return p, unclear
	case laidOut(p.pieces, parts): // with the padding, as parameters of unoptimized code have it
		return p, nil
	case len(parts) != len(p.pieces):
		return p, unclear
	}
	out := place{kind: inPieces}
	for i, q := range p.pieces {
		if q.size != parts[i].size {
			return p, unclear
		}
		out.pieces = append(out.pieces, piece{parts[i].off, q.size, q.place})
	}
	return out, nil
}

// laidOut reports whether each part of a value has a piece of its own that lies where the part
// does.
func laidOut(pieces, parts []piece) bool {
	i := 0
	for _, q := range pieces {
		switch {
		case i < len(parts) && q.off == parts[i].off && q.size == parts[i].size:
			i++
		case q.place.kind != isNowhere:
			return false
		}
	}
	return i == len(parts)
}

// onlyPart puts the only part of a padded value where it belongs.
func (f *frame) onlyPart(t ctype, p place) place {
	var parts []piece
	if p.kind != isValue || t.kind != kindStruct && t.kind != kindArray || t.size <= 8 || !f.goLeaves(t, 0, &parts, 0) || len(parts) != 1 || parts[0].size > 8 {
		return p
	}
	return place{kind: inPieces, pieces: []piece{{parts[0].off, parts[0].size, p}}}
}

// goLeaves lists the parts into which Go's compiler splits a value.
func (f *frame) goLeaves(t ctype, off int64, list *[]piece, depth int) bool {
	if depth > maxNested || len(*list) > 64 {
		return false
	}
	switch t.kind {
	case kindStruct:
		for _, m := range f.members(t) {
			if !f.goLeaves(m.typ, off+m.off, list, depth+1) {
				return false
			}
		}
		return true
	case kindArray:
		elem, stride := f.element(t)
		for i := range t.count {
			if !f.goLeaves(elem, off+i*stride, list, depth+1) {
				return false
			}
		}
		return true
	case kindComplex:
		*list = append(*list, piece{off: off, size: t.size / 2}, piece{off: off + t.size/2, size: t.size / 2})
		return true
	}
	if t.size <= 0 {
		return false
	}
	*list = append(*list, piece{off: off, size: t.size})
	return true
}
