package vars

import (
	"debug/dwarf"
	"regexp"
	"strings"

	"kprobe/symbols/debuginfo"
)

// meant returns the function whose variables are meant. In an inlined call that is the inlined
// function, which may belong to another unit.
func (f *frame) meant() *debuginfo.Entry {
	if f.home > 0 && f.home < len(f.scopes) {
		if r, ok := f.scopes[f.home].RefTo(dwarf.AttrAbstractOrigin); ok {
			if o, ok := r.Entry(); ok {
				return &o
			}
		}
	}
	return &f.fn
}

// seen divides the scopes around the address into two lists. The first has the scopes of the
// function that is meant, whose variables its code sees. The second has those of the functions
// that it is inlined into. A Go function literal also sees the variables of the function that
// it is written in.
func (f *frame) seen() (seen, within []debuginfo.Entry) {
	home := min(f.home, len(f.scopes))
	if home == len(f.scopes) || !f.meant().Unit().Language().IsGo() {
		return f.scopes[home:], f.scopes[:home]
	}
	for name := f.scopes[home].Name(); ; {
		writer, ok := writtenIn(name)
		if !ok {
			return f.scopes[home:], f.scopes[:home]
		}
		around := home - 1
		for around >= 0 && f.scopes[around].Tag() == dwarf.TagLexDwarfBlock {
			around--
		}
		if around < 0 || !isWriter(writer, f.scopes[around].Name()) {
			// The variables that it captured have no place here, and the caller's names mean other
			// variables.
			return f.scopes[home:], nil
		}
		home, name = around, f.scopes[around].Name()
	}
}

// literal matches the ends of names that Go gives to function literals, to the bodies of loops
// over functions, and to the calls of go and defer.
var literal = regexp.MustCompile(`^(.+?)(?:\.func\d+|\.gowrap\d+|\.deferwrap\d+|\.\d+|-range\d+)$`)

// writtenIn returns the name of the function that a Go function literal is written in.
func writtenIn(name string) (writer string, ok bool) {
	if m := literal.FindStringSubmatch(name); m != nil {
		return m[1], true
	}
	return "", false
}

// isWriter reports whether function is the one that a literal's name calls its writer. If the
// function was inlined into another one before, the literal's name has the names of both
// (main.main.inner).
func isWriter(writer, function string) bool {
	slash := strings.LastIndexByte(function, '/') + 1
	_, bare, ok := strings.Cut(function[slash:], ".")
	return writer == function || ok && strings.HasSuffix(writer, "."+bare)
}

// dropped reports whether a variable belongs to the inlined function that is meant, but this
// call of the function doesn't describe it.
func (f *frame) dropped(name string) bool {
	return f.home > 0 && f.home < len(f.scopes) && declares(f.meant(), name, 0)
}

// declares reports whether a function, or a block in it, declares a variable of a name.
func declares(e *debuginfo.Entry, name string, depth int) bool {
	if depth > maxDepthOfBlocks {
		return false
	}
	for c := range e.Children() {
		switch c.Tag() {
		case dwarf.TagFormalParameter, dwarf.TagVariable:
			if c.Name() == name {
				return true
			}
		case dwarf.TagLexDwarfBlock:
			if declares(&c, name, depth+1) {
				return true
			}
		}
	}
	return false
}
