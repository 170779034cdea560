// Package debuginfo reads DWARF, versions 2 to 5: units, entries, line tables, ranges, location
// lists, inlined calls. It reads no more than a question needs: unit headers first, then the
// units that hold an address or a name.
//
// Sections come in as bytes, mostly of a mapped file, and are not trusted: offsets are checked,
// walks are bounded, and what can't be read is missing from the answer. Addresses are the
// file's own, as in its program headers. Data and Units are safe for concurrent use.
package debuginfo

import (
	"cmp"
	"sort"
	"sync"
	"sync/atomic"

	"kprobe/symbols/dwread"
)

// Sections has the contents of the sections. Names lack the leading ".debug_" and, in split files,
// the trailing ".dwo". A nil section doesn't exist.
type Sections struct {
	Info, Types, Abbrev, Aranges   []byte
	Str, LineStr, StrOffsets, Addr []byte
	Line, Ranges, RngLists         []byte
	Loc, LocLists                  []byte
	CUIndex, TUIndex               []byte
}

// SplitRef is what a skeleton unit says about where the rest of it is.
type SplitRef struct {
	ID      uint64 // DW_AT_dwo_id
	Name    string // DW_AT_dwo_name
	CompDir string
}

// Data is the debug information of one file.
type Data struct {
	sec   Sections
	split bool // of a .dwo or .dwp
	alt   *Data
	open  func(SplitRef) *Data
	typ   func(uint64) *Data

	units   []*Unit // by offset, followed by those of .debug_types
	info    int     // how many of units belong to .debug_info
	sigs    map[uint64]*Unit
	abbrevs sync.Map // offset → *abbrevTable

	later       func(name string) []byte
	locs, locLs once[[]byte]

	store   IndexStore
	release func(from, to uint64)
	// releaseStr is the same for Str.
	releaseStr func(from, to uint64)
	indexFrom  int              // an index is made of Info from this size on,
	keepFrom   int              // and kept from this size on
	indexed    once[*nameIndex] // made
	made       atomic.Pointer[nameIndex]
	loaded     once[*nameIndex] // from the store
	ranges     once[[]unitRange]
	asked      atomic.Int32 // how many addresses were looked up one by one
	last       atomic.Pointer[unitRange]
	located    sync.Map // address → *Unit, of Locate
	tables     sync.Map // offset in .debug_line → *LineTable
	files      filesIndex
	gnu        once[bool]
	alone      once[bool]
	cross      once[bool]
	strTables  once[[]Range]
	aims       once[*aimTable]
	fileLists  answers[*Unit, string]
	completed  answers[Ref, completion]
	named      answers[string, Ref] // of FindFunctions
	variables  answers[nameQuestion, Entry]
	types      answers[nameQuestion, Entry]
	structures answers[structQuestion, Entry]
	defined    answers[Ref, Entry] // of FindDefinition
	searches   atomic.Int32        // how many names are searched for before an index is made
}

// Options says what a file's debug information refers to.
type Options struct {
	// Alt is the file to which dwz moved shared parts (.gnu_debugaltlink).
	Alt *Data
	// Open finds split units. Open may be nil, and may return nil.
	Open func(SplitRef) *Data
	// Type finds the type unit of a signature if the sections don't have it. It returns the
	// same Data at each call. Type may be nil, and may return nil.
	Type func(signature uint64) *Data
	// Later reads a section that New wasn't given, when it is first needed: "loc"
	// or "loclists". Later may be nil, and may return nil.
	Later func(name string) []byte
	// Split says that the sections come from a .dwo file.
	Split bool
	// Store keeps the index of a large file. If it is nil, no index is kept.
	Store IndexStore
	// Release is called with a part of Info that is not needed for now, so that its pages
	// need not stay in memory. Several goroutines may call it.
	Release func(from, to uint64)
	// ReleaseStr is Release for Str.
	ReleaseStr func(from, to uint64)
	// An index is made and kept if Info has at least IndexFrom bytes, and once as many names
	// were asked for as Searches says. 0 means where and when it pays; then smaller files
	// have an index in memory, too.
	IndexFrom, Searches int
}

