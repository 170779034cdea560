package vars

import (
	"debug/dwarf"
	"fmt"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// Go's debug information gives a local variable in memory one place for all of its
// block. Before the variable is declared, that place holds values of other variables.

// undeclaredError says that a variable has no value yet. It is an ErrNoValue.
type undeclaredError struct {
	name string
	line int64
}

func (e *undeclaredError) Error() string {
	return fmt.Sprintf("%s has no value yet at this line: it is declared on line %d", e.name, e.line)
}

func (e *undeclaredError) Is(target error) bool { return target == fetch.ErrNoValue }

// undeclared returns the line that declares a local variable in memory. is says that the code
// at the address belongs to that line or to an earlier one.
func (f *frame) undeclared(e *debuginfo.Entry) (line int64, is bool) {
	if e.Tag() != dwarf.TagVariable || !f.language(*e).IsGo() || !f.unstored(e) || f.isCaptured(e) {
		return 0, false
	}
	v, _, ok := e.Chased(dwarf.AttrDeclLine)
	if !ok {
		return 0, false
	}
	if line, ok = v.Int(); !ok {
		return 0, false
	}
	at, ok := f.lineOf(e)
	return line, !ok || at <= line
}

// lineOf returns the line of the code at the address, in the function that has the variable.
// In code that is inlined there, this is the line of the call.
func (f *frame) lineOf(e *debuginfo.Entry) (line int64, ok bool) {
	own := false
	for _, list := range [...][]debuginfo.Entry{f.scopes, f.inlined} {
		for i := range list {
			s := &list[i]
			if own && s.Tag() == dwarf.TagInlinedSubroutine {
				return s.Int(dwarf.AttrCallLine)
			}
			for c := range s.Children() {
				own = own || c.Ref() == e.Ref()
			}
		}
	}
	row, _, ok := f.fn.Unit().LineAt(f.pc)
	return int64(row.Line), ok
}
