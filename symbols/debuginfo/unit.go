package debuginfo

import (
	"bytes"
	"debug/dwarf"
	"encoding/binary"
	"path"
	"sync/atomic"

	"kprobe/symbols/dwread"
)

// Types of units (DWARF 5, table 7.2).
const (
	utCompile      = 1
	utType         = 2
	utPartial      = 3
	utSkeleton     = 4
	utSplitCompile = 5
	utSplitType    = 6
)

// Attributes of GNU's split DWARF 4 and of call sites, which DWARF 5 took over
// under other numbers.
const (
	attrGNUDwoName    dwarf.Attr = 0x2130
	attrGNUDwoID      dwarf.Attr = 0x2131
	attrGNURangesBase dwarf.Attr = 0x2132
	attrGNUAddrBase   dwarf.Attr = 0x2133
)

// Unit is one contribution to .debug_info: usually a source file with everything that it
// includes.
type Unit struct {
	data     *Data
	types    bool
	off, end uint64
	first    uint64 // offset of the first entry
	version  int
	dwarf64  bool
	addrSize int
	kind     uint8
	abbrev   uint64
	id       uint64 // a split unit's id, or a type's signature
	typeOff  uint64 // offset of the type's entry in a type unit

	abbrevs    once[*abbrevTable]
	plans      once[*planner]
	aims       once[map[uint64][]aim]
	asked      atomic.Int32 // how often references to one entry were searched
	top        once[*unitTop]
	body       once[*Unit]
	funcs      once[[]funcSpan]
	calls      once[[]CallSite]
	moves      once[bool]
	linesAsked atomic.Int32 // how many addresses' rows were searched
	nests      once[*nesting]
	skel       *Unit // the skeleton of a split unit
}

// unitTop has the attributes of a unit's first entry.
type unitTop struct {
	entry   Entry
	ok      bool
	name    string
	dir     string
	lang    int64
	low     uint64
	strBase uint64
	adrBase uint64
	rngBase uint64
	locBase uint64
	line    uint64
	hasLine bool
	dwo     SplitRef
	hasDwo  bool
}

// header reads the rest of a unit header, after its length.
func (u *Unit) header(r *dwread.Reader) {
	u.version = int(r.U16())
	u.kind = utCompile
	switch {
	case u.version >= 5:
		u.kind = r.U8()
		u.addrSize = int(r.U8())
		u.abbrev = r.Offset(u.dwarf64)
		switch u.kind {
		case utSkeleton, utSplitCompile:
			u.id = r.U64()
		case utType, utSplitType:
			u.id = r.U64()
			u.typeOff = r.Offset(u.dwarf64)
		}
	default:
		u.abbrev = r.Offset(u.dwarf64)
		u.addrSize = int(r.U8())
		if u.types {
			u.kind = utType
			u.id = r.U64()
			u.typeOff = r.Offset(u.dwarf64)
		}
	}
}

func (u *Unit) bytes() []byte {
	if u.types {
		return u.data.sec.Types[:u.end]
	}
	return u.data.sec.Info[:u.end]
}

func (u *Unit) format() format { return format{u.dwarf64, u.addrSize, u.version} }

// root reads the unit's first entry. Bases come first: the entry's own strings
// may be indirect.
func (u *Unit) root() *unitTop {
	return u.top.get(func() *unitTop {
		t := &unitTop{}
		t.entry, _, t.ok = u.entryAt(u.first)
		if !t.ok {
			return t
		}
		num := func(a ...dwarf.Attr) (uint64, bool) {
			for _, a := range a {
				if v, ok := t.entry.Val(a); ok {
					return v.U, true
				}
			}
			return 0, false
		}
		t.strBase, t.adrBase, t.rngBase, t.locBase = u.bases()
		if v, ok := num(dwarf.AttrStrOffsetsBase); ok {
			t.strBase = v
		}
		if v, ok := num(dwarf.AttrAddrBase, attrGNUAddrBase); ok {
			t.adrBase = v
		}
		if v, ok := num(dwarf.AttrRnglistsBase, attrGNURangesBase); ok {
			t.rngBase = v
		}
		if v, ok := num(dwarf.AttrLoclistsBase); ok {
			t.locBase = v
		}
		if u.skel != nil {
			t.adrBase = u.skel.root().adrBase
			if u.version < 5 {
				t.rngBase = u.skel.root().rngBase
			}
		}
		t.line, t.hasLine = num(dwarf.AttrStmtList)
		if lang, ok := num(dwarf.AttrLanguage); ok {
			t.lang = int64(lang)
		}
		t.name = u.stringIn(t, &t.entry, dwarf.AttrName)
		t.dir = u.stringIn(t, &t.entry, dwarf.AttrCompDir)
		if v, ok := t.entry.Val(dwarf.AttrLowpc); ok {
			t.low, _ = u.addressIn(t, v)
		}
		if u.skel != nil {
			s := u.skel.root()
			t.low = s.low
			if t.dir == "" {
				t.dir = s.dir
			}
		}
		id, hasID := num(attrGNUDwoID)
		if u.kind == utSkeleton {
			id, hasID = u.id, true
		}
		if hasID {
			t.dwo = SplitRef{ID: id, Name: u.stringIn(t, &t.entry, dwarf.AttrDwoName), CompDir: t.dir}
			if t.dwo.Name == "" {
				t.dwo.Name = u.stringIn(t, &t.entry, attrGNUDwoName)
			}
			t.hasDwo = t.dwo.Name != "" && !u.data.split
		}
		return t
	})
}

