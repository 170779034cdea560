package vars

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// frame is the debug information at one address.
type frame struct {
	scope    *Scope
	data     *debuginfo.Data
	module   *symbols.Module
	pc       uint64
	fn       debuginfo.Entry   // the function, not inlined
	scopes   []debuginfo.Entry // around the address, from fn in
	home     int               // in scopes: the function whose parameters are meant
	inlined  []debuginfo.Entry // around the address, too: what is inlined into what is meant
	depth    int               // of expressions within expressions
	nested   int               // of types within types
	atReturn bool              // what is described is what a return probe records
	merged   error             // says with what other function its code is one
	doubtful bool              // what was classified may be passed in several ways
	work     int               // structures looked into for a variable, which hostile types nest without end

	lists    map[debuginfo.Ref][]member       // members of structures
	naturals map[debuginfo.Ref]int64          // what structures are aligned to
	contents map[debuginfo.Ref]*fetch.Content // of types, as far as they are known; nil: no container
	recipes  []cxxRecipe
	types    *goTypes
	touches  *touchedFrame // what the function's code does to its frame, once that was looked for
}

// find fills in the scopes. Where the site doesn't tell which function is meant, the
// start of one means it, and not what is inlined at its first instruction.
func (f *frame) find() error {
	f.scopes = f.data.Scopes(f.pc)
	if f.scopes == nil {
		if u := f.data.UnitAt(f.pc); u != nil {
			if dwo := u.MissingSplit(); dwo != "" {
				return fmt.Errorf("%s is split off into %s, which can't be found: %w", u.Name(), dwo, fetch.ErrNoDebugInfo)
			}
		}
		return fmt.Errorf("%s: %w about it", f.scope.site.Name, fetch.ErrNoDebugInfo)
	}
	f.fn = f.scopes[0]
	inner, told := len(f.scopes), false
	want := f.scope.site.Entry
	for i := range f.scopes {
		e := &f.scopes[i]
		if !want.IsZero() && e.Ref() == want {
			f.home, told = i, true
			continue
		}
		if e.Tag() != dwarf.TagInlinedSubroutine {
			continue
		}
		if told || want.IsZero() && f.atEntry() {
			inner = i
			break
		}
		f.home = i
	}
	f.scopes, f.inlined = f.scopes[:inner], f.scopes[inner:]
	return nil
}

// language is the source language of an entry. Units that dwz made of parts of
// others don't tell: they are of the function's.
func (f *frame) language(e debuginfo.Entry) debuginfo.Language {
	if l := e.Unit().Language(); l != 0 {
		return l
	}
	return f.fn.Unit().Language()
}

// atEntry reports whether the address is the function's first.
func (f *frame) atEntry() bool {
	low, ok := f.fn.EntryPC()
	return ok && low == f.pc
}

// visible are the parameters or locals of the function, inner blocks' first
// where a name is there twice. Go's results that have names are locals.
func (f *frame) visible(which fetch.Which) []debuginfo.Entry {
	var params, locals []debuginfo.Entry
	seen := map[string]bool{}
	for i := len(f.scopes) - 1; i >= f.home; i-- {
		for c := range f.scopes[i].Children() {
			tag := c.Tag()
			if tag != dwarf.TagFormalParameter && tag != dwarf.TagVariable {
				continue
			}
			name := f.sourceName(&c)
			if f.isResult(&c) {
				if f.atEntry() || !fetch.IsName(name) {
					continue
				}
				tag = dwarf.TagVariable // inside the function it is a local one
			} else if strings.HasPrefix(name, ".") && f.language(c).IsGo() {
				continue // the compiler's own
			}
			if name == "" || seen[name] && tag != dwarf.TagFormalParameter {
				continue
			}
			seen[name] = true
			if tag == dwarf.TagFormalParameter {
				params = append(params, c)
			} else {
				locals = append(locals, c)
			}
		}
	}
	// Inlined instances list them in any order.
	slices.SortStableFunc(params, func(x, y debuginfo.Entry) int {
		a, ok := x.RefTo(dwarf.AttrAbstractOrigin)
		b, ok2 := y.RefTo(dwarf.AttrAbstractOrigin)
		if !ok || !ok2 {
			return 0
		}
		return cmp.Compare(a.Offset(), b.Offset())
	})
	switch which {
	case fetch.WhichParams:
		return params
	case fetch.WhichLocals:
		return locals
	}
	return append(params, locals...)
}

