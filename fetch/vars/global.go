package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Global resolves an expression whose variable belongs to the whole program, whatever code
// runs: NAME, and what Scope.Variable accepts before and after it. An empty module means any
// module, in the order of dynamic linking.
//
// Errors wrap fetch.ErrNoDebugInfo if none of the modules has debug information; others wrap
// fetch.ErrNoValue or are a *NotFoundError.
func Global(space *symbols.Space, module, text string) (v fetch.Variable, in *symbols.Module, err error) {
	list := space.Modules()
	if module != "" {
		if list = space.FindModule(module); list == nil {
			return v, nil, fmt.Errorf("%s: %w", module, symbols.ErrNotMapped)
		}
	}
	err = fmt.Errorf("%s: %w", text, fetch.ErrNoDebugInfo)
	for _, m := range list {
		if m.File == nil {
			continue
		}
		found := false
		rerr := m.File.ReadDebug(func(d *debuginfo.Data) error {
			e, ok := first(d, text)
			if !ok {
				return &NotFoundError{Name: "variable " + firstName(text), Where: "the debug information of " + m.Name + ", outside of functions", Global: true}
			}
			if other := hides(list, m, e); module == "" && other != nil {
				return fmt.Errorf("%s has a variable %s, and %w about it", other.Name, e.Name(), fetch.ErrNoDebugInfo)
			}
			found = true
			site := symbols.Site{Module: m, Func: new(symbols.Func), Named: m.Name}
			f := &frame{scope: At(space, site), data: d, module: m, fn: e}
			v, err = f.variable(text)
			return nil
		})
		if found {
			return v, m, err
		}
		if errors.Is(rerr, fetch.ErrNoDebugInfo) && !errors.Is(rerr, symbols.ErrNoDebugInfo) {
			return v, nil, rerr
		}
		var missing *NotFoundError
		if errors.As(rerr, &missing) && (module != "" || m.Main || errors.Is(err, fetch.ErrNoDebugInfo)) {
			err = missing
		}
	}
	return v, nil, err
}

// hides returns the module whose variable a name means, instead of a static variable of module
// m: it comes before m, and has a symbol of that name.
func hides(list []*symbols.Module, m *symbols.Module, e debuginfo.Entry) *symbols.Module {
	if _, at, ok := e.Chased(dwarf.AttrExternal); ok && at.Flag(dwarf.AttrExternal) {
		return nil
	}
	for _, before := range list {
		if before == m {
			return nil
		}
		if before.File != nil && slices.ContainsFunc(before.File.Lookup(e.Name()), func(s symbols.Symbol) bool {
			return s.Kind == symbols.KindObject || s.Kind == symbols.KindTLS
		}) {
			return before
		}
	}
	return nil
}

// firstName returns the name that an expression begins with, without members, elements, and
// what stands before it.
func firstName(text string) string {
	for text != "" && strings.IndexByte("*(", text[0]) >= 0 {
		end := strings.IndexByte(text, ')')
		if text[0] == '(' && end > 0 && end+1 < len(text) && strings.IndexByte(".-[)", text[end+1]) < 0 {
			text = text[end+1:] // after a cast
			continue
		}
		text = text[1:]
	}
	p := parser{s: text}
	return p.word()
}

// first finds the variable that an expression begins with. Names of Go's variables begin with
// their package.
func first(d *debuginfo.Data, text string) (debuginfo.Entry, bool) {
	name := firstName(text)
	if name == "" {
		return debuginfo.Entry{}, false
	}
	if e, ok := d.FindVariable(name, nil); ok {
		return e, true
	}
	_, rest, ok := strings.Cut(text, name+".")
	if !ok {
		return debuginfo.Entry{}, false
	}
	p := parser{s: rest}
	return d.FindVariable(name+"."+p.word(), nil)
}
