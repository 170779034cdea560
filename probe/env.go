package probe

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/fetch/vars"
	"kprobe/symbols"
)

// env answers what a definition asks of the process it is compiled for.
type env struct {
	space *symbols.Space
	text  int // bytes of a text that are looked at; 0: as many as is usual
	site  symbols.Site
	vars  *vars.Scope
}

// AtEntry implements fetch.Env.
func (e *env) AtEntry() bool { return e.site.Offset == 0 && e.site.Func.Start == e.site.Vaddr }

// Data implements fetch.Env.
func (e *env) Data(module, symbol string) (symbols.Addr, uint64, error) {
	if module == "" && e.site.Module != nil {
		if a, n, err := e.space.Data(e.site.Module.Path, symbol); err == nil {
			return a, n, nil
		}
	}
	return e.space.Data(module, symbol)
}

// FileOffset implements fetch.Env: the offset is one in the probed file.
func (e *env) FileOffset(off symbols.Off) (symbols.Addr, error) {
	for _, m := range e.site.Module.Maps {
		if off >= m.Off && uint64(off-m.Off) < uint64(m.End-m.Start) {
			return m.Start + symbols.Addr(off-m.Off), nil
		}
	}
	return 0, fmt.Errorf("offset %v of %s is not mapped in the process", off, e.site.Module.Name)
}

// scope answers names from debug information, made when it is first needed.
func (e *env) scope() *vars.Scope {
	if e.vars == nil {
		e.vars = vars.At(e.space, e.site)
	}
	return e.vars
}

// Variable implements fetch.Env.
func (e *env) Variable(text string) (fetch.Variable, error) { return e.scope().Variable(text) }

// Parameters implements fetch.Env.
func (e *env) Parameters() ([]fetch.Variable, error) { return e.scope().Parameters() }

// Variables implements fetch.DebugEnv.
func (e *env) Variables(which fetch.Which) ([]fetch.Variable, error) {
	return e.scope().Variables(which)
}

// Argument implements fetch.DebugEnv.
func (e *env) Argument(n int) (fetch.Variable, error) { return e.scope().Argument(n) }

// Result implements fetch.DebugEnv.
func (e *env) Result() (fetch.Variable, error) { return e.scope().Result() }

// SymbolAt implements fetch.Symbolizer, for symstr.
func (e *env) SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool) {
	return symbolizer{e.space}.SymbolAt(a)
}

// MaxText implements fetch.TextLimiter.
func (e *env) MaxText() int { return e.text }

// symbolizer names the target's addresses.
type symbolizer struct{ space *symbols.Space }

// SymbolAt implements fetch.Symbolizer.
func (s symbolizer) SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool) {
	name, off, size, _, ok = s.space.Symbolize(a)
	return name, off, size, ok
}
