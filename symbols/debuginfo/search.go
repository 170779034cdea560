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
// The index costs as much to make as some twenty searches of .debug_info for the
// bytes of a name, so the first names are searched for. What a search finds is all
// that there is, which the indexes that linkers and debuggers leave in files
// (.gdb_index, .debug_names, .debug_pubnames) don't promise: they lack what is only
// inlined, or units of other compilers, and nothing tells that they do. Nor would they
// spare much: 320 MB of .debug_info are searched in hundredths of a second, once they
// are in memory. They are not read.

// fewSearches is how many names are searched for before an index is made.
const fewSearches = 12

// mostFound is how much of .debug_info, in bytes, may have a name's bytes for it to
// be gone through: what has more, as what every unit includes, is for the index.
const mostFound = 16 << 20

// searched gives the units that may have an entry of one of the names. ok is false
// where an index is to be made.
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

// mayName reports whether the i-th unit may have an entry of a name: by the bytes of
// the name, by its place among the strings, or by its number in the unit's table of them.
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

// stringTables are where in .debug_str_offsets the table of each unit is: up to that
// of the next, as far as is known.
func (d *Data) stringTables() []Range {
	return d.strTables.get(func() []Range {
		units := d.Units()
		n := uint64(len(d.sec.StrOffsets))
		out := make([]Range, len(units))
		bases := make([]uint64, len(units), len(units)+1)
		for i, whole := range units {
			// What is made of the unit on the way is not kept.
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

// searchable reports whether no unit has its names in another file.
func (d *Data) searchable() bool {
	return d.alone.get(func() bool {
		return d.alt == nil && !d.gnuSplit() &&
			!slices.ContainsFunc(d.Units(), func(u *Unit) bool { return u.kind == utSkeleton })
	})
}

// crosses reports whether functions and inlined calls may refer to entries of other
// units: an abbreviation has the form for that.
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
