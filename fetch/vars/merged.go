package vars

import (
	"debug/dwarf"
	"fmt"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Functions that are one piece of code
//
// Linkers (--icf) and compilers (LLVM's mergefunc, GCC's -fipa-icf) merge functions whose
// instructions are the same, whatever types they have. Nothing says which of them was
// called, so their variables and types aren't known either.

// mergedError says that several functions share one piece of code.
type mergedError struct{ one, other string }

func (e *mergedError) Error() string {
	return fmt.Sprintf("%s and %s are one piece of code, merged by the compiler or the linker: it is not known which of them is called, so the types of its values "+
		"aren't known either; fetch registers instead (%%di)", e.one, e.other)
}

// Unwrap returns fetch.ErrNoValue.
func (e *mergedError) Unwrap() error { return fetch.ErrNoValue }

// maxAliases limits how many names of one function are looked at.
const maxAliases = 64

// mergedWith returns an error that names another function with the same code, if it has other
// parameters or another result. Otherwise it returns nil.
func (f *frame) mergedWith() error {
	low, ok := f.fn.EntryPC()
	if !ok || f.isGoFunc() {
		return nil
	}
	list := f.module.File.Aliases(symbols.Vaddr(low))
	own := ownSymbol(f.fn, list)
	for _, s := range list[:min(len(list), maxAliases)] {
		if s.Name == own.Name || bareSymbol(s) == bareSymbol(own) {
			continue
		}
		// In C, a second name may be an alias for the same function. Rust has no aliases.
		other := strings.HasPrefix(s.Name, "_Z") || strings.HasPrefix(s.Name, "_R") || f.isRustFunc()
		// GCC describes a function that it has merged as one without code.
		name, _, _ := strings.Cut(s.Name, ".") // f.lto_priv.0
		for _, e := range f.data.FindFunctions(name) {
			pc, ok := e.EntryPC()
			if ok && pc != low || e.Ref() == f.fn.Ref() || !ok && e.Flag(dwarf.AttrDeclaration) {
				continue
			}
			if other = false; f.signature(e) != f.signature(f.fn) {
				return &mergedError{own.Demangled(), s.Demangled()}
			}
		}
		if other {
			return &mergedError{own.Demangled(), s.Demangled()}
		}
	}
	return nil
}

// ownSymbol returns the symbol that a function's entry names.
func ownSymbol(fn debuginfo.Entry, list []symbols.Symbol) symbols.Symbol {
	for _, name := range [...]string{fn.LinkageName(), fn.Name()} {
		if i := slices.IndexFunc(list, func(s symbols.Symbol) bool { return s.Name == name }); i >= 0 {
			return list[i]
		}
	}
	return symbols.Symbol{Name: fn.Name()}
}

// bareSymbol returns a symbol's name without the suffix that distinguishes copies of a
// function.
func bareSymbol(s symbols.Symbol) string {
	name, _, _ := strings.Cut(s.Demangled(), " [clone")
	return name
}

// signature returns a function's result type, and its parameters with their names.
func (f *frame) signature(fn debuginfo.Entry) string {
	var b strings.Builder
	if _, at, ok := fn.Chased(dwarf.AttrType); ok {
		if r, ok := at.RefTo(dwarf.AttrType); ok {
			b.WriteString(f.resolve(r).String())
		}
	}
	for c := range fn.Children() {
		if c.Tag() == dwarf.TagFormalParameter {
			t, _ := f.typeOf(&c)
			fmt.Fprintf(&b, ",%s %s", t, c.Name())
		}
	}
	return b.String()
}

// ofCall reports whether a parameter or variable belongs to the function, or to a function
// inlined around the address.
func (f *frame) ofCall(e *debuginfo.Entry) bool {
	for i := range f.scopes {
		for c := range f.scopes[i].Children() {
			if c.Ref() == e.Ref() {
				return true
			}
		}
	}
	return false
}
