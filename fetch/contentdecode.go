package fetch

import (
	"encoding/binary"

	"kprobe/symbols"
)

// decode makes a Value from what a walker has written. ok is false if b is nothing that one
// writes.
func (c *Content) decode(b []byte, v *Value) (rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	status := b[0]
	b = b[1:]
	switch status {
	case contentThere:
	case contentMore:
		v.Truncated = true
	case contentCut:
		v.Truncated, v.None = true, true
		return b, true
	case contentFault:
		v.Fault = true
		return b, true
	case contentInvalid:
		v.Invalid = true
		return b, true
	case contentNone:
		v.None = true
		return b, true
	default:
		return nil, false
	}
	switch c.Kind {
	case ContentPlain:
		n := int(c.Size)
		if len(b) < n {
			return nil, false
		}
		return b[n:], c.plainValue(b[:n], v)
	case ContentTime:
		if len(b) < 16 {
			return nil, false
		}
		v.Bytes = appendGoTime(nil, binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
		return b[16:], true
	case ContentText:
		if len(b) < 2 || len(b)-2 < int(binary.LittleEndian.Uint16(b)) {
			return nil, false
		}
		n := int(binary.LittleEndian.Uint16(b))
		v.Bytes = b[2 : 2+n : 2+n]
		return b[2+n:], true
	case ContentStruct:
		for i := range c.Members {
			if b, ok = v.add(c.Members[i].Elem, b); !ok {
				return nil, false
			}
		}
		return b, true
	case ContentPointer, ContentOptional:
		return v.add(c.Elem, b)
	case ContentVariant:
		if len(b) < 2 {
			return nil, false
		}
		i := int(binary.LittleEndian.Uint16(b))
		if i >= len(c.Members) {
			return nil, false
		}
		v.Int = uint64(i)
		return v.add(c.Members[i].Elem, b[2:])
	case ContentInterface:
		if len(b) < 8 || c.Dynamic == nil {
			return nil, false
		}
		v.Int = binary.LittleEndian.Uint64(b)
		if v.dynamic = c.Dynamic(v.Int); v.dynamic == nil {
			return nil, false
		}
		return v.add(v.dynamic, b[8:])
	}
	if len(b) < 2 {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint16(b))
	b = b[2:]
	for range n {
		if b, ok = c.addElement(v, b); !ok {
			return nil, false
		}
	}
	return b, true
}

// add decodes one more element.
func (v *Value) add(c *Content, b []byte) ([]byte, bool) {
	v.Elems = append(v.Elems, Value{})
	return c.decode(b, &v.Elems[len(v.Elems)-1])
}

// addElement decodes an element of a container; of those that keep keys and values
// apart it is a pair.
func (c *Content) addElement(v *Value, b []byte) ([]byte, bool) {
	key, val := c.Elem, (*Content)(nil)
	switch c.Kind {
	case ContentBTree:
		key, val = c.BTree.Key, c.BTree.Val
	case ContentMap:
		key, val = c.Map.KeyElem, c.Map.ValElem
	}
	if val == nil {
		return v.add(key, b)
	}
	if len(b) == 0 || b[0] != contentThere {
		return nil, false
	}
	v.Elems = append(v.Elems, Value{})
	pair := &v.Elems[len(v.Elems)-1]
	b, ok := pair.add(key, b[1:])
	if !ok {
		return nil, false
	}
	return pair.add(val, b)
}

func (c *Content) plainValue(b []byte, v *Value) bool {
	v.Truncated = c.Type.partial()
	t := c.Type
	if t.Layout != nil || t.Count != 0 {
		return t.decode(b, v)
	}
	if len(b) < int(t.Size) {
		return false
	}
	v.Int = t.element(b, 0)
	return true
}

// decodeCopy makes a Value of a piece of memory that a detour has copied, of unit
// bytes a part; cut says that there was more.
func (c *Content) decodeCopy(b []byte, cut bool, v *Value) bool {
	unit := int(c.unit())
	if unit <= 0 {
		return false
	}
	elem := c
	switch c.Kind {
	case ContentSequence:
		if len(b)%unit != 0 {
			v.Invalid = true
			return true
		}
		v.Truncated = cut
		for i := 0; i < len(b); i += unit {
			v.Elems = append(v.Elems, Value{})
			if !c.Elem.decodeFlat(b[i:i+unit], &v.Elems[len(v.Elems)-1]) {
				return false
			}
		}
		return true
	case ContentPointer:
		if len(b) == 0 {
			v.None = true
			return true
		}
		v.Elems = append(v.Elems, Value{})
		elem, v = c.Elem, &v.Elems[0]
	}
	return len(b) >= unit && elem.decodeFlat(b, v)
}

// decodeFlat makes a Value of the bytes of one that is Flat.
func (c *Content) decodeFlat(b []byte, v *Value) bool {
	if c.Kind == ContentPlain {
		return len(b) >= int(c.Size) && c.plainValue(b[:c.Size], v)
	}
	w := walker{e: &evaluator{c: &Context{Mem: noMemory{}}}, elements: DefaultElements, depth: MaxDepth, reads: maxReads, end: 1 << 20, object: b}
	w.value(c, objectAt, 0)
	rest, ok := c.decode(w.e.dst, v)
	return ok && len(rest) == 0
}

// noMemory has nothing.
type noMemory struct{}

func (noMemory) ReadMemory([]byte, symbols.Addr) (int, error) { return 0, errNoProcess }
