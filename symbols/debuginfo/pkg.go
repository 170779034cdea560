package debuginfo

import (
	"sync"

	"kprobe/symbols/dwread"
)

// Package reads a DWARF package file (.dwp): many .dwo files in one, with an
// index from a unit's id to its part of each section (DWARF 5, 7.3.5; before it GNU's version 2),
// and another from types' signatures. It is safe for concurrent use.
type Package struct {
	sec          Sections
	units, types unitTable
	made         sync.Map // signature of a type → *Data
}

// Columns of the indexes. In version 2, column 2 is for types, and locations are in .debug_loc.
const (
	sectInfo       = 1
	sectTypes      = 2
	sectAbbrev     = 3
	sectLine       = 4
	sectLoc        = 5
	sectStrOffsets = 6
	sectRngLists   = 8
)

// unitTable is the index of a package.
type unitTable struct {
	version          uint64
	columns          []uint64
	units, slots     uint64
	ids, rows        dwread.Reader
	offsets, lengths dwread.Reader
}

// NewPackage reads the package's indexes. ok is false if it has no index of units.
func NewPackage(sec Sections) (p *Package, ok bool) {
	p = &Package{sec: sec}
	if p.units, ok = readTable(sec.CUIndex); !ok {
		return nil, false
	}
	p.types, _ = readTable(sec.TUIndex) // most packages have no types by signature
	return p, true
}

func readTable(index []byte) (t unitTable, ok bool) {
	r := dwread.At(index, 0)
	t.version = r.U32()
	if t.version != 2 {
		r.At = 0
		t.version = r.U16()
		r.Skip(2)
	}
	cols := r.U32()
	t.units, t.slots = r.U32(), r.U32()
	if r.Bad || t.version != 2 && t.version != 5 || cols > 16 || t.slots&(t.slots-1) != 0 {
		return unitTable{}, false
	}
	t.ids = dwread.At(r.Take(8*t.slots), 0)
	t.rows = dwread.At(r.Take(4*t.slots), 0)
	for range cols {
		t.columns = append(t.columns, r.U32())
	}
	t.offsets = dwread.At(r.Take(4*t.units*cols), 0)
	t.lengths = dwread.At(r.Take(4*t.units*cols), 0)
	return t, !r.Bad
}

// row finds the row of a unit, from 0.
func (t *unitTable) row(id uint64) (uint64, bool) {
	if t.slots == 0 {
		return 0, false
	}
	mask := t.slots - 1
	step := (id>>32)&mask | 1
	for i, n := id&mask, uint64(0); n < t.slots; i, n = (i+step)&mask, n+1 {
		a, b := dwread.At(t.ids.B, 8*i), dwread.At(t.rows.B, 4*i)
		have, row := a.U64(), b.U32()
		if row == 0 {
			return 0, false
		}
		if have == id {
			return row - 1, row <= t.units
		}
	}
	return 0, false
}

// Unit returns the debug information of the unit with an id, or nil.
func (p *Package) Unit(id uint64) *Data {
	sec, ok := p.sections(&p.units, id)
	if !ok || sec.Info == nil {
		return nil
	}
	return New(sec, Options{Split: true, Type: p.typeUnit})
}

// typeUnit returns that of the type with a signature, and the same Data at each call.
func (p *Package) typeUnit(sig uint64) *Data {
	if d, ok := p.made.Load(sig); ok {
		return d.(*Data)
	}
	sec, ok := p.sections(&p.types, sig)
	if !ok {
		return nil
	}
	d, _ := p.made.LoadOrStore(sig, New(sec, Options{Split: true, Type: p.typeUnit}))
	return d.(*Data)
}

// sections returns the parts of the sections that belong to a unit.
func (p *Package) sections(t *unitTable, id uint64) (Sections, bool) {
	row, ok := t.row(id)
	if !ok {
		return Sections{}, false
	}
	out := Sections{Str: p.sec.Str}
	for i, c := range t.columns {
		at := 4 * (row*uint64(len(t.columns)) + uint64(i))
		a, b := dwread.At(t.offsets.B, at), dwread.At(t.lengths.B, at)
		off, n := a.U32(), b.U32()
		part := func(sec []byte) []byte {
			if off > uint64(len(sec)) || n > uint64(len(sec))-off {
				return nil
			}
			return sec[off : off+n : off+n]
		}
		switch c {
		case sectInfo:
			out.Info = part(p.sec.Info)
		case sectTypes:
			if t.version == 2 {
				out.Types = part(p.sec.Types)
			}
		case sectAbbrev:
			out.Abbrev = part(p.sec.Abbrev)
		case sectLine:
			out.Line = part(p.sec.Line)
		case sectLoc:
			out.Loc, out.LocLists = part(p.sec.Loc), part(p.sec.LocLists)
		case sectStrOffsets:
			out.StrOffsets = part(p.sec.StrOffsets)
		case sectRngLists:
			if t.version == 5 {
				out.RngLists = part(p.sec.RngLists)
			}
		}
	}
	return out, true
}