// New makes Data from sections, whose bytes must not change. It reads the unit headers. Damage
// ends the list of units; those before it can be used.
func New(sec Sections, o Options) *Data {
	d := &Data{sec: sec, split: o.Split, alt: o.Alt, open: o.Open, typ: o.Type, later: o.Later, sigs: map[uint64]*Unit{},
		store: o.Store, release: o.Release, releaseStr: o.ReleaseStr,
		indexFrom: cmp.Or(o.IndexFrom, indexFrom), keepFrom: cmp.Or(o.IndexFrom, keepFrom)}
	d.searches.Store(int32(o.Searches))
	if o.IndexFrom == 0 {
		d.searches.Store(fewSearches)
	}
	d.readUnits(sec.Info, false)
	d.info = len(d.units)
	d.readUnits(sec.Types, true)
	return d
}

// Units returns the units of .debug_info by offset. The slice is shared.
func (d *Data) Units() []*Unit { return d.units[:d.info] }

func (d *Data) loc() []byte      { return d.rest("loc", d.sec.Loc, &d.locs) }
func (d *Data) locLists() []byte { return d.rest("loclists", d.sec.LocLists, &d.locLs) }

// rest returns a section that is read only when it is needed.
func (d *Data) rest(name string, have []byte, read *once[[]byte]) []byte {
	if have != nil || d.later == nil {
		return have
	}
	return read.get(func() []byte { return d.later(name) })
}

// holdAtOnce is how many bytes are read before their pages are released. Reading a byte may
// bring in as much as 2 MB.
const holdAtOnce = 32 << 20

// maxUnits limits the unit headers of a hostile file.
const maxUnits = 1 << 21

func (d *Data) readUnits(b []byte, types bool) {
	r := dwread.At(b, 0)
	held := uint64(0) // from where on pages may be in memory
	release := func() {
		if d.release != nil && !types {
			d.release(held, r.At)
			held = r.At
		}
	}
	defer release()
	for r.Left() > 11 && len(d.units) < maxUnits {
		if r.At-held > holdAtOnce {
			release()
		}
		u := &Unit{data: d, types: types, off: r.At}
		n, d64 := r.Length()
		if r.Bad {
			return
		}
		u.dwarf64, u.end = d64, r.At+n
		r2 := dwread.At(b[:u.end], r.At)
		u.header(&r2)
		r.At = u.end
		if r2.Bad || u.addrSize != 8 && u.addrSize != 4 || u.version < 2 || u.version > 5 {
			continue
		}
		u.first = r2.At
		d.units = append(d.units, u)
		if u.typeOff != 0 {
			d.sigs[u.id] = u
		}
	}
}

// typeUnit returns the unit of the type with a signature, or nil.
func (d *Data) typeUnit(sig uint64) *Unit {
	if u := d.sigs[sig]; u != nil || d.typ == nil {
		return u
	}
	if o := d.typ(sig); o != nil {
		return o.sigs[sig]
	}
	return nil
}

// unitAt finds the unit of .debug_info that holds an offset.
func (d *Data) unitAt(off uint64, types bool) *Unit {
	list := d.units[:d.info]
	if types {
		list = d.units[d.info:]
	}
	if i, ok := unitOf(list, off); ok {
		return list[i]
	}
	return nil
}

// unitOf finds the position of the unit whose entries' offsets include off.
func unitOf(list []*Unit, off uint64) (int, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].end > off })
	return i, i < len(list) && off >= list[i].first
}

// once holds a value that is made when it is first needed.
type once[T any] struct {
	do    sync.Once
	value T
}

func (o *once[T]) get(make func() T) T {
	o.do.Do(func() { o.value = make() })
	return o.value
}
