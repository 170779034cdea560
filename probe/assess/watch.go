package assess

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/fetch/vars"
	"kprobe/probe/debugreg"
	"kprobe/probe/gocode"
	"kprobe/symbols"
)

// dataAt is memory that a definition names.
type dataAt struct {
	at     symbols.Addr
	length int // 0: nobody knows
	typ    fetch.Type
	module *symbols.Module
}

// findData finds the memory of a PlaceData in a process, or as far as its address is
// known in a file. mem reads what pointers lead to; nil: they can't be followed.
func findData(space *symbols.Space, d *fetch.Def, mem symbols.Memory) (out dataAt, err error) {
	p := d.Place
	defer func() {
		if err == nil && p.Length != 0 {
			out.length = p.Length
		}
	}()
	if p.Symbol == "" {
		out = dataAt{at: symbols.Addr(p.Value), length: 4}
		if p.Value != symbols.NoData {
			out.module = space.ModuleAt(out.at)
		}
		return out, nil
	}
	at, size, serr := space.Data(p.Module, p.Symbol)
	v, m, verr := vars.Global(space, p.Module, p.Symbol)
	switch {
	case serr == nil:
		out = dataAt{at: at, module: space.ModuleAt(at)}
		if debugreg.Lengths(int(min(size, 16))) {
			out.length = int(size)
		}
		if verr == nil && v.InMemory && constantAt(&v) == at {
			out.fill(&v)
		}
	case verr == nil:
		if out.at, err = follow(&v, d, mem); err != nil {
			return out, err
		}
		out.module = m
		out.fill(&v)
	default:
		return out, dataError(d, serr, verr)
	}
	if p.Offset != 0 && out.at != symbols.Addr(symbols.NoData) {
		out.at += symbols.Addr(p.Offset)
		out.typ, out.length = fetch.Type{}, 4
	}
	return out, nil
}

// fill takes a variable's size and type.
func (out *dataAt) fill(v *fetch.Variable) {
	t := v.Type
	if n := int(t.Size) * max(int(t.Count), 1); debugreg.Lengths(n) && !v.Pointer {
		out.length = n
	}
	switch {
	case v.Pointer:
		out.typ, out.length = fetch.DefaultType(), 8
	case t.Count == 0 && !t.IsText() && t.Base != fetch.Struct:
		out.typ = t
	}
}

// constantAt is the address of a variable that has one whatever happens; 0: it has
// none.
func constantAt(v *fetch.Variable) symbols.Addr {
	if v.Chain.Source != fetch.SourceImm || len(v.Chain.Loads) > 0 {
		return 0
	}
	return symbols.Addr(v.Chain.Imm) + symbols.Addr(v.Off)
}

// follow is where a variable lies now.
func follow(v *fetch.Variable, d *fetch.Def, mem symbols.Memory) (symbols.Addr, error) {
	refuse := func(why string) error { return d.Error(fetch.BadAccessAddr, why, nil) }
	switch {
	case !v.InMemory && v.Type.IsText() && v.Max == 0:
		return 0, refuse(d.Place.Symbol + " is a text: watch the pointer to it by its address, or a byte of it, " + d.Place.Symbol + "[0]")
	case !v.InMemory:
		return 0, refuse(d.Place.Symbol + " has no address")
	}
	at, ok := fetch.Address(&v.Chain, mem)
	if !ok {
		own := v.Chain.Source == fetch.SourceReg || v.Chain.Source == fetch.SourceComputed && v.Chain.From == fetch.SourceReg
		for i := range v.Chain.Steps {
			own = own || v.Chain.Steps[i].FromReg
		}
		switch {
		case own:
			return 0, refuse(d.Place.Symbol + " is each thread's own: watch it by its address")
		case mem == nil:
			return symbols.Addr(symbols.NoData), nil // a file has no pointers yet
		}
		return 0, refuse("a pointer in " + d.Place.Symbol + " leads nowhere now")
	}
	return symbols.Addr(at) + symbols.Addr(v.Off), nil
}

// dataError says that neither symbols nor debug information know the name.
func dataError(d *fetch.Def, serr, verr error) error {
	var missing *vars.NotFoundError
	var field *fetch.FieldError
	switch {
	case errors.As(verr, &field):
		return d.Error(field.Code, verr.Error(), verr)
	case errors.Is(verr, fetch.ErrNoDebugInfo) || errors.As(verr, &missing):
		var ambiguous *symbols.AmbiguousError
		if errors.As(serr, &ambiguous) {
			return serr
		}
		if errors.As(verr, &missing) && errors.Is(serr, symbols.ErrNoSymbol) && fetch.IsName(d.Place.Symbol) && !symbolLike(d.Place.Symbol) {
			return d.Error(fetch.BadAccessAddr, verr.Error(), verr)
		}
		return d.Error(fetch.BadAccessAddr, serr.Error(), serr)
	}
	return d.Error(fetch.BadAccessAddr, verr.Error(), verr)
}

// symbolLike reports a name without members.
func symbolLike(s string) bool {
	for _, c := range s {
		switch c {
		case '.', '[', '*', '(', '>':
			return false
		}
	}
	return true
}

