package fetch

import (
	"errors"
	"slices"

	"kprobe/symbols"
)

// Compile makes the program of the definition at one place of env. A nil env knows no symbol
// and no debug information, and takes every place for an entry. Errors are a *SyntaxError with
// the caret under what is unavailable. If env is also a Symbolizer, the program uses it for
// symstr.
func (d *Def) Compile(env Env) (*Program, error) { return d.CompileWith(env, nil, false) }

// CompileWith is Compile for a definition at whose hits other things are done, each under a
// condition (Trigger.Condition); nil is none. If stacks is set, some of its records have the
// stack, unless all have it.
func (d *Def) CompileWith(env Env, conditions []*Filter, stacks bool) (*Program, error) {
	c := compiler{d: d, env: env, prog: &Program{}}
	if s, ok := env.(Symbolizer); ok {
		c.prog.Symbols = s
	}
	var ends []int // of each argument of the definition, in the program's
	for _, a := range d.Args {
		had := len(c.prog.Args)
		if e := c.arg(a); e != nil {
			if !c.mayLack(a, e) {
				return nil, e
			}
			c.prog.Args, c.prog.fields = c.prog.Args[:had], c.prog.fields[:had]
		}
		ends = append(ends, len(c.prog.Args))
	}
	c.addTexts()
	c.layout()
	c.layoutStack(stacks)
	if e := c.tooBig(ends); e != nil {
		return nil, e
	}
	if d.Filter != nil {
		f, e := c.bind(d.Filter)
		if e != nil {
			return nil, e
		}
		c.prog.Filter = f
	}
	for _, cond := range conditions {
		var f *FilterProgram
		if cond != nil {
			var e *SyntaxError
			if f, e = c.bind(cond); e != nil {
				return nil, e
			}
		}
		c.prog.Conditions = append(c.prog.Conditions, f)
	}
	c.limitTexts()
	return c.prog, nil
}

// bind compiles a filter over the values of the record.
func (c *compiler) bind(f *Filter) (*FilterProgram, *SyntaxError) {
	prog, e := f.bind(c.prog.fields, c.function)
	if e == nil {
		e = c.timeFilter(f, prog)
	}
	return prog, e
}

// timeFilter keeps the entry's time if a filter looks at $duration.
func (c *compiler) timeFilter(of *Filter, f *FilterProgram) *SyntaxError {
	for i := range f.Preds {
		if f.Preds[i].Field != FieldDuration {
			continue
		}
		entry, e := c.capture(Chain{Source: SourceTime}, of.col)
		if e != nil {
			return e
		}
		f.Preds[i].Arg = entry.N
	}
	return nil
}

type compiler struct {
	d    *Def
	env  Env
	prog *Program

	atEntry bool // the argument in the making is read at the entry of a return probe
}

func (c *compiler) err(code Code, col int, err error) *SyntaxError {
	if err == nil {
		return newError(code, c.d.Text, col, "")
	}
	e := newError(code, c.d.Text, col, err.Error())
	e.Err = err
	return e
}

func (c *compiler) function(name string) (symbols.Addr, uint64, error) {
	if c.env == nil {
		return 0, 0, errNoProcess
	}
	return c.env.Data("", name)
}

// mayLack reports whether an optional argument is left out because of an error: the result of a
// function that has none, or parameters about which there is no information.
func (c *compiler) mayLack(a *Arg, e *SyntaxError) bool {
	return a.Optional && (errors.Is(e.Err, ErrNoResult) || a.Expr.Op == ExprAllArgs && (e.Code == NoSupBTFArg || e.Code == NoBTFEntry))
}

func (c *compiler) add(name string, ap ArgProgram) {
	c.prog.Args = append(c.prog.Args, ap)
	c.prog.fields = append(c.prog.fields, Field{name, ap.Type})
}

func (c *compiler) arg(a *Arg) *SyntaxError {
	c.atEntry = a.AtEntry
	switch a.Expr.Op {
	case ExprAllArgs:
		return c.allArgs(a)
	case ExprVariable:
		t := Type{} // its own
		if a.TypeGiven {
			t = a.Type
		}
		v, e := c.variable(a.Expr, &t)
		if e == nil && v.Pointer && a.TypeGiven && a.Type.Base == Struct {
			pointed := *a.Expr
			pointed.Text = "*" + pointed.Text
			v, e = c.variable(&pointed, &t)
		}
		if e != nil {
			return e
		}
		return c.addTyped(a, v)
	case ExprArg:
		if !c.d.isUSDT() || c.env == nil {
			v, ok, e := c.wholeArgument(a)
			switch {
			case e != nil:
				return e
			case ok:
				return c.addTyped(a, v)
			}
			break
		}
		v, e := c.noted(a.Expr)
		if e != nil {
			return e
		}
		return c.addTyped(a, v)
	case ExprRetval:
		if a.AtEntry {
			break
		}
		if v, ok, e := c.result(a.bodyCol); e != nil {
			return e
		} else if ok && (!a.TypeGiven || a.Type.Base == Struct || v.Chain.root() == SourceXMM) {
			if v.Pointer && a.Type.Base == Struct && a.TypeGiven {
				if v, e = c.variable(&Expr{Op: ExprVariable, Text: "*$retval", col: a.bodyCol}, &Type{}); e != nil {
					return e
				}
			}
			return c.addTyped(a, v)
		}
	}
	if a.Type.Base == Struct {
		return c.err(NoSupBTFArg, a.bodyCol, ErrNoDebugInfo)
	}
	ap := ArgProgram{Type: a.Type}
	if a.Expr.Op == ExprWatch && !a.TypeGiven {
		ap.Type = c.watchType(a.Expr)
	}
	if a.Len != nil {
		var e *SyntaxError
		if ap.Len, e = c.length(a.Len); e != nil {
			return e
		}
	}
	inMemory, e := c.source(a.Expr, &ap)
	if e != nil {
		return e
	}
	ap.Store = storeOf(a.Expr, ap.Type, inMemory)
	if a.AtEntry {
		if e := c.keepArg(a, &ap); e != nil {
			return e
		}
		inMemory = false
	}
	switch ap.Store {
	case StoreValue, StoreSymbol, StorePath:
		if inMemory {
			ap.Loads = append(slices.Clip(ap.Loads), Load{ap.StoreOff})
			ap.StoreOff = 0
		}
	}
	if len(ap.Loads)+2 > MaxOps {
		return c.err(TooManyOps, a.bodyCol, nil)
	}
	c.add(a.Name, ap)
	return nil
}

// addTyped stores a variable as the definition's type, or as its own.
func (c *compiler) addTyped(a *Arg, v Variable) *SyntaxError {
	t := v.Type
	switch {
	case a.TypeGiven && a.Type.Base == Struct:
		if t.Layout == nil || t.Layout.Members == nil && t.Layout.Content == nil {
			return c.err(NoPtrStrct, a.bodyCol, nil)
		}
	case a.TypeGiven:
		t = a.Type
	}
	return c.addVariable(a, a.Name, v, t)
}

// storeOf chooses how a value of type t is stored.
func storeOf(x *Expr, t Type, inMemory bool) Store {
	switch {
	case x.Op == ExprText || x.Op == ExprComm:
		return StoreText
	case t.Base == Bytes:
		return StoreCounted
	case t.Base == SymbolText:
		return StoreSymbol
	case t.Base == Path || t.Base == FilePath:
		return StorePath
	case t.IsText() && t.Count != 0:
		return StoreStrings
	case t.IsText():
		return StoreString
	case inMemory:
		return StoreMem
	}
	return StoreValue
}
