package vars

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"kprobe/fetch"
)

// placeText writes a place down.
func placeText(p place) string {
	switch p.kind {
	case inMemory:
		return "at " + text(p.sym)
	case isValue:
		return "is " + text(p.sym)
	case isBytes:
		return fmt.Sprintf("bytes % x", p.bytes)
	case isPointer:
		return fmt.Sprintf("points to %#x%+d", p.target.Offset(), p.off)
	case isNowhere:
		return "nowhere"
	}
	var s string
	for _, q := range p.pieces {
		s += fmt.Sprintf("[%d+%d %s]", q.off, q.size, placeText(q.place))
	}
	return s
}

func text(s sym) string {
	c := s.whole()
	v := fetch.Variable{Chain: c}
	if s.src.Source == fetch.SourceVector {
		return fmt.Sprintf("%s, byte %d on", v.Where(), s.src.Off)
	}
	return v.Where()
}

// TestPlaces compiles descriptions of places: in registers, in pieces, of
// constants, of pointers that were left out.
func TestPlaces(t *testing.T) {
	b := newBench(t)
	ref := binary.LittleEndian.AppendUint32([]byte{opImplicitPtr}, uint32(b.types["variable"]))
	at := fmt.Sprintf("points to %#x", b.types["variable"])
	for _, c := range []struct {
		code []byte
		want string
	}{
		{[]byte{opReg0 + 5}, "is %di"},
		{[]byte{opRegx, 12}, "is %r12"},
		{[]byte{opReg0 + 16}, "is %ip"},
		{[]byte{opReg0 + 17}, "is %xmm0"},
		{[]byte{opReg0 + 31}, "is %xmm14"},
		{[]byte{opRegx, 32}, "is %xmm15"},
		{[]byte{opImplicitValue, 3, 1, 2, 3}, "bytes 01 02 03"},
		{append(slices.Clone(ref), 0), at + "+0"},
		{append(slices.Clone(ref), 0x7c), at + "-4"},
		{[]byte{opReg0, opPiece, 8, opReg0 + 1, opPiece, 8}, "[0+8 is %ax][8+8 is %dx]"},
		{[]byte{opPiece, 4, opReg0 + 1, opPiece, 8}, "[0+4 nowhere][4+8 is %dx]"},
		{[]byte{opLit0 + 5, opStackValue, opPiece, 4, opImplicitValue, 1, 9, opPiece, 1}, "[0+4 is \\5][4+1 bytes 09]"},
		{[]byte{opBreg0 + 7, 8, opPiece, 8, opPiece, 2}, "[0+8 at (%sp + 8)][8+2 nowhere]"},
		{append(append(slices.Clone(ref), 2), opPiece, 8), "[0+8 " + at + "+2]"},
		{[]byte{opReg0, opBitPiece, 16, 0, opReg0 + 1, opBitPiece, 8, 8}, "[0+2 is %ax][2+1 is (%dx >> 8)]"},
		{[]byte{opReg0, opBitPiece, 8, 3, opBreg0 + 7, 8, opBitPiece, 16, 24}, "[0+1 is (%ax >> 3)][1+2 at (%sp + 11)]"},
		{[]byte{opBreg0 + 7, 8, opBitPiece, 16, 4}, "[0+2 is (+8(%sp) >> 4)]"},
		{[]byte{opReg0 + 17, opBitPiece, 32, 64}, "[0+4 is %xmm0, byte 8 on]"},
		{[]byte{opReg0, opBitPiece, 1, 0, opReg0 + 1, opBitPiece, 15, 0, opReg0 + 2, opPiece, 4}, "[0+2 nowhere][2+4 is %cx]"},
		{[]byte{opReg0, opBitPiece, 4, 0, opReg0 + 1, opPiece, 4}, "[0+4 nowhere][4+1 nowhere]"}, // bytes of bits alone
		{[]byte{opReg0, opBitPiece, 16, 56, opBitPiece, 8, 0}, "[0+2 nowhere][2+1 nowhere]"},     // more than the register has
		{[]byte{opEntryValue, 1, opReg0 + 5, opStackValue}, "is %di"},                            // here is the entry
		{[]byte{opGNUEntryValue, 1, opReg0 + 5, opLit0 + 4, opPlus}, "at (%di + 4)"},
		{[]byte{opEntryValue, 3, opGNUEntryValue, 1, opReg0 + 5, opStackValue}, "is %di"},
		{[]byte{opCallFrameCFA, opStackValue}, "is (%sp + 8)"}, // before the first push
		{[]byte{opFbreg, 0x70}, "at (%sp - 8)"},                // frame base is the CFA
		{[]byte{opCallFrameCFA, opConsts, 0x78, opPlus}, "at %sp"},
	} {
		p, err := b.location(c.code...)
		if got := placeText(p); err != nil || got != c.want {
			t.Errorf("% x: %s, %v, want %s", c.code, got, err, c.want)
		}
	}
}

