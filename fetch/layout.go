package fetch

import (
	"fmt"
	"slices"
)

// layout assigns every argument its slot: fault bits first, then the slots.
func (c *compiler) layout() {
	p := c.prog
	bits := 0
	for i := range p.Args {
		a := &p.Args[i]
		a.FaultBit = -1
		if a.Store == StoreMem || a.Store == StoreParts && a.partsMayFault(p.Entry) || (a.Store == StoreValue || a.Store == StoreSymbol) && a.MayFault(p.Entry) {
			a.FaultBit = bits
			bits++
		}
	}
	p.Bitmap = (bits + 63) / 64 * 8
	at := p.Bitmap
	for i := range p.Args {
		a := &p.Args[i]
		a.Slot, a.Size = at, 8
		if n := int(a.Type.Count); n != 0 {
			a.Size = (n*int(a.Type.Size) + 7) &^ 7
		}
		at += a.Size
	}
	p.Fixed = at
}

func (a *ArgProgram) partsMayFault(entry []Capture) bool {
	return slices.ContainsFunc(a.Parts, func(p Part) bool { return p.MayFault(entry) })
}

// tooBig refuses a record that is larger than one can be: parse counts what a
// definition says, here is what debug information has made of it. ends are where
// the definition's arguments end in the program's.
func (c *compiler) tooBig(ends []int) *SyntaxError {
	p := c.prog
	if p.Fixed <= MaxData {
		return nil
	}
	col := 0
	for i, end := range ends {
		col = c.d.Args[i].col
		if a := &p.Args[max(end-1, 0)]; a.Slot+a.Size > MaxData {
			break
		}
	}
	return newError(EventTooBig, c.d.Text, col, fmt.Sprintf("%d bytes, and a record has room for %d: fetch fewer values, or parts of them", p.Fixed, MaxData))
}

// extend narrows v to the type's size, takes a bitfield out of it, and
// extends it to 64 bits as the type prints.
func (t Type) extend(v uint64) uint64 {
	if t.BitWidth != 0 {
		if t.Base == Signed {
			return uint64(int64(v<<(64-t.BitWidth-t.BitOff)) >> (64 - t.BitWidth))
		}
		return v >> t.BitOff & (1<<t.BitWidth - 1)
	}
	switch signed := t.Base == Signed; t.Size {
	case 1:
		if signed {
			return uint64(int64(int8(v)))
		}
		return v & 0xff
	case 2:
		if signed {
			return uint64(int64(int16(v)))
		}
		return v & 0xffff
	case 4:
		if signed {
			return uint64(int64(int32(v)))
		}
		return v & 0xffffffff
	}
	return v
}

// element reads element i of size bytes, extended.
func (t Type) element(b []byte, i int) uint64 {
	n := int(t.Size)
	var v uint64
	for j := n - 1; j >= 0; j-- {
		v = v<<8 | uint64(b[i*n+j])
	}
	return t.extend(v)
}
