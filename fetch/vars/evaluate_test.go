package vars

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/dwarfbuilder"
	"github.com/go-delve/delve/pkg/dwarf/op"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// bench is an evaluator's surroundings: the frame of a real function's entry,
// and a unit built by hand with types of all sizes.
type bench struct {
	f     *frame
	unit  *debuginfo.Unit
	types map[string]uint64 // by name, offsets in the unit
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := dwarfbuilder.New()
	b.AddCompileUnit("h", 0x1000)
	types := map[string]uint64{}
	for _, x := range []struct {
		name string
		enc  dwarfbuilder.Encoding
		size uint16
	}{
		{"s8", dwarfbuilder.DW_ATE_signed, 1}, {"s16", dwarfbuilder.DW_ATE_signed, 2}, {"s32", dwarfbuilder.DW_ATE_signed, 4},
		{"s64", dwarfbuilder.DW_ATE_signed, 8}, {"u8", dwarfbuilder.DW_ATE_unsigned, 1}, {"u16", dwarfbuilder.DW_ATE_unsigned, 2},
		{"u32", dwarfbuilder.DW_ATE_unsigned, 4}, {"u64", dwarfbuilder.DW_ATE_unsigned, 8}, {"f32", dwarfbuilder.DW_ATE_float, 4},
		{"f64", dwarfbuilder.DW_ATE_float, 8}, {"x", dwarfbuilder.DW_ATE_signed, 16}, {"c", dwarfbuilder.DW_ATE_signed_char, 1},
	} {
		types[x.name] = uint64(b.AddBaseType(x.name, x.enc, x.size))
	}
	types["variable"] = uint64(b.AddVariable("pointed", 0, []byte{opAddr, 0, 0x50, 0, 0, 0, 0, 0, 0}))
	b.TagClose()
	abbrev, _, _, info, line, _, ranges, str, loc, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := debuginfo.New(debuginfo.Sections{Info: info, Abbrev: abbrev, Line: line, Ranges: ranges, Str: str, Loc: loc}, debuginfo.Options{})
	if len(d.Units()) != 1 {
		t.Fatalf("%d units were built", len(d.Units()))
	}
	out := &bench{unit: d.Units()[0], types: types}
	s := scopeOf(t, fixture.Build(t, "dwarf_vars.c", "-g", "-O2"), symbols.Place{Symbol: "pointers"})
	if err := s.read(func(f *frame) error { out.f = f; return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *bench) location(code ...byte) (place, error) {
	x := evaluator{f: b.f, unit: b.unit}
	return x.location(code)
}

// machine is registers and memory to evaluate chains on. Each word of memory
// is made of its address.
type machine [17]uint64

func (m *machine) word(at uint64) uint64 { return at*0x9e3779b97f4a7c15 ^ at<<17 }

func (m *machine) reg(r fetch.Reg) uint64 {
	for n := range uint64(len(m)) {
		if have, ok := dwarfRegister(n); ok && have == r {
			return m[n]
		}
	}
	return 0xdead
}

// run computes a chain as it is defined.
func (m *machine) run(t testing.TB, c fetch.Chain) uint64 {
	t.Helper()
	var v uint64
	src := c.Source
	if src == fetch.SourceComputed {
		src = c.From
	}
	switch src {
	case fetch.SourceReg:
		v = m.reg(c.Reg)
	case fetch.SourceImm:
		v = c.Imm
	default:
		t.Fatalf("a chain from %v", c.Source)
	}
	for _, s := range c.Steps {
		x := s.Imm
		if s.FromReg {
			x = m.reg(s.Reg)
		}
		if s.Op == fetch.StepLoad {
			v = m.word(v + s.Imm)
			if s.Size < 8 {
				v &= 1<<(8*s.Size) - 1
			}
			continue
		}
		v = s.Op.Apply(v, x)
	}
	for _, l := range c.Loads {
		v = m.word(v + uint64(l.Off))
	}
	return v
}

// delve is what delve's evaluator makes of the expression. It panics when it
// adds to a value that isn't there.
func (m *machine) delve(code []byte) (v uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	d := op.NewDwarfRegisters(0, nil, binary.LittleEndian, 16, 7, 6, 0)
	for n, v := range m {
		d.AddReg(uint64(n), op.DwarfRegisterFromUint64(v))
	}
	read := func(b []byte, at uint64) (int, error) {
		return copy(b, binary.LittleEndian.AppendUint64(nil, m.word(at))), nil
	}
	n, _, err := op.ExecuteStackProgram(*d, code, 8, read)
	return uint64(n), err
}

// TestCompiledAgainstDelve compiles random expressions to chains: what a chain
// computes is what delve's evaluator computes, whatever is in registers and
// memory; what can't be compiled is an error, and never another value.
func TestCompiledAgainstDelve(t *testing.T) {
	b := newBench(t)
	rnd := rand.New(rand.NewSource(11))
	plain := []byte{opDup, opDrop, opOver, opSwap, opAnd, opMinus, opMul, opNeg, opNot, opOr, opPlus, opXor, opEq, opNe, opDeref, opNop}
	counts := map[byte]int{}
	compiled, refused := 0, 0
	for range 30000 {
		code := []byte{opBreg0 + byte(rnd.Intn(16)), byte(rnd.Intn(128))}
		for range rnd.Intn(7) {
			switch rnd.Intn(9) {
			case 0:
				code = append(code, opLit0+byte(rnd.Intn(32)))
			case 1:
				code = append(code, opBreg0+byte(rnd.Intn(16)), 0)
			case 2:
				code = append(code, opBregx, byte(rnd.Intn(17)), 0x80|byte(rnd.Int()), byte(rnd.Intn(128)))
			case 3:
				i := rnd.Intn(8)
				o := opConst1u + byte(i)
				code = append(code, o)
				for range 1 << (i / 2) {
					code = append(code, byte(rnd.Int()))
				}
			case 4:
				code = append(code, opPlusUconst, 0x80|byte(rnd.Int()), byte(rnd.Intn(128)))
			case 5:
				code = append(code, opLit0+byte(rnd.Intn(32)), []byte{opShl, opShr, opShra}[rnd.Intn(3)])
			case 6:
				code = append(code, opConsts-byte(rnd.Intn(2)), 0x80|byte(rnd.Int()), byte(rnd.Intn(128)))
			default:
				code = append(code, plain[rnd.Intn(len(plain))])
			}
		}
		m := &machine{}
		for i := range m {
			m[i] = rnd.Uint64() >> rnd.Intn(60)
		}
		want, derr := m.delve(code)
		p, err := b.location(code...)
		if err != nil {
			if refused++; !errors.Is(err, fetch.ErrNoValue) && derr == nil {
				t.Fatalf("% x: %v, delve has %#x", code, err, want)
			}
			continue
		}
		got := m.run(t, p.sym.whole())
		if derr != nil || p.kind != inMemory || got != want {
			t.Fatalf("% x: %#x of %+v, delve has %#x, %v", code, got, p.sym, want, derr)
		}
		if c, off := p.sym.chain(); m.run(t, c)+uint64(off) != want {
			t.Fatalf("% x: as an address %+v + %d, want %#x", code, c, off, want)
		}
		compiled++
		for _, o := range code {
			counts[o]++
		}
	}
	if compiled < 10000 || refused < 1000 {
		t.Errorf("%d were compiled, %d refused", compiled, refused)
	}
	for _, o := range append(plain, opShl, opShr, opShra, opPlusUconst, opBregx, opConst1u, opConsts) {
		if counts[o] < 50 {
			t.Errorf("operation %#x was compiled %d times", o, counts[o])
		}
	}
}

// TestTypedOperations has integers narrower than 64 bits, which wrap and are
// extended by their types, and floating-point numbers, with which nothing can
// be computed: their bits are no integers.
func TestTypedOperations(t *testing.T) {
	b := newBench(t)
	m := &machine{}
	m[5] = 0xffff_fff0_8000_00ff // rdi
	typ := func(name string) byte {
		off := b.types[name]
		if off == 0 || off > 127 {
			t.Fatalf("%s is at %#x, which takes more than a byte", name, off)
		}
		return byte(off)
	}
	type list = []byte
	for name, c := range map[string]struct {
		code list
		want uint64
	}{
		"s32 of a register":        {list{opRegvalType, 5, typ("s32")}, 0xffff_ffff_8000_00ff},
		"u32 of a register":        {list{opRegvalType, 5, typ("u32")}, 0x8000_00ff},
		"s8 of a register":         {list{opGNURegvalType, 5, typ("s8")}, ^uint64(0)},
		"char of a register":       {list{opRegvalType, 5, typ("c")}, ^uint64(0)},
		"u64 of a register":        {list{opRegvalType, 5, typ("u64")}, m[5]},
		"s32 to s64":               {list{opBreg0 + 5, 0, opConvert, typ("s32"), opConvert, typ("s64")}, 0xffff_ffff_8000_00ff},
		"s32 to u32 to u64":        {list{opRegvalType, 5, typ("s32"), opConvert, typ("u32"), opConvert, typ("u64")}, 0x8000_00ff},
		"u8 to the generic type":   {list{opBreg0 + 5, 0, opConvert, typ("u8"), opConvert, 0}, 0xff},
		"u32 wraps":                {list{opRegvalType, 5, typ("u32"), opConstType, typ("u32"), 4, 0xff, 0xff, 0xff, 0xff, opPlus, opConvert, typ("u64")}, 0x8000_00fe},
		"u32 wraps at nothing":     {list{opRegvalType, 5, typ("u8"), opLit0 + 1, opPlus}, 0},
		"s16 overflows":            {list{opConstType, typ("s16"), 2, 0xff, 0x7f, opConstType, typ("s16"), 2, 1, 0, opPlus}, 0xffff_ffff_ffff_8000},
		"u8 is inverted":           {list{opConstType, typ("u8"), 1, 0xf0, opNot}, 0x0f},
		"u8 is negated":            {list{opConstType, typ("u8"), 1, 1, opNeg}, 0xff},
		"u16 is shifted out":       {list{opRegvalType, 5, typ("u16"), opLit0 + 9, opShl}, 0xfe00},
		"s8 constant":              {list{opGNUConstType, typ("s8"), 1, 0x80}, 0xffff_ffff_ffff_ff80},
		"s32 is loaded":            {list{opBreg0 + 5, 0, opDerefType, 4, typ("s32")}, uint64(int64(int32(m.word(m[5]))))},
		"u16 is loaded":            {list{opBreg0 + 5, 0, opGNUDerefType, 2, typ("u16")}, uint64(uint16(m.word(m[5])))},
		"a load of a narrow one":   {list{opRegvalType, 5, typ("u8"), opDeref}, m.word(0xff)},
		"s32 as the bits of a u32": {list{opRegvalType, 5, typ("s32"), opReinterpret, typ("u32")}, 0x8000_00ff},
		"the bits of a double":     {list{opConstType, typ("f64"), 8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, opReinterpret, typ("u64"), opLit0 + 1, opPlus}, 0x3ff0_0000_0000_0001},
	} {
		p, err := b.location(append(c.code, opStackValue)...)
		if err != nil || p.kind != isValue {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := m.run(t, p.sym.whole()); got != c.want {
			t.Errorf("%s: %#x, want %#x", name, got, c.want)
		}
	}
	one := list{opConstType, typ("f64"), 8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f}
	xmm := list{opRegvalType, 17, typ("f64")}
	for name, code := range map[string]list{
		"a sum of doubles":         append(slices.Concat(xmm, one), opPlus, opStackValue),
		"a product":                append(slices.Concat(one, xmm), opMul, opStackValue),
		"a comparison":             append(slices.Concat(one, one), opEq, opStackValue),
		"a difference with 1":      append(slices.Clone(xmm), opLit0+1, opMinus, opStackValue),
		"negated":                  append(slices.Clone(xmm), opNeg, opStackValue),
		"plus a constant":          append(slices.Clone(xmm), opPlusUconst, 1, opStackValue),
		"as an address":            append(slices.Clone(xmm), opDeref, opStackValue),
		"to an integer":            append(slices.Clone(xmm), opConvert, typ("s64"), opStackValue),
		"to the generic type":      append(slices.Clone(xmm), opConvert, 0, opStackValue),
		"from an integer":          {opBreg0 + 5, 0, opConvert, typ("f32"), opStackValue},
		"a constant of 16 bytes":   append(append(list{opConstType, typ("x"), 16}, make([]byte, 16)...), opStackValue),
		"16 bytes of a register":   {opRegvalType, 5, typ("x"), opLit0, opPlus, opStackValue},
		"a float from memory plus": {opBreg0 + 5, 0, opDerefType, 4, typ("f32"), opLit0, opPlus, opStackValue},
	} {
		if p, err := b.location(code...); !errors.Is(err, fetch.ErrNoValue) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	// Unchanged it is the register's own.
	if p, err := b.location(append(xmm, opStackValue)...); err != nil || p.sym.src.Source != fetch.SourceXMM || len(p.sym.steps) != 0 {
		t.Errorf("a double in xmm0: %+v, %v", p, err)
	}
	for name, code := range map[string]list{
		"nothing to convert":       {opConvert, typ("s32")},
		"a load of three bytes":    {opBreg0, 0, opDerefType, 3, typ("s32")},
		"a constant cut short":     {opConstType, typ("s32"), 4, 1, 2},
		"a double is no address":   xmm,
		"a type far outside of it": append(list{opBreg0, 0, opConvert}, binary.AppendUvarint(nil, 1<<40)...),
	} {
		if p, err := b.location(code...); err == nil || errors.Is(err, fetch.ErrNoValue) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}
