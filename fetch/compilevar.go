package fetch

import (
	"errors"
	"slices"
	"strconv"

	"kprobe/internal/quote"
)

// variable asks debug information for a name, to be read as type t. nil is a word.
func (c *compiler) variable(x *Expr, t *Type) (Variable, *SyntaxError) {
	if c.env == nil {
		return Variable{}, c.err(NoSupBTFArg, x.col, ErrNoDebugInfo)
	}
	v, err := c.env.Variable(x.Text)
	var field *FieldError
	switch {
	case errors.As(err, &field):
		return v, c.err(field.Code, x.col+field.At, err)
	case errors.Is(err, ErrNoDebugInfo):
		return v, c.err(NoSupBTFArg, x.col, err)
	case err != nil:
		return v, c.err(NoBTFArg, x.col, err)
	}
	if v.AtReturn && c.d.Kind != Return {
		return v, newError(NoBTFArg, c.d.Text, x.col, "it is a result: use a return probe (r)")
	}
	if v.AtReturn && c.atEntry {
		return v, newError(BadVar, c.d.Text, x.col, noResultYet)
	}
	if t != nil && t.Size == 0 {
		t = &v.Type
	}
	return c.atReturn(v, t, x.col)
}

// allArgs adds every formal parameter.
func (c *compiler) allArgs(a *Arg) *SyntaxError {
	if c.env == nil {
		return c.err(NoSupBTFArg, a.bodyCol, ErrNoDebugInfo)
	}
	vars, err := c.list(a.Expr.Which)
	switch {
	case errors.Is(err, ErrNoDebugInfo):
		return c.err(NoSupBTFArg, a.bodyCol, err)
	case err != nil:
		return c.err(NoBTFEntry, a.bodyCol, err)
	case len(c.prog.Args)+len(vars) > MaxArgs:
		return c.err(TooManyArgs, a.bodyCol, nil)
	}
	for _, v := range vars {
		v, e := c.atReturn(v, &v.Type, a.bodyCol)
		if e != nil && e.Code == TooManyEArgs && len(c.prog.Entry) < MaxEntryValues {
			v, e = GoneVariable(v.Name, NotRecorded), nil // too large to keep, or a text that may be gone
		}
		if e != nil {
			return e
		}
		if e := c.addVariable(a, c.ownName(v.Name), v, v.Type); e != nil {
			return e
		}
	}
	return nil
}

// ownName is what one of many variables is called. If the definition gives its name to another value, or two variables
// share it, the later is NAME#2, which nothing else is called: filters, histograms and readers of JSON go by the name.
func (c *compiler) ownName(name string) string {
	return quote.Own(name, func(name string) bool {
		return slices.ContainsFunc(c.d.Args, func(a *Arg) bool { return a.Expr.Op != ExprAllArgs && a.Name == name }) ||
			slices.ContainsFunc(c.prog.fields, func(f Field) bool { return f.Name == name })
	})
}

// list asks for the variables of $arg*, $locals and $vars.
func (c *compiler) list(which Which) ([]Variable, error) {
	if d, ok := c.env.(DebugEnv); ok {
		return d.Variables(which)
	}
	if which != WhichParams {
		return nil, ErrNoDebugInfo
	}
	return c.env.Parameters()
}

// result asks for the type and place of $retval. ok is false if nothing more is known than the
// calling convention.
func (c *compiler) result(col int) (v Variable, ok bool, e *SyntaxError) {
	d, is := c.env.(DebugEnv)
	if !is {
		return v, false, nil
	}
	v, err := d.Result()
	switch {
	case errors.Is(err, ErrNoDebugInfo):
		return v, false, nil
	case errors.Is(err, ErrNoResult):
		return v, false, c.err(NoRetval, col, err)
	case err != nil:
		return v, false, c.err(NoBTFEntry, col, err)
	}
	v.AtReturn = true
	v, e = c.atReturn(v, nil, col)
	return v, e == nil, e
}

