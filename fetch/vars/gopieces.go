package vars

import (
	"debug/dwarf"
	"fmt"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// respaced puts the pieces of a Go variable where they belong: Go's compiler lists
// the parts of a structure one behind the other and leaves the padding between
// them out (cmd/compile/internal/ssa/debug.go). It lists no part that is a constant
// everywhere, so a location is known where it has a piece for each part. One
// without pieces has the only part that is left, or all of the variable in memory.
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
	unknown := fmt.Errorf("which of its parts are where is not known: %w", fetch.ErrNoValue)
	switch {
	case p.kind == inMemory && (f.staysInMemory(t) || known && len(parts) <= 1 || f.hasPieces(e, list) || f.usedWhole(p)):
		return p, nil
	case p.kind == isValue && known && len(parts) <= 1:
		return f.onlyPart(t, p), nil
	case p.kind != inPieces, !known:
		return p, unknown
	case laidOut(p.pieces, parts): // as unoptimized code is passed it, with the padding
		return p, nil
	case len(parts) != len(p.pieces):
		return p, unknown
	}
	out := place{kind: inPieces}
	for i, q := range p.pieces {
		if q.size != parts[i].size {
			return p, unknown
		}
		out.pieces = append(out.pieces, piece{parts[i].off, q.size, q.place})
	}
	return out, nil
}

// laidOut reports pieces that are where a value's parts are, each with its own piece.
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

// onlyPart puts the only part of a value that has padding where it belongs.
func (f *frame) onlyPart(t ctype, p place) place {
	var parts []piece
	if p.kind != isValue || t.kind != kindStruct && t.kind != kindArray || t.size <= 8 || !f.goLeaves(t, 0, &parts, 0) || len(parts) != 1 || parts[0].size > 8 {
		return p
	}
	return place{kind: inPieces, pieces: []piece{{parts[0].off, parts[0].size, p}}}
}

// goLeaves lists the parts that Go's compiler takes a value apart into.
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
