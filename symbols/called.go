package symbols

import "kprobe/symbols/unwind"

// Called reports whether code that starts at an address finds its caller's return address where
// a call leaves it, at the stack pointer (psABI, 3.2.2). Call frame information tells. It is
// false for a program's start, where the kernel puts the argument count, for parts of a
// function that are jumped to, and for trampolines that are entered with more on the stack.
// Without such information it is true for a symbol of a function's type that is not the file's
// entry point. A label may be the target of a jump, as the loader's _dl_start_user is. It is
// safe for concurrent use.
func (f *File) Called(v Vaddr) bool {
	if f.inPLT(v) {
		return true // described by an expression, for all stubs at once
	}
	switch f.entry(v) {
	case entered:
		return true
	case enteredOtherwise:
		return false
	}
	return v != f.im.entry && f.Certain(v)
}

// entry is what call frame information says of code that starts at an address.
type entry uint8

const (
	undescribed      entry = iota // nothing
	entered                       // the return address is at the stack pointer
	enteredOtherwise              // it is elsewhere
)

func entryByRow(row *unwind.Row, ok bool) entry {
	const rsp = 7 // DWARF's number (psABI, figure 3.36)
	cfa, ra := &row.CFA, &row.Regs[unwind.PC]
	switch {
	case !ok:
		return undescribed
	case cfa.Kind == unwind.InRegister && cfa.Reg == rsp && cfa.Off == 8 && ra.Kind == unwind.AtCFA && ra.Off == -8:
		return entered
	}
	return enteredOtherwise
}

const (
	// fewEntries is the number of addresses for which call frame information is searched. Then all starts of ranges
	// are looked at, which for a large file takes as long as some searches, and what was found is kept.
	fewEntries = 3
	// fewMidsts is the number of searches for addresses that start no range. Then all call frame information is kept:
	// that of a large file takes 5 MB.
	fewMidsts = 8
)

// entry finds out about an address by .eh_frame.
func (f *File) entry(v Vaddr) entry {
	if f.entriesAsked.Add(1) <= fewEntries {
		return f.searchEntry(v)
	}
	if i, ok := startAt(f.fdes(), v); ok {
		if list := f.entries.get(f.findEntries); i < len(list) {
			return list[i]
		}
		return undescribed
	}
	switch _, inside := fdeAt(f.fdes(), v); {
	case !inside:
		return undescribed
	case f.midstsAsked.Add(1) <= fewMidsts:
		return f.searchEntry(v)
	}
	row, ok := f.ehTable().At(uint64(v))
	return entryByRow(&row, ok)
}

func (f *File) searchEntry(v Vaddr) (e entry) {
	var err error
	defer rescue(f.Path, &err)
	if eh := f.im.ehFrame(); eh != nil {
		row, ok := unwind.Find(uint64(v), eh)
		e = entryByRow(&row, ok)
	}
	return e
}

// findEntries finds out about the starts of all ranges.
func (f *File) findEntries() (out []entry) {
	var err error
	defer rescue(f.Path, &err)
	eh := f.im.ehFrame()
	if eh == nil {
		return nil
	}
	rows := unwind.New(eh)
	out = make([]entry, len(f.fdes()))
	for i, r := range f.fdes() {
		row, ok := rows.At(uint64(r.start))
		out[i] = entryByRow(&row, ok)
	}
	return out
}
