package assess

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/fetch/vars"
	"kprobe/probe/gocode"
	"kprobe/symbols"
)

// Env answers what a definition asks of the process it is compiled for.
type Env struct {
	Space *symbols.Space
	Text  int // bytes of a text that are looked at; 0: as many as is usual
	Site  symbols.Site
	vars  *vars.Scope
}

// AtEntry implements fetch.Env.
func (e *Env) AtEntry() bool { return e.Site.Offset == 0 && e.Site.Func.Start == e.Site.Vaddr }

// Data implements fetch.Env.
func (e *Env) Data(module, symbol string) (symbols.Addr, uint64, error) {
	if module == "" && e.Site.Module != nil {
		if a, n, err := e.Space.Data(e.Site.Module.Path, symbol); err == nil {
			return a, n, nil
		}
	}
	return e.Space.Data(module, symbol)
}

// FileOffset implements fetch.Env: the offset is one in the probed file.
func (e *Env) FileOffset(off symbols.Off) (symbols.Addr, error) {
	for _, m := range e.Site.Module.Maps {
		if off >= m.Off && uint64(off-m.Off) < uint64(m.End-m.Start) {
			return m.Start + symbols.Addr(off-m.Off), nil
		}
	}
	return 0, fmt.Errorf("offset %v of %s is not mapped in the process", off, e.Site.Module.Name)
}

// scope answers names from debug information, made when it is first needed.
func (e *Env) scope() *vars.Scope {
	if e.vars == nil {
		e.vars = vars.At(e.Space, e.Site)
	}
	return e.vars
}

// Variable implements fetch.Env.
func (e *Env) Variable(text string) (fetch.Variable, error) {
	if v, ok, err := vars.OfThread(e.Space, e.Site.Module, text, gocode.GMember); ok {
		return v, err
	}
	return e.scope().Variable(text)
}

// Parameters implements fetch.Env.
func (e *Env) Parameters() ([]fetch.Variable, error) { return e.scope().Parameters() }

// Variables implements fetch.DebugEnv.
func (e *Env) Variables(which fetch.Which) ([]fetch.Variable, error) {
	return e.scope().Variables(which)
}

// Argument implements fetch.DebugEnv.
func (e *Env) Argument(n int) (fetch.Variable, error) { return e.scope().Argument(n) }

// Result implements fetch.DebugEnv.
func (e *Env) Result() (fetch.Variable, error) { return e.scope().Result() }

// SymbolAt implements fetch.Symbolizer, for symstr.
func (e *Env) SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool) {
	return e.Space.SymbolAt(a)
}

// MaxText implements fetch.TextLimiter.
func (e *Env) MaxText() int { return e.Text }