// ofFunction reports a parameter of the function itself, and not of what is inlined
// into it.
func (f *frame) ofFunction(e *debuginfo.Entry) bool {
	if e.Tag() != dwarf.TagFormalParameter {
		return false
	}
	for c := range f.fn.Children() {
		if c.Ref() == e.Ref() {
			return true
		}
	}
	return false
}

// isResult reports one of Go's results, which are parameters too.
func (f *frame) isResult(e *debuginfo.Entry) bool {
	return e.Tag() == dwarf.TagFormalParameter && f.language(*e).IsGo() && e.Flag(dwarf.AttrVarParam)
}

// name finds a variable by its name: from the innermost block out, then the
// unit's, then other units'.
func (f *frame) name(name string) (debuginfo.Entry, bool) {
	if e, ok := f.nameIn(f.scopes, name); ok {
		return e, true
	}
	return f.outside(name)
}

// outside finds a variable of no function, as the function's code sees it.
func (f *frame) outside(name string) (debuginfo.Entry, bool) {
	fn := f.meant()
	if u := fn.Unit(); u.Language().IsCXX() {
		return f.data.FindVisible(name, fn.QualifiedName(), u)
	}
	return f.data.FindVariable(name, fn.Unit())
}

// nameIn finds a variable in scopes, from the innermost out.
func (f *frame) nameIn(scopes []debuginfo.Entry, name string) (debuginfo.Entry, bool) {
	for i := len(scopes) - 1; i >= 0; i-- {
		var found debuginfo.Entry
		ok := false
		for c := range scopes[i].Children() {
			if t := c.Tag(); (t == dwarf.TagFormalParameter || t == dwarf.TagVariable) && (c.Name() == name || !ok && f.escaped(&c) && c.Name()[1:] == name) {
				if _, _, here := c.LocationAt(dwarf.AttrLocation, f.pc); !ok || here {
					found, ok = c, true // of several, the one that is there now
				}
			}
		}
		if ok {
			return found, true
		}
	}
	return debuginfo.Entry{}, false
}

// declared makes the variable of an entry.
func (f *frame) declared(e debuginfo.Entry) (fetch.Variable, error) {
	f.work = 0
	v, err := f.load(e)
	if err != nil {
		return fetch.Variable{}, err
	}
	out, err := v.variable(f.sourceName(&e))
	if err == nil && out.Parts != nil && out.Type.Base != fetch.Container && v.t.kind == kindStruct && out.Type.Layout != nil && out.Type.Layout.Switch == 0 {
		return out, errPieces // its members, by their names
	}
	return out, err
}

// load finds a variable's place and type.
func (f *frame) load(e debuginfo.Entry) (value, error) {
	t, err := f.typeOf(&e)
	if err != nil {
		return value{}, fmt.Errorf("%s: %w", e.Name(), err)
	}
	if f.merged != nil && f.ofCall(&e) {
		return value{}, fmt.Errorf("%s: %w", e.Name(), f.merged)
	}
	if f.isEmpty(t) { // wherever it may be
		return value{f: f, t: t, p: place{kind: isBytes, bytes: []byte{}}}, nil
	}
	if f.isResult(&e) && f.atEntry() && f.ofFunction(&e) {
		v, err := f.loadResult(&e)
		if err != nil {
			return v, fmt.Errorf("%s: %w", e.Name(), err)
		}
		return v, nil
	}
	if home, ok := f.onHeap(&e); ok && !f.atEntry() {
		return f.load(home)
	}
	if line, is := f.undeclared(&e); is {
		return value{}, &undeclaredError{f.sourceName(&e), line}
	}
	p, err := f.placeOf(&e)
	if err != nil {
		return value{}, fmt.Errorf("%s: %w", f.sourceName(&e), err)
	}
	if p.promoted {
		t = ctype{name: "double", kind: kindFloat, size: 8}
	}
	v := value{f: f, t: t, p: p, behind: f.lasts(&e, p)}
	if f.escaped(&e) {
		if v, err = f.fromHeap(v); err != nil {
			return v, fmt.Errorf("%s: %w", f.sourceName(&e), err)
		}
	}
	return v.unreference()
}