// watchEnv answers what a watchpoint's arguments need.
type watchEnv struct {
	Env
	typ    fetch.Type
	module string // in which variables are looked for first
}

// AtEntry implements fetch.Env.
func (e *watchEnv) AtEntry() bool { return false }

// Watched implements fetch.WatchEnv.
func (e *watchEnv) Watched() fetch.Type { return e.typ }

// FileOffset implements fetch.Env.
func (e *watchEnv) FileOffset(off symbols.Off) (symbols.Addr, error) {
	if e.Site.Module == nil {
		return 0, errors.New("the watched memory is in no file")
	}
	return e.Env.FileOffset(off)
}

// Variable implements fetch.Env: those of the whole program.
func (e *watchEnv) Variable(text string) (fetch.Variable, error) {
	if v, ok, err := vars.OfThread(e.Space, nil, text, gocode.GMember); ok {
		return v, err
	}
	if e.module != "" {
		if v, _, err := vars.Global(e.Space, e.module, text); err == nil {
			return v, nil
		}
	}
	v, _, err := vars.Global(e.Space, "", text)
	return v, err
}

// Parameters implements fetch.Env.
func (e *watchEnv) Parameters() ([]fetch.Variable, error) { return nil, fetch.ErrNoDebugInfo }

// Variables implements fetch.DebugEnv.
func (e *watchEnv) Variables(fetch.Which) ([]fetch.Variable, error) { return nil, fetch.ErrNoDebugInfo }

// Argument implements fetch.DebugEnv.
func (e *watchEnv) Argument(int) (fetch.Variable, error) {
	return fetch.Variable{}, fetch.ErrNoDebugInfo
}

// Result implements fetch.DebugEnv.
func (e *watchEnv) Result() (fetch.Variable, error) { return fetch.Variable{}, fetch.ErrNoDebugInfo }

// Memory is what a w definition watches.
type Memory struct {
	Site   symbols.Site // Addr is symbols.NoData where it is set later
	Length int
	Reads  bool // reads and writes are trapped
	Only   bool // reads are wanted, and no writes
}

// Watch finds what a w definition watches, and compiles the definition. mem reads what
// pointers lead to; nil: it is a file, which has none yet. text is as in Env.
//
// Errors are *fetch.SyntaxError and those of finding symbols.
func Watch(space *symbols.Space, d *fetch.Def, mem symbols.Memory, text int) (*Memory, *fetch.Program, error) {
	at, err := findData(space, d, mem)
	if err != nil {
		return nil, nil, err
	}
	w := &Memory{Length: at.length, Reads: d.Place.Access != "w", Only: d.Place.Access == "r"}
	site := symbols.Site{Addr: at.at, Module: at.module, Func: new(symbols.Func), Named: d.Place.String()}
	if at.module != nil {
		site.Vaddr = at.module.Vaddr(at.at)
	}
	if w.Length == 0 {
		return nil, nil, d.Error(fetch.BadAccessLen, fmt.Sprintf("%s is not 1, 2, 4 or 8 bytes long: name a member, or a length: %s:8", d.Place.Symbol, d.Place), nil)
	}
	if space.PID() != 0 && at.at != symbols.Addr(symbols.NoData) {
		if m, ok := mappedAt(space, at.at); !ok {
			return nil, nil, d.Error(fetch.BadAccessAddr, fmt.Sprintf("nothing is mapped at %v, where %s is now", at.at, d.Place.String()), nil)
		} else if m.Exec {
			return nil, nil, d.Error(fetch.BadAccessAddr, fmt.Sprintf("at %v is code, not data", at.at), nil)
		}
	}
	if err := debugreg.Check(at.at, w.Length); err != nil && at.at != symbols.Addr(symbols.NoData) {
		return nil, nil, d.Error(fetch.BadAccessAddr, err.Error(), err)
	}
	e := &watchEnv{Env: Env{Space: space, Text: text, Site: site}, typ: at.typ}
	if at.module != nil {
		e.module = at.module.Path
	}
	if int(e.typ.Size) != w.Length {
		e.typ = fetch.Type{Base: fetch.Hex, Size: uint8(w.Length)}
	}
	w.Site = site
	prog, err := d.Compile(e)
	return w, prog, err
}

// mappedAt finds the mapping of an address, as it is now.
func mappedAt(space *symbols.Space, at symbols.Addr) (m symbols.Mapping, ok bool) {
	if m, ok = space.MappingAt(at); ok {
		return m, ok
	}
	maps, err := symbols.ReadMaps(space.PID())
	if err != nil {
		return m, false
	}
	i := slices.IndexFunc(maps, func(m symbols.Mapping) bool { return m.Contains(at) })
	if i < 0 {
		return m, false
	}
	return maps[i], true
}

// checkWatch is check of a watchpoint. In a file what a pointer leads to isn't known.
func checkWatch(space *symbols.Space, d *fetch.Def) (*Checked, error) {
	w, _, err := Watch(space, d, nil, 0)
	if err != nil {
		return nil, err
	}
	return &Checked{Sites: []symbols.Site{w.Site}, Module: w.Site.Module}, nil
}
