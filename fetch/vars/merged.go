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
// Linkers (--icf) and compilers (LLVM's mergefunc, GCC's -fipa-icf) make one of
// functions whose instructions are the same, whatever types they are of. Which of
// them was called nothing tells, so neither are their variables and types.

// mergedError says that code is that of several functions.
type mergedError struct{ one, other string }

func (e *mergedError) Error() string {
	return fmt.Sprintf("%s and %s are one piece of code, merged by the compiler or the linker: which of them is called, and so of what types its values are, "+
		"can't be told; registers (%%di) can be had", e.one, e.other)
}

// Unwrap gives fetch.ErrNoValue.
func (e *mergedError) Unwrap() error { return fetch.ErrNoValue }

// maxAliases bounds how many names of one function are looked at.
const maxAliases = 64

// mergedWith is another function, of other parameters or results, that has the code
// of this one; nil where there is none.
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
		// C has names for one function that are no other's (aliases); Rust has none.
		other := strings.HasPrefix(s.Name, "_Z") || strings.HasPrefix(s.Name, "_R") || f.isRustFunc()
		// What GCC has merged it tells of as of a function without code.
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

// ownSymbol is the symbol that a function's entry names.
func ownSymbol(fn debuginfo.Entry, list []symbols.Symbol) symbols.Symbol {
	for _, name := range [...]string{fn.LinkageName(), fn.Name()} {
		if i := slices.IndexFunc(list, func(s symbols.Symbol) bool { return s.Name == name }); i >= 0 {
			return list[i]
		}
	}
	return symbols.Symbol{Name: fn.Name()}
}

// bareSymbol is a symbol's name without what tells copies of one function apart.
func bareSymbol(s symbols.Symbol) string {
	name, _, _ := strings.Cut(s.Demangled(), " [clone")
	return name
}

// signature is a function's result, and its parameters with their names.
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

// ofCall reports a parameter or variable of the function, or of what is inlined
// around the address.
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