// lasts reports a variable that is no part of the call: of the whole program, or
// of a thread.
func (f *frame) lasts(e *debuginfo.Entry, p place) bool {
	if e.Tag() == dwarf.TagFormalParameter || p.kind != inMemory {
		return false
	}
	r := p.sym.src
	return r.Source == fetch.SourceImm || r.Source == fetch.SourceReg && (r.Reg == fetch.RegFSBase || r.Reg == fetch.RegGSBase)
}

// argument is the N-th formal parameter.
func (f *frame) argument(n int) (fetch.Variable, error) {
	params := f.visible(fetch.WhichParams)
	if n > len(params) && f.isGoFunc() {
		return fetch.Variable{}, noValueError(fmt.Sprintf("%s has %d parameters, and Go's registers are not C's", f.scope.site.Name, len(params)))
	}
	if n < 1 || n > len(params) {
		return fetch.Variable{}, fmt.Errorf("%s has %d parameters: %w", f.scope.site.Name, len(params), errNoSuchArgument)
	}
	t, err := f.typeOf(&params[n-1])
	if err != nil {
		return fetch.Variable{}, err
	}
	if f.merged != nil || f.leavesOut() {
		return fetch.Variable{}, errNoSuchArgument
	}
	if _, ok := f.onHeap(&params[n-1]); ok && !f.atEntry() {
		return fetch.Variable{}, noValueError(fmt.Sprintf("parameter %d is on the heap here: fetch it by its name", n))
	}
	p, err := f.placeOf(&params[n-1])
	if errors.Is(err, fetch.ErrNoValue) && !f.isGoFunc() {
		return fetch.Variable{}, fmt.Errorf("parameter %d is not used: %w", n, errNoSuchArgument)
	}
	if err != nil {
		return fetch.Variable{}, err
	}
	v := value{f: f, t: t, p: p}
	if t.kind == kindStruct && f.isGoFunc() {
		return fetch.Variable{}, fmt.Errorf("parameter %d is a %s: %w", n, t, fetch.ErrInParts)
	}
	if t.kind == kindStruct {
		return fetch.Variable{}, fmt.Errorf("parameter %d is a structure: %w", n, errNoSuchArgument)
	}
	return v.variable("arg" + strconv.Itoa(n))
}

// noValueError is a fetch.ErrNoValue with words of its own.
type noValueError string

func (e noValueError) Error() string { return string(e) }

// Unwrap gives fetch.ErrNoValue.
func (e noValueError) Unwrap() error { return fetch.ErrNoValue }

// errNoSuchArgument leaves $argN to the calling convention.
var errNoSuchArgument = errors.New("no such parameter")

// variable answers an expression.
func (f *frame) variable(text string) (fetch.Variable, error) {
	p := parser{f: f, s: text}
	v, err := p.parse()
	if err != nil {
		return fetch.Variable{}, err
	}
	out, err := v.variable(text)
	if err != nil {
		return out, fmt.Errorf("%s: %w", text, err)
	}
	out.AtReturn = v.atReturn
	return out, nil
}

// names are what can be asked for, for errors.
func (f *frame) names() []string {
	var out []string
	for _, e := range f.visible(fetch.WhichVars) {
		out = append(out, e.Name())
	}
	return out
}

// optimizedOut says that a variable has no place here, and where it has one.
func (f *frame) optimizedOut(list []debuginfo.Location) error {
	var where []string
	for _, l := range list {
		if l.Everywhere() || len(l.Expr) == 0 {
			continue
		}
		text := f.at(l.Low)
		if len(where) > 0 && where[len(where)-1] == text {
			continue
		}
		if where = append(where, text); len(where) == 4 {
			break
		}
	}
	if where == nil {
		return fmt.Errorf("%w, everywhere", fetch.ErrNoValue)
	}
	return fmt.Errorf("%w at this address; available from %s on", fetch.ErrNoValue, strings.Join(where, ", "))
}

// at names an address of the file.
func (f *frame) at(v uint64) string {
	name, off, _, _, ok := f.scope.space.Symbolize(f.module.Addr(symbols.Vaddr(v)))
	if !ok {
		return symbols.Vaddr(v).String()
	}
	if off == 0 {
		return name
	}
	return fmt.Sprintf("%s+%#x", name, off)
}
