package vars

import (
	"fmt"

	"kprobe/fetch"
)

// pieceList collects the places of a value's bytes.
type pieceList struct {
	parts   []fetch.Part
	missing []piece // parts that have no place
}

// maxPieces limits the pieces of one value.
const maxPieces = 64

// add lists the pieces of the size bytes at a place. They belong at off of the value.
func (l *pieceList) add(p place, off, size int64) error {
	if len(l.parts) > maxPieces {
		return errPieces
	}
	switch p.kind {
	case inPieces:
		at := int64(0)
		for _, q := range p.pieces {
			if q.off >= size {
				break
			}
			if q.off < at {
				return errBadExpression
			}
			l.skip(off+at, q.off-at)
			n := min(q.size, size-q.off)
			if err := l.add(q.place, off+q.off, n); err != nil {
				return err
			}
			at = q.off + n
		}
		l.skip(off+at, size-at)
		return nil
	case isPointer, isNowhere:
		l.skip(off, size)
		return nil
	case isValue:
		if size > 8 && !(p.isXMM() && size <= 16) {
			return p.tooWide()
		}
	case isBytes:
		if int64(len(p.bytes)) < size {
			return unknown("its constant has %d bytes of %d", len(p.bytes), size)
		}
	}
	for from := int64(0); from < size; {
		n := int64(8)
		for n > size-from {
			n /= 2
		}
		q, err := p.part(from, n)
		if err != nil {
			return err
		}
		s := q.sym
		switch q.kind {
		case inMemory:
			s = s.load(uint8(n))
		case isBytes:
			if s, err = q.value(n); err != nil {
				return err
			}
		}
		l.parts = append(l.parts, fetch.Part{Chain: s.whole(), Off: int(off + from), Size: uint8(n)})
		from += n
	}
	return nil
}

func (l *pieceList) skip(off, size int64) {
	if size > 0 {
		l.missing = append(l.missing, piece{off: off, size: size})
	}
}

// lacks reports whether some of the size bytes at off have no place.
func (l *pieceList) lacks(off, size int64) bool {
	for _, m := range l.missing {
		if off < m.off+m.size && m.off < off+size {
			return true
		}
	}
	return false
}

// whole makes a variable of a value that lies in several places. Each piece is read on its
// own. Members without a place are marked. If no member has a place, or a part of a number has
// none, the variable has no value.
func (v value) whole(out fetch.Variable) (fetch.Variable, error) {
	var list pieceList
	if err := list.add(v.p, 0, int64(out.Type.Size)*int64(max(out.Type.Count, 1))); err != nil {
		return out, err
	}
	if len(list.missing) > 0 {
		t, some := without(out.Type, 0, &list)
		if !some && v.p.why != nil {
			return out, v.p.why
		}
		if !some {
			return out, fmt.Errorf("part of it is %w", fetch.ErrNoValue)
		}
		out.Type = t
	}
	if len(list.parts) == 0 {
		return out, fetch.ErrNoValue
	}
	out.Parts, out.Chain = list.parts, fetch.Chain{Source: fetch.SourceImm}
	return out, nil
}

// without returns a type without the members that have no place. some is false if nothing is
// left of it.
func without(t fetch.Type, off int64, list *pieceList) (out fetch.Type, some bool) {
	size := int64(t.Size) * int64(max(t.Count, 1))
	if l := t.Layout; l != nil && t.Base == fetch.String && l.Len != 0 && list.lacks(off+int64(l.Len), 8) {
		return fetch.Type{Base: fetch.Hex, Size: 8, Layout: &fetch.Layout{Gone: fetch.OptimizedOut}}, false // a text without its length
	}
	if !list.lacks(off, size) || t.Layout != nil && t.Layout.Members != nil && len(t.Layout.Members) == 0 {
		return t, true
	}
	gone := fetch.Type{Base: t.Base, Size: t.Size, Layout: &fetch.Layout{Gone: fetch.OptimizedOut}}
	if t.Layout == nil || t.Layout.Members == nil {
		return gone, false
	}
	l := *t.Layout
	l.Members = append([]fetch.Member(nil), l.Members...)
	for i := range l.Members {
		m := &l.Members[i]
		var there bool
		m.Type, there = without(m.Type, off+int64(m.Off), list)
		some = some || there
		if !there && l.Switch == i+1 {
			return gone, false // the variant isn't known
		}
	}
	t.Layout = &l
	return t, some
}