// bases returns where the unit's tables start if the unit doesn't say so: in split files,
// after the section's header (DWARF 5, 7.26 to 7.29).
func (u *Unit) bases() (str, addr, rng, loc uint64) {
	if u.version < 5 {
		return 0, 0, 0, 0
	}
	str, addr, rng, loc = 8, 8, 12, 12
	if u.dwarf64 {
		str, addr, rng, loc = 16, 16, 20, 20
	}
	return str, addr, rng, loc
}

// copied returns the unit without what was read of it.
func (u *Unit) copied() *Unit {
	return &Unit{data: u.data, off: u.off, end: u.end, first: u.first, version: u.version,
		dwarf64: u.dwarf64, addrSize: u.addrSize, kind: u.kind, abbrev: u.abbrev, id: u.id}
}

// full returns the unit itself. For a skeleton it returns the split unit, if that was found.
func (u *Unit) full() *Unit {
	if u.kind != utSkeleton && !u.data.gnuSplit() {
		return u // without reading anything of it
	}
	return u.body.get(func() *Unit {
		t := u.root()
		if !t.hasDwo || u.data.open == nil {
			return u
		}
		d := u.data.open(t.dwo)
		if d == nil {
			return u
		}
		for _, s := range d.Units() {
			id := s.id
			if v, ok := s.firstVal(attrGNUDwoID); ok && s.version < 5 {
				id = v
			}
			if id != t.dwo.ID || s.kind == utType || s.kind == utSplitType {
				continue
			}
			// The Data of a .dwo may serve several skeletons, so each gets a
			// unit of its own that refers to it.
			c := &Unit{data: s.data, off: s.off, end: s.end, first: s.first, version: s.version, dwarf64: s.dwarf64,
				addrSize: s.addrSize, kind: s.kind, abbrev: s.abbrev, id: s.id, skel: u}
			c.body.get(func() *Unit { return c })
			return c
		}
		return u
	})
}

// gnuSplit reports whether entries of the file may belong to GNU's split DWARF 4: whether an
// abbreviation has its attribute. Its skeletons look like other units.
func (d *Data) gnuSplit() bool {
	return d.gnu.get(func() bool {
		return bytes.Contains(d.sec.Abbrev, binary.AppendUvarint(nil, uint64(attrGNUDwoID)))
	})
}

// MissingSplit returns the name of the .dwo file that has the unit's entries and was not
// found. It returns "" if nothing is missing.
func (u *Unit) MissingSplit() string {
	if t := u.root(); t.hasDwo && u.full() == u {
		return t.dwo.Name
	}
	return ""
}

// firstVal returns an attribute of the first entry, which it reads without the bases.
func (u *Unit) firstVal(a dwarf.Attr) (uint64, bool) {
	e, _, ok := u.entryAt(u.first)
	if !ok {
		return 0, false
	}
	v, ok := e.Val(a)
	return v.U, ok
}

// Name returns the unit's source file as the compiler was given it.
func (u *Unit) Name() string { return u.root().name }

// Producer returns how the compiler that made the unit names itself: "GNU C17 …".
func (u *Unit) Producer() string {
	top := u.root()
	return u.stringIn(top, &top.entry, dwarf.AttrProducer)
}

// Version returns the version of DWARF that describes the unit.
func (u *Unit) Version() int { return u.version }

// Language returns the DW_LANG_* of the unit's source.
func (u *Unit) Language() Language { return Language(u.root().lang) }

// Path returns the unit's source file with its directory.
func (u *Unit) Path() string { return joinPath(u.root().dir, u.root().name) }

// joinPath puts a directory before a relative name.
func joinPath(dir, name string) string {
	if dir == "" || name == "" || name[0] == '/' || name[0] == '<' {
		return name
	}
	return path.Join(dir, name)
}
