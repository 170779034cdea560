package vars

import (
	"debug/dwarf"
	"regexp"
	"strings"

	"kprobe/symbols/debuginfo"
)

// meant is the function whose variables are meant: of an inlined call the function
// that was inlined, which may be of another unit.
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

// seen divides the scopes around the address: in those of the function that is meant,
// whose variables its code sees, and those of functions that it is inlined into. A Go
// function literal sees the variables of the function that it is written in.
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
			// What it captured is nowhere, and the caller's names are others.
			return f.scopes[home:], nil
		}
		home, name = around, f.scopes[around].Name()
	}
}

// literal is how the names of Go's function literals, of the bodies of loops over
// functions, and of what go and defer call end.
var literal = regexp.MustCompile(`^(.+?)(?:\.func\d+|\.gowrap\d+|\.deferwrap\d+|\.\d+|-range\d+)$`)

// writtenIn is the name of the function that a Go function literal is written in.
func writtenIn(name string) (writer string, ok bool) {
	if m := literal.FindStringSubmatch(name); m != nil {
		return m[1], true
	}
	return "", false
}

// isWriter reports whether a literal of the writer's name is written in the function:
// of one that was inlined into another before, the names are both (main.main.inner).
func isWriter(writer, function string) bool {
	slash := strings.LastIndexByte(function, '/') + 1
	_, bare, ok := strings.Cut(function[slash:], ".")
	return writer == function || ok && strings.HasSuffix(writer, "."+bare)
}

// dropped reports a variable of the inlined function that is meant, of which this call of
// it doesn't tell.
func (f *frame) dropped(name string) bool {
	return f.home > 0 && f.home < len(f.scopes) && declares(f.meant(), name, 0)
}

// declares reports whether a function, or a block in it, has a variable of a name.
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
