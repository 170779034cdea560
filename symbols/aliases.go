package symbols

import (
	"cmp"
	"slices"
)

// Aliases returns the symbols of the code that starts at an address, if it has several names: aliases of
// a function, or functions whose code was merged.
func (f *File) Aliases(v Vaddr) (out []Symbol) {
	list := f.functions()
	if i := entryAt(list, v); i < 0 || list[i].start != v || !list[i].several {
		return nil
	}
	for _, t := range f.tables().list {
		for i := range t.symbols {
			if s := &t.symbols[i]; s.vaddr == v && f.isCode(t, s) {
				out = append(out, t.symbol(s))
			}
		}
	}
	slices.SortFunc(out, func(a, b Symbol) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b Symbol) bool { return a.Name == b.Name })
}
