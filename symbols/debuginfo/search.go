package debuginfo

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"runtime"
	"slices"
	"sync/atomic"
)

// A search before there is an index
//
// Making the index takes as long as some twenty searches of .debug_info for the bytes of a name.
// So the first names are searched for. A search finds everything. The indexes that linkers and
// debuggers leave in files (.gdb_index, .debug_names, .debug_pubnames) don't promise that: they
// lack functions that are only inlined, or units of other compilers, without saying so. Nor
// would they save much: once 320 MB of .debug_info are in memory, they are searched in
// hundredths of a second. So these indexes are not read.

// fewSearches is how many names are searched for before an index is made.
const fewSearches = 12

// mostFound limits how much of .debug_info, in bytes, is read after a search for a name. Names
// in more of it, such as names that every unit includes, need the index.
const mostFound = 16 << 20

// searched returns the units that may have an entry of one of the names. ok is false if an
// index has to be made.
func (d *Data) searched(names []string) (out []part, ok bool) {
	if d.searches.Add(-1) < 0 || !d.searchable() {
		return nil, false
	}
	slices.Sort(names)
	var filters []nameFilter
	for _, n := range slices.Compact(names) {
		if n == "" {
			continue
		}
		f := d.newNameFilter(n)
		if len(f.offsets) == maxPlaces {
			return nil, false
		}
		filters = append(filters, f)
	}
	if len(filters) == 0 {
		return nil, true
	}
	var held [maxSearchers][]part
	var found atomic.Uint64
	next := atomic.Int64{}
	units := d.Units()
	done := inParallel(min(runtime.GOMAXPROCS(0), maxSearchers), func(w int) {
		for found.Load() <= mostFound {
			i := int(next.Add(1)) - 1
			if i >= len(units) {
				return
			}
			u := units[i]
			if slices.ContainsFunc(filters, func(f nameFilter) bool { return d.mayName(i, &f) }) {
				found.Add(u.end - u.off)
				held[w] = append(held[w], part{u: u, from: u.first, to: u.end, searched: true})
			}
			if d.release != nil {
				d.release(u.off, u.end)
			}
		}
	})
	if !done || found.Load() > mostFound {
		return nil, false
	}
	for _, list := range held {
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b part) int { return cmp.Compare(a.from, b.from) })
	return out, true
}

const maxSearchers = 8

// mayName reports whether the i-th unit may have an entry of a name: because of the bytes of
// the name, of its place among the strings, or of its number in the unit's table of strings.
func (d *Data) mayName(i int, f *nameFilter) bool {
	b := d.units[i].bytes()[d.units[i].first:]
	if bytes.Contains(b, f.inline) || f.refers(b) {
		return true
	}
	if !f.indexed {
		return false
	}
	t := d.stringTables()[i]
	return f.refers(d.sec.StrOffsets[t.Low:t.High])
}

// stringTables returns where each unit's table is in .debug_str_offsets. A table extends up to
// the next one, as far as is known.
func (d *Data) stringTables() []Range {
	return d.strTables.get(func() []Range {
		units := d.Units()
		n := uint64(len(d.sec.StrOffsets))
		out := make([]Range, len(units))
		bases := make([]uint64, len(units), len(units)+1)
		for i, whole := range units {
			// The tables made of the unit aren't kept.
			u := whole.copied()
			u.abbrevs.get(func() *abbrevTable { return readAbbrevs(d.sec.Abbrev, u.abbrev) })
			bases[i] = min(u.root().strBase, n)
			out[i].Low = bases[i]
		}
		bases = append(bases, n)
		slices.Sort(bases)
		for i := range out {
			at, _ := slices.BinarySearch(bases, out[i].Low+1)
			out[i].High = bases[min(at, len(bases)-1)]
		}
		return out
	})
}

// searchable reports whether all units have their names in this file.
func (d *Data) searchable() bool {
	return d.alone.get(func() bool {
		return d.alt == nil && !d.gnuSplit() &&
			!slices.ContainsFunc(d.Units(), func(u *Unit) bool { return u.kind == utSkeleton })
	})
}

// crosses reports whether functions and inlined calls may refer to entries of other units:
// whether an abbreviation has the form for it.
func (d *Data) crosses() bool {
	return d.cross.get(func() bool {
		for _, a := range [...]dwarf.Attr{dwarf.AttrAbstractOrigin, dwarf.AttrSpecification} {
			for _, f := range [...]byte{byte(formRefAddr), byte(formIndirect)} {
				if bytes.Contains(d.sec.Abbrev, []byte{byte(a), f}) { // each is one byte of an abbreviation
					return true
				}
			}
		}
		return false
	})
}
