package fetch

import (
	"errors"
	"slices"
)

// variable asks debug information for a name.
func (c *compiler) variable(x *Expr) (Variable, *SyntaxError) {
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
	return c.atReturn(v, x.col)
}

// atReturn gives a variable its default type and, in a return probe, turns it
// into what it was at the entry: values are captured, of arrays and texts the
// address.
func (c *compiler) atReturn(v Variable, col int) (Variable, *SyntaxError) {
	if v.Type.Size == 0 {
		v.Type = DefaultType()
	}
	if c.d.Kind != Return || v.Chain.Source == SourceEntry || v.AtReturn {
		return v, nil
	}
	if v.InMemory && v.Type.Count == 0 && !v.Type.IsText() {
		v.Chain.Loads = append(slices.Clone(v.Chain.Loads), Load{v.Off})
		v.InMemory, v.Off = false, 0
	}
	var e *SyntaxError
	if v.Chain, e = c.capture(v.Chain, col); e == nil && v.Len != nil {
		var n Chain
		n, e = c.capture(*v.Len, col)
		v.Len = &n
	}
	return v, e
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
		v, e := c.atReturn(v, a.bodyCol)
		if e != nil {
			return e
		}
		if e := c.addVariable(a, v.Name, v, v.Type); e != nil {
			return e
		}
	}
	return nil
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

// result asks for the type and place of $retval; ok is false where nobody
// knows more than the calling convention.
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
	return v, true, nil
}

// addVariable stores a variable as type t.
func (c *compiler) addVariable(a *Arg, name string, v Variable, t Type) *SyntaxError {
	ap := ArgProgram{Chain: v.Chain, Type: t}
	x := &Expr{Op: ExprVariable}
	switch {
	case v.Len != nil && t.Base == String:
		ap.StoreOff, ap.Len, ap.Store = v.Off, v.Len, StoreCounted
		if v.InMemory {
			ap.Loads = append(slices.Clone(ap.Loads), Load{v.Off})
			ap.StoreOff = 0
		}
		c.add(name, ap)
		return nil
	case t.IsText() && v.Type.IsText() && (t.Count != 0 || v.Type.Count == 0):
		// The chain is the text's own address.
		ap.StoreOff = v.Off
	case v.Pointer && t.Count == 0 && (t.Base == String || t.Base == UString):
		if v.InMemory {
			ap.Loads = append(slices.Clone(ap.Loads), Load{v.Off})
		}
	case t.Base == String || t.Base == UString:
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
