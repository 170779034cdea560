package fetch

import (
	"encoding/binary"
	"math"
)

// How the content of a container is written into a record, and read back. Each
// value is a byte that says what became of it, and, if it is there:
//
//	plain             its bytes
//	text              u16 length, and the bytes
//	sequence, list …  u16 number, and the elements
//	structure         the members
//	pointer, optional the value
//	variant           u16 index of the member, and the value
//	interface         u64 type, and the value
const (
	contentThere   = iota
	contentMore    // there, and more of it
	contentCut     // not looked at: too deep, or no room
	contentFault   // can't be read
	contentInvalid // what is in memory is no such value
	contentNone    // nothing: a null pointer, an empty optional
)

// walker takes containers apart.
type walker struct {
	e        *evaluator
	elements int
	depth    int
	reads    int
	end      int // of dst, beyond which values are cut
	// object is a value that lies in no memory, at objectAt.
	object []byte
	buf    [64]byte
}

// objectAt is where a value in registers is, for the paths: where no memory of a
// process is.
const objectAt = 0xffff << 48

// slack is the room that is kept for what is not looked at any more.
const slack = 2048

// putContent records a container: its word, and the content behind the texts.
func (e *evaluator) putContent(a *ArgProgram, at uint64, ok bool) {
	own := *e // which a walker keeps: other evaluations allocate nothing
	own.content(a, at, ok)
	e.dst, e.vector = own.dst, own.vector
}

func (e *evaluator) content(a *ArgProgram, at uint64, ok bool) {
	start := len(e.dst)
	w := walker{e: e, elements: DefaultElements, depth: DefaultDepth, reads: maxReads}
	if a.Bounds.Elements != 0 {
		w.elements = int(a.Bounds.Elements)
	}
	if a.Bounds.Depth != 0 {
		w.depth = int(a.Bounds.Depth)
	}
	w.end = start + min(maxContent, e.room()-slack)
	if !ok || w.end <= start {
		w := uint64(TextFault)
		if ok {
			w = TextTruncated | uint64(start-e.base)
		}
		e.putWord(a.Slot, w)
		return
	}
	if a.Parts != nil {
		w.object = make([]byte, a.Type.Layout.Content.Size)
		for i := range a.Parts {
			p := &a.Parts[i]
			v, ok := e.chain(&p.Chain, w.buf[:8])
			if !ok {
				e.putWord(a.Slot, TextFault)
				return
			}
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], v)
			if p.Off >= 0 && p.Off < len(w.object) {
				copy(w.object[p.Off:], b[:min(8, int(p.Size))])
			}
		}
		at = objectAt
	}
	w.value(a.Type.Layout.Content, at, 0)
	e.putWord(a.Slot, uint64(start-e.base)|uint64(len(e.dst)-start)<<32)
}

func (w *walker) read(b []byte, at uint64) bool {
	if off := at - objectAt; w.object != nil && off < uint64(len(w.object)) && uint64(len(b)) <= uint64(len(w.object))-off {
		copy(b, w.object[off:])
		return true
	}
	if w.reads--; w.reads < 0 {
		return false
	}
	return w.e.read(b, at)
}

// path follows a path.
func (w *walker) path(p Trail, v uint64) (uint64, bool) {
	for i := range p {
		s := &p[i]
		switch s.Op {
		case StepLoad:
			b := w.buf[:s.Size]
			if !w.read(b, v+s.Imm) {
				return 0, false
			}
			v = littleEndian(b)
		case StepDiff:
			if !w.read(w.buf[:8], v+s.Imm) {
				return 0, false
			}
			high := littleEndian(w.buf[:8])
			if !w.read(w.buf[:8], v+s.Imm2) {
				return 0, false
			}
			v = high - littleEndian(w.buf[:8])
		case StepAtMost:
			if !w.read(w.buf[:8], v+s.Imm2) {
				return 0, false
			}
			most := littleEndian(w.buf[:8])
			if !w.read(w.buf[:8], v+s.Imm) || littleEndian(w.buf[:8]) > most {
				return 0, false
			}
			v = littleEndian(w.buf[:8])
		case StepBase:
			if !w.read(w.buf[:8], v) || !w.read(w.buf[:8], littleEndian(w.buf[:8])+s.Imm) {
				return 0, false
			}
			v += littleEndian(w.buf[:8])
		case StepWhen, StepLabel:
			return 0, false // no container has one
		default:
			v = s.Op.Apply(v, s.Imm)
		}
	}
	return v, true
}