// wholeArgument is an argument that has several words, as Go's strings have: what its
// name would be. ok is false for others, which are words.
func (c *compiler) wholeArgument(a *Arg) (v Variable, ok bool, e *SyntaxError) {
	d, is := c.env.(DebugEnv)
	if !is || c.d.Kind != Return && !c.isEntry() {
		return v, false, nil
	}
	if _, err := d.Argument(a.Expr.N); !errors.Is(err, ErrInParts) {
		return v, false, nil
	}
	t := Type{} // its own
	if a.TypeGiven {
		t = a.Type
	}
	v, e = c.variable(&Expr{Op: ExprVariable, Text: "$arg" + strconv.Itoa(a.Expr.N), col: a.Expr.col}, &t)
	return v, true, e
}

// errInParts says why a value has no type but its own.
var errInParts = errors.New("the value is stored in several places: fetch it without a type, or fetch a part of it")

// addVariable stores a variable as type t.
func (c *compiler) addVariable(a *Arg, name string, v Variable, t Type) *SyntaxError {
	if t.Base == Container {
		c.add(name, c.container(v, t))
		return nil
	}
	ap := ArgProgram{Chain: v.Chain, Type: t, Parts: v.Parts}
	x := &Expr{Op: ExprVariable}
	if a.Len != nil {
		var e *SyntaxError
		if ap.Len, e = c.length(a.Len); e != nil {
			return e
		}
	}
	text := t.Base == String || t.Base == UString || t.Base == Bytes
	switch {
	case v.Parts != nil && (t == v.Type || a.TypeGiven && a.Type.Base == Struct):
		ap.Store = StoreParts
		c.add(name, ap)
		return nil
	case v.Parts != nil:
		return c.err(BadType, a.typeCol, errInParts)
	case v.Len != nil && t.Base == Bytes:
		ap.StoreOff = v.Off
		if v.InMemory {
			ap.Loads = append(slices.Clone(ap.Loads), Load{v.Off})
			ap.StoreOff = 0
		}
	case t.Base == Bytes && v.InMemory && !v.Pointer:
		ap.StoreOff = v.Off
	case v.Len != nil && v.Unit <= 1 && t.Base == String:
		ap.StoreOff, ap.Len, ap.Store = v.Off, v.Len, StoreCounted
		if v.InMemory {
			ap.Loads = append(slices.Clone(ap.Loads), Load{v.Off})
			ap.StoreOff = 0
		}
		c.add(name, ap)
		return nil
	case t.IsText() && v.Type.IsText() && v.Type.Base != Container && (t.Count != 0 || v.Type.Count == 0):
		// The chain is the text's own address.
		ap.StoreOff, ap.Max = v.Off, v.Max
	case v.Max > 0 && v.InMemory && t.Count == 0 && (t.Base == String || t.Base == UString):
		// An array of bytes, read as text.
		ap.StoreOff, ap.Max = v.Off, v.Max
	case v.Pointer && t.Count == 0 && text:
		if v.InMemory {
			ap.Loads = append(slices.Clone(ap.Loads), Load{v.Off})
		}
	case text:
		return c.err(BadType4Str, a.bodyCol, nil)
	case t.Count != 0 && !v.InMemory:
		return c.err(BadString, a.typeCol, nil)
	case v.InMemory && t.IsText():
		ap.Loads = append(slices.Clone(ap.Loads), Load{v.Off})
	default:
		ap.StoreOff = v.Off
	}
	ap.Store = storeOf(x, t, v.InMemory)
	if len(ap.Loads)+2 > MaxOps {
		return c.err(TooManyOps, a.bodyCol, nil)
	}
	c.add(name, ap)
	return nil
}

// container makes the argument of a container.
func (c *compiler) container(v Variable, t Type) ArgProgram {
	switch {
	case v.Len != nil: // its elements are told by registers
		ap := ArgProgram{Chain: v.Chain, StoreOff: v.Off, Store: StoreCounted, Type: t, Len: v.Len, Unit: v.Unit, Bounds: c.limit()}
		ap.Max = ap.Bounds.elements(t.Layout.Content)
		return ap
	case v.Parts != nil:
		return ArgProgram{Chain: Chain{Source: SourceImm}, Store: StoreContent, Type: t, Parts: v.Parts, Bounds: c.limit()}
	case !v.InMemory: // the value is its address
		v.Off = 0
	}
	return containerArg(v.Chain, v.Off, t, c.limit())
}

// limit is what the definition wants of containers.
func (c *compiler) limit() Limit { return c.d.Limit }
