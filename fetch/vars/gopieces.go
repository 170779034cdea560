package vars

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// respaced puts the pieces of a Go variable where they belong: Go's compiler lists
// the parts of a structure one behind the other and leaves the padding between
// them out (cmd/compile/internal/ssa/debug.go). Pieces that fill the value, or lie
// one part each, are known; others have no value.
func (f *frame) respaced(e *debuginfo.Entry, p place) (place, error) {
	if p.kind != inPieces && p.kind != isValue || !f.language(*e).IsGo() {
		return p, nil
	}
	t, err := f.typeOf(e)
	if err != nil {
		return p, err
	}
	if p.kind == isValue {
		return f.onlyPart(t, p), nil
	}
	var parts []piece
	if !f.goLeaves(t, 0, &parts, 0) {
		return p, fmt.Errorf("which of its parts are where is not known: %w", fetch.ErrNoValue)
	}
	total, padded := int64(0), false
	for i, q := range parts {
		padded = padded || i > 0 && q.off != parts[i-1].off+parts[i-1].size
		total = q.off + q.size
	}
	if !padded || len(p.pieces) > 0 && p.pieces[len(p.pieces)-1].off+p.pieces[len(p.pieces)-1].size == max(t.size, total) {
		return p, nil
	}
	out := place{kind: inPieces}
	for i, q := range p.pieces {
		if i >= len(parts) || q.size != parts[i].size {
			return p, fmt.Errorf("which of its parts are where is not known: %w", fetch.ErrNoValue)
		}
		out.pieces = append(out.pieces, piece{parts[i].off, q.size, q.place})
	}
	return out, nil
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