func littleEndian(b []byte) (v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

func (w *walker) put(b ...byte) { w.e.dst = append(w.e.dst, b...) }

// number opens a value with a number that is not known yet; its place is what
// count takes.
func (w *walker) number() int {
	w.put(contentThere, 0, 0)
	return len(w.e.dst) - 3
}

func (w *walker) count(at, n int, more bool) {
	if more {
		w.e.dst[at] = contentMore
	}
	binary.LittleEndian.PutUint16(w.e.dst[at+1:], uint16(n))
}

// undo takes back all from at on, and says why.
func (w *walker) undo(at int, why byte) {
	w.e.dst = append(w.e.dst[:at], why)
}

func (w *walker) full() bool { return len(w.e.dst) >= w.end || w.reads <= 0 }

// value records the value at an address.
func (w *walker) value(c *Content, at uint64, depth int) {
	if w.full() || depth > MaxDepth*2 {
		w.put(contentCut)
		return
	}
	switch c.Kind {
	case ContentPlain:
		w.plain(c, at)
	case ContentTime:
		w.time(c, at)
	case ContentText:
		w.text(c, at)
	case ContentStruct:
		w.put(contentThere)
		for i := range c.Members {
			w.value(c.Members[i].Elem, at+uint64(c.Members[i].Off), depth)
		}
	case ContentOptional:
		w.optional(c, at, depth)
	case ContentVariant:
		w.variant(c, at, depth)
	case ContentPointer:
		w.pointer(c, at, depth)
	case ContentInterface:
		w.iface(c, at, depth)
	default:
		if depth >= w.depth {
			w.put(contentCut)
			return
		}
		w.elementsOf(c, at, depth)
	}
}

func (w *walker) elementsOf(c *Content, at uint64, depth int) {
	switch c.Kind {
	case ContentSequence:
		w.sequence(c, at, depth)
	case ContentBits:
		w.bits(c, at)
	case ContentDeque:
		w.deque(c, at, depth)
	case ContentList:
		w.list(c, at, depth)
	case ContentTree:
		w.tree(c, at, depth)
	case ContentHash:
		w.hash(c, at, depth)
	case ContentBTree:
		w.btree(c, at, depth)
	case ContentMap:
		w.goMap(c, at, depth)
	default:
		w.put(contentInvalid)
	}
}

func (w *walker) plain(c *Content, at uint64) {
	n := int(c.Size)
	start := len(w.e.dst)
	if start+n > w.end {
		w.put(contentCut)
		return
	}
	w.put(contentThere)
	w.e.dst = appendZero(w.e.dst, n)
	if n > 0 && !w.read(w.e.dst[start+1:], at) {
		w.undo(start, contentFault)
	}
}

func (w *walker) time(c *Content, at uint64) {
	wall, ok := w.path(c.Ptr, at)
	ext, ok2 := w.path(c.Count, at)
	if !ok || !ok2 {
		w.put(contentFault)
		return
	}
	w.put(contentThere)
	w.e.dst = binary.LittleEndian.AppendUint64(w.e.dst, wall)
	w.e.dst = binary.LittleEndian.AppendUint64(w.e.dst, ext)
}

func (w *walker) text(c *Content, at uint64) {
	p, ok := w.path(c.Ptr, at)
	if !ok {
		w.put(contentFault)
		return
	}
	if c.Count == nil && c.Stride > 1 {
		w.wide(p, math.MaxUint64, int(c.Stride))
		return
	}
	if c.Count == nil {
		w.untilNUL(p)
		return
	}
	n, ok := w.path(c.Count, at)
	switch {
	case !ok:
		w.put(contentFault)
		return
	case int64(n) < 0:
		w.put(contentInvalid)
		return
	case c.Stride > 1:
		w.wide(p, n, int(c.Stride))
		return
	}
	size := int(min(n, maxContentText))
	start := w.number()
	w.e.dst = appendZero(w.e.dst, size)
	if size > 0 && !w.read(w.e.dst[start+3:], p) {
		w.undo(start, contentFault)
		return
	}
	w.count(start, size, n > uint64(size))
}

// untilNUL records text that ends with NUL; a null pointer is none.
func (w *walker) untilNUL(p uint64) {
	if p == 0 {
		w.put(contentNone)
		return
	}
	start := w.number()
	n := 0
	for n < maxContentText {
		chunk := min(64, maxContentText-n, int(pageSize-p%pageSize))
		if !w.read(w.buf[:chunk], p) {
			w.undo(start, contentFault)
			return
		}
		for i, c := range w.buf[:chunk] {
			if c == 0 {
				w.put(w.buf[:i]...)
				w.count(start, n+i, false)
				return
			}
		}
		w.put(w.buf[:chunk]...)
		n, p = n+chunk, p+uint64(chunk)
	}
	w.count(start, n, true)
}