// TestRefusedPlaces has what is damaged, and what is right but can't be said
// with chains; the errors tell the two apart.
func TestRefusedPlaces(t *testing.T) {
	b := newBench(t)
	deep := []byte{opReg0}
	for range maxNested + 2 {
		deep = append([]byte{opEntryValue, byte(len(deep))}, deep...)
	}
	for name, code := range map[string][]byte{
		"DW_OP_push_object_address": {0x97},
		"DW_OP_call2":               {0x98, 0, 0},
		"DW_OP_div":                 {opLit0 + 8, opLit0 + 2, 0x1b},
		"DW_OP_mod":                 {opLit0 + 8, opLit0 + 2, 0x1d},
		"DW_OP_abs":                 {opLit0, 0x19},
		"DW_OP_rot":                 {opLit0, opLit0, opLit0, 0x17},
		"DW_OP_bra":                 {opLit0, 0x28, 0, 0},
		"DW_OP_skip":                {0x2f, 0, 0},
		"DW_OP_xderef":              {opLit0, opLit0, 0x18},
		"DW_OP_GNU_parameter_ref":   {opGNUParmRef, 0, 0, 0, 0},
		"DW_OP_reg33 (st0)":         {opRegx, 33},
		"two registers' sums":       {opBreg0, 1, opBreg0 + 1, 1, opMul, opBreg0 + 2, 1, opBreg0 + 3, 1, opMul, opPlus},
	} {
		if p, err := b.location(code...); !errors.Is(err, fetch.ErrNoValue) {
			t.Errorf("%s: %s, %v", name, placeText(p), err)
		}
	}
	for name, code := range map[string][]byte{
		"nothing":                      nil,
		"an empty stack":               {opPlus},
		"one value of two":             {opLit0, opPlus},
		"no value to load":             {opDeref},
		"a load of three bytes":        {opLit0, opDerefSize, 3},
		"a load of nothing":            {opLit0, opDerefSize, 0},
		"an address cut short":         {opAddr, 1, 2, 3},
		"half a number":                {opPlusUconst, 0x80},
		"a value that isn't there":     {opStackValue},
		"bytes past the end":           {opImplicitValue, 200, 1},
		"a bit piece of nothing":       {opReg0, opBitPiece, 0, 0},
		"a bit piece of everything":    append(append([]byte{opReg0, opBitPiece}, binary.AppendUvarint(nil, 1<<63)...), 0),
		"a piece of nothing":           {opReg0, opPiece, 0},
		"a piece of everything":        append([]byte{opReg0, opPiece}, binary.AppendUvarint(nil, 1<<63)...),
		"a pointer to no entry":        {opImplicitPtr, 0xff, 0xff, 0xff, 0x7f, 0},
		"a register nobody has":        {opBregx, 70, 0},
		"an index of no table":         {opAddrx, 3},
		"a constant of no table":       {opGNUConstIndex, 3},
		"TLS of no offset":             {opFormTLS},
		"TLS in a program without it":  {opBreg0, 0, opGNUTLS},
		"a stack without end":          slices.Repeat([]byte{opLit0}, maxStack+1),
		"pieces without end":           slices.Repeat([]byte{opReg0, opPiece, 1}, 300),
		"entry values of entry values": deep,
		"an entry value in pieces":     {opEntryValue, 3, opReg0, opPiece, 8},
		"over one":                     {opLit0, opOver},
		"swap of one":                  {opLit0, opSwap},
		"drop of none":                 {opDrop},
	} {
		p, err := b.location(code...)
		if err == nil || errors.Is(err, fetch.ErrNoValue) {
			t.Errorf("%s: %s, %v", name, placeText(p), err)
		}
	}
	if b.f.depth != 0 {
		t.Errorf("the depth is %d after all of it", b.f.depth)
	}
}

// FuzzLocation compiles arbitrary expressions; what comes out can be written
// down.
func FuzzLocation(f *testing.F) {
	b := newBench(f)
	f.Add([]byte{opBreg0 + 7, 8, opDeref, opPlusUconst, 4, opStackValue})
	f.Add([]byte{opReg0, opPiece, 8, opReg0 + 1, opPiece, 8})
	f.Add([]byte{opEntryValue, 1, opReg0 + 5, opStackValue})
	f.Add([]byte{opRegvalType, 17, 0x30, opConvert, 0x20, opStackValue})
	f.Add([]byte{opFbreg, 0x70, opCallFrameCFA, opMinus})
	f.Fuzz(func(t *testing.T, code []byte) {
		p, err := b.location(code...)
		if err == nil {
			placeText(p)
			p.value(8)
		}
		if b.f.depth != 0 || b.f.nested != 0 {
			t.Fatalf("depth %d, %d", b.f.depth, b.f.nested)
		}
	})
}

// TestPartsOfRegisters: what lies across a register's words is of both, and what
// reaches past its end is an error.
func TestPartsOfRegisters(t *testing.T) {
	low, general := xmm(3), place{kind: isValue, sym: register(fetch.DI)}
	shifted := func(p place, bits uint64) string {
		p.sym = p.sym.step(fetch.Step{Op: fetch.StepShr, Imm: bits})
		return placeText(p)
	}
	for _, c := range []struct {
		p         place
		off, size int64
		want      string // "" is an error
	}{
		{low, 0, 8, placeText(low)},
		{low, 0, 16, placeText(low)},
		{low, 4, 4, shifted(low, 32)},
		{low, 8, 8, placeText(vectorHalf(3))},
		{low, 12, 4, shifted(vectorHalf(3), 32)},
		{low, 4, 8, "[0+4 " + shifted(low, 32) + "][4+4 " + placeText(vectorHalf(3)) + "]"},
		{low, 6, 4, "[0+2 " + shifted(low, 48) + "][2+2 " + placeText(vectorHalf(3)) + "]"},
		{low, 4, 12, "[0+4 " + shifted(low, 32) + "][4+8 " + placeText(vectorHalf(3)) + "]"},
		{low, 4, 16, ""},
		{low, 16, 4, ""},
		{low, -4, 8, ""},
		{general, 4, 4, shifted(general, 32)},
		{general, 4, 8, ""},
		{general, 8, 1, ""},
		{general, -1, 1, ""},
		{vectorHalf(3), 4, 8, ""},
	} {
		p, err := c.p.part(c.off, c.size)
		have := ""
		if err == nil {
			have = placeText(p)
		}
		if have != c.want {
			t.Errorf("%d bytes at %d of %s: %s, %v, want %s", c.size, c.off, placeText(c.p), have, err, c.want)
		}
	}
}
