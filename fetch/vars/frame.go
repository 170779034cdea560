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
	fn       debuginfo.Entry   // the function that the code belongs to, not an inlined one
	scopes   []debuginfo.Entry // the scopes around the address, from fn inwards
	home     int               // index in scopes of the function whose parameters are meant
	inlined  []debuginfo.Entry // scopes around the address that are inlined into the function meant
	depth    int               // of nested expressions
	nested   int               // of nested types
	atReturn bool              // describes what a return probe records
	merged   error             // names the other function that has the same code
	doubtful bool              // the classified type may be passed in several ways
	work     int               // structures visited for one variable; hostile types nest without end

	lists    map[debuginfo.Ref][]member       // members of structures
	naturals map[debuginfo.Ref]int64          // alignments of structures
	contents map[debuginfo.Ref]*fetch.Content // contents of types found so far; nil: no container
	recipes  []cxxRecipe
	types    *goTypes
	touches  *touchedFrame // what the function's code does to its frame; nil until it is needed
}

// find fills in the scopes. If the site doesn't say which function is meant, the address at
// which a function starts means that function, and not one that is inlined at its first
// instruction.
func (f *frame) find() error {
	f.scopes = f.data.Scopes(f.pc)
	if f.scopes == nil {
		if u := f.data.UnitAt(f.pc); u != nil {
			if dwo := u.MissingSplit(); dwo != "" {
				return fmt.Errorf("%s is split off into %s, which can't be found: %w", u.Name(), dwo, fetch.ErrNoDebugInfo)
			}
		}
		return fmt.Errorf("%s: %w about it", f.scope.site.Name(), fetch.ErrNoDebugInfo)
	}
	f.fn = f.scopes[0]
	inner, told := len(f.scopes), false
	want := f.scope.site.NamedAs().Entry
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

// language returns the source language of an entry. Units that dwz made of parts of other
// units have none; they take the function's.
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

// visible returns the parameters or locals of the function. If a name occurs twice, the
// variable of the inner block comes first. Go's named results count as locals.
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
				tag = dwarf.TagVariable // inside the function it is a local variable
			} else if strings.HasPrefix(name, ".") && f.language(c).IsGo() {
				continue // made by the compiler
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
	// Inlined instances list parameters in any order.
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

// ofFunction reports whether a parameter belongs to the function itself, and not to a function
// inlined into it.
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

// isResult reports whether a parameter is one of Go's results. Debug information lists them as
// parameters, too.
func (f *frame) isResult(e *debuginfo.Entry) bool {
	return e.Tag() == dwarf.TagFormalParameter && f.language(*e).IsGo() && e.Flag(dwarf.AttrVarParam)
}

// name finds a variable by its name: from the innermost block outwards, then in the unit, then
// in other units.
func (f *frame) name(name string) (debuginfo.Entry, bool) {
	if e, ok := f.nameIn(f.scopes, name); ok {
		return e, true
	}
	return f.outside(name)
}

// outside finds a variable outside of all functions, as the function's code sees it.
func (f *frame) outside(name string) (debuginfo.Entry, bool) {
	fn := f.meant()
	if u := fn.Unit(); u.Language().IsCXX() {
		return f.data.FindVisible(name, fn.QualifiedName(), u)
	}
	return f.data.FindVariable(name, fn.Unit())
}

// nameIn finds a variable in scopes, from the innermost outwards.
func (f *frame) nameIn(scopes []debuginfo.Entry, name string) (debuginfo.Entry, bool) {
	for i := len(scopes) - 1; i >= 0; i-- {
		var found debuginfo.Entry
		ok := false
		for c := range scopes[i].Children() {
			if t := c.Tag(); (t == dwarf.TagFormalParameter || t == dwarf.TagVariable) && (c.Name() == name || !ok && f.escaped(&c) && c.Name()[1:] == name) {
				if _, _, here := c.LocationAt(dwarf.AttrLocation, f.pc); !ok || here {
					found, ok = c, true // if there are several, the one that has a place now
				}
			}
		}
		if ok {
			return found, true
		}
	}
	return debuginfo.Entry{}, false
}

// declared returns the variable that an entry declares.
func (f *frame) declared(e debuginfo.Entry) (fetch.Variable, error) {
	f.work = 0
	v, err := f.load(e)
	if err != nil {
		return fetch.Variable{}, err
	}
	out, err := v.variable(f.sourceName(&e))
	if err == nil && out.Parts != nil && out.Type.Base != fetch.Container && v.t.kind == kindStruct && out.Type.Layout != nil && out.Type.Layout.Switch == 0 {
		return out, errPieces // its members can be asked for by their names
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
	if f.isEmpty(t) { // its place doesn't matter
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
	if err == nil {
		err = f.unpassed(&e, p)
	}
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

// lasts reports whether a variable outlives the call: one of the whole program, or of a
// thread.
func (f *frame) lasts(e *debuginfo.Entry, p place) bool {
	if e.Tag() == dwarf.TagFormalParameter || p.kind != inMemory {
		return false
	}
	r := p.sym.src
	return r.Source == fetch.SourceImm || r.Source == fetch.SourceReg && (r.Reg == fetch.RegFSBase || r.Reg == fetch.RegGSBase)
}

// argument returns the N-th formal parameter.
func (f *frame) argument(n int) (fetch.Variable, error) {
	params := f.visible(fetch.WhichParams)
	if n > len(params) && f.isGoFunc() {
		return fetch.Variable{}, unknown("%s has only %d parameters, and Go doesn't pass arguments in C's registers", f.scope.site.Name(), len(params))
	}
	if n < 1 || n > len(params) {
		return fetch.Variable{}, fmt.Errorf("%s has %d parameters: %w", f.scope.site.Name(), len(params), errNoSuchArgument)
	}
	t, err := f.typeOf(&params[n-1])
	if err != nil {
		return fetch.Variable{}, err
	}
	if f.merged != nil || f.leavesOut() {
		return fetch.Variable{}, errNoSuchArgument
	}
	if _, ok := f.onHeap(&params[n-1]); ok && !f.atEntry() {
		return fetch.Variable{}, unknown("parameter %d is on the heap here: fetch it by its name", n)
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

// noValueError is a fetch.ErrNoValue with its own words.
type noValueError string

func (e noValueError) Error() string { return string(e) }

// Unwrap returns fetch.ErrNoValue.
func (e noValueError) Unwrap() error { return fetch.ErrNoValue }

// unknownError says why a value isn't known that may be there. It is a fetch.ErrNoValue with
// its own words.
type unknownError struct{ error }

// Unwrap returns fetch.ErrNoValue, and what the words come from.
func (e *unknownError) Unwrap() []error { return []error{e.error, fetch.ErrNoValue} }

func unknown(format string, args ...any) error { return &unknownError{fmt.Errorf(format, args...)} }

// errNoSuchArgument says that debug information has no such parameter; the calling convention
// then answers $argN.
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

// names lists the names that can be asked for; errors print it.
func (f *frame) names() []string {
	var out []string
	for _, e := range f.visible(fetch.WhichVars) {
		out = append(out, e.Name())
	}
	return out
}

// optimizedOut says that a variable has no place here, and at which addresses it has one.
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
		return fmt.Errorf("%w everywhere", fetch.ErrNoValue)
	}
	return fmt.Errorf("%w at this address; available from %s on", fetch.ErrNoValue, strings.Join(where, ", "))
}

// at formats an address of the file.
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
