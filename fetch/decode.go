package fetch

import (
	"encoding/binary"
	"fmt"
)

// Decode decodes the argument data of one record: one Value for each of Fields. It reuses vals
// and its contents. Strings alias rec, those of symbols alias vals. rec may be longer than its
// data. Errors wrap ErrCorrupt, and vals then has the values before the error.
func (p *Program) Decode(rec []byte, vals []Value) ([]Value, error) {
	vals = vals[:0]
	if len(rec) < p.Fixed {
		return vals, fmt.Errorf("decode %d bytes where %d are fixed: %w", len(rec), p.Fixed, ErrCorrupt)
	}
	for i := range p.fields {
		a := &p.Args[i]
		if len(vals) < cap(vals) {
			vals = vals[:i+1]
		} else {
			vals = append(vals, Value{})
		}
		v := &vals[i]
		*v = Value{Elems: v.Elems[:0], symbol: v.symbol}
		if a.FaultBit >= 0 && hasBit(rec, a.FaultBit) {
			v.Fault = true
			continue
		}
		if l := a.Type.Layout; l != nil && !a.Type.IsText() && (l.Members != nil || a.Type.Count != 0) {
			if !a.Type.decode(rec[a.Slot:a.Slot+a.Size], v) {
				return vals[:i], fmt.Errorf("decode %s: %w", p.fields[i].Name, ErrCorrupt)
			}
			continue
		}
		if a.Type.Count == 0 {
			if !p.one(rec, a, 0, v) {
				return vals[:i], fmt.Errorf("decode %s: %w", p.fields[i].Name, ErrCorrupt)
			}
			continue
		}
		for j := 0; j < int(a.Type.Count); j++ {
			v.Elems = append(v.Elems, Value{})
			if !p.one(rec, a, j, &v.Elems[j]) {
				return vals[:i], fmt.Errorf("decode %s[%d]: %w", p.fields[i].Name, j, ErrCorrupt)
			}
		}
	}
	for i := range p.Texts {
		if !p.memberText(rec, &p.Texts[i], vals) {
			return vals, fmt.Errorf("decode a text of %s: %w", p.fields[p.Texts[i].Arg].Name, ErrCorrupt)
		}
	}
	for i := range vals {
		p.cut(&p.Args[i], &vals[i])
	}
	return vals, nil
}

// memberText puts a text into the structure that points to it.
func (p *Program) memberText(rec []byte, m *MemberText, vals []Value) bool {
	v := &vals[m.Arg]
	if v.Fault {
		return true
	}
	for _, i := range m.Path {
		if i >= len(v.Elems) {
			return false
		}
		v = &v.Elems[i]
	}
	if v.Int == 0 && p.Args[m.Text].Store == StoreString {
		return true // it has none
	}
	*v = Value{Elems: v.Elems[:0], Int: v.Int}
	return p.one(rec, &p.Args[m.Text], 0, v)
}

// one decodes a scalar or one element.
func (p *Program) one(rec []byte, a *ArgProgram, i int, v *Value) bool {
	switch {
	case a.Store == StoreSymbol:
		v.Int = binary.LittleEndian.Uint64(rec[a.Slot:])
		v.symbol = AppendSymbol(v.symbol[:0], v.Int, p.Symbols)
		v.Bytes = v.symbol
	case a.Type.Base == Container:
		return p.container(rec, a, v)
	case a.Type.IsText():
		text, w := textAt(rec, a.Slot+8*i)
		if w&TextFault != 0 {
			v.Int = wordAddress(w)
			v.Address = v.Int != 0
			v.Fault = !v.Address
			return true
		}
		v.Bytes, v.Truncated = text, w&TextTruncated != 0
		return text != nil
	case a.Type.Count == 0:
		v.Int = binary.LittleEndian.Uint64(rec[a.Slot:])
	default:
		v.Int = a.Type.element(rec[a.Slot:a.Slot+a.Size], i)
	}
	return true
}

// container decodes a container.
func (p *Program) container(rec []byte, a *ArgProgram, v *Value) bool {
	b, w := textAt(rec, a.Slot)
	c := a.Type.Layout.Content
	switch {
	case w&TextFault != 0:
		v.Fault = true
		return true
	case b == nil:
		return false
	case a.Store == StoreCounted:
		return c.decodeCopy(b, w&TextTruncated != 0, v)
	case w&TextTruncated != 0:
		v.Truncated, v.None = true, true
		return true
	}
	rest, ok := c.decode(b, v)
	return ok && len(rest) == 0
}

// textAt returns the text of the word at offset at, nil when the word leads out
// of the record, and the word.
func textAt(rec []byte, at int) ([]byte, uint64) {
	w := binary.LittleEndian.Uint64(rec[at:])
	off, n := uint64(uint32(w)), w>>32&textLenMask
	if w&TextFault != 0 || off > uint64(len(rec)) || n > uint64(len(rec))-off {
		return nil, w
	}
	return rec[off : off+n : off+n], w
}
