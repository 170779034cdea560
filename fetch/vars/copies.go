package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/symbols"
)

// Copies of functions
//
// GCC makes copies of functions for a program's own calls. A copy may have fewer parameters than
// the function and no result, and has the function's debug information. Only the suffix of
// its symbol tells of it (.isra.0, .constprop.0). If the file has no symbol, every function that
// only its own file calls may be a copy.

// mayBeCopy reports whether a function may be a copy.
func (f *frame) mayBeCopy() bool {
	name, _, _ := strings.Cut(f.scope.site.Func.Symbol.Name, ".lto_priv.") // which tells equal names apart
	return strings.Contains(name, ".") || f.isNameless()
}

// mayReturnNothing reports whether a function may be a copy made by -fipa-sra, which omits
// results that no call uses.
func (f *frame) mayReturnNothing() bool {
	return f.isGNU() && (strings.Contains(f.scope.site.Func.Symbol.Name, ".isra.") || f.isNameless())
}

// isNameless reports whether the file has no symbol of an optimized function that no other file calls.
func (f *frame) isNameless() bool {
	if f.scope.site.Func.Symbol.Kind != symbols.KindFDE {
		return false
	}
	_, at, ok := f.fn.Chased(dwarf.AttrExternal)
	return !(ok && at.Flag(dwarf.AttrExternal)) && !f.unoptimized()
}

// unknownCopy says why it isn't known whether a function returns anything.
func (f *frame) unknownCopy() error {
	is := "is"
	if f.isNameless() {
		is = "has no symbol, so it may be"
	}
	return unknown("%s %s a copy that the compiler made for this program's calls (.isra), and may return nothing if none of them uses the result; fetch registers instead (%%ax)",
		nameOf(f.fn, f.scope.site.Name()), is)
}
