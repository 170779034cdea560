package fetch

import (
	"errors"
	"slices"

	"kprobe/symbols"
)

// Compile makes the program of the definition at one place of env. A nil env
// knows no symbol, no debug information, and calls every place an entry.
// Errors are a *SyntaxError with the caret under what can't be had. Where env
// is a Symbolizer too, the program uses it for symstr.
func (d *Def) Compile(env Env) (*Program, error) { return d.CompileWith(env, nil, false) }

// CompileWith is Compile for a definition at whose hits other things are done, each
// under a condition (Trigger.Condition); nil is none. stacks has some of its records have
// the stack, if not all have it.
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

// timeFilter keeps the entry's time for a filter that looks at $duration.
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

// mayLack reports whether an optional argument is left out for an error: the result of a
// function that has none, parameters that nothing tells of.
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

// source compiles an argument's outermost expression. Of memory it gives the
// address's chain and offset, so that the last read knows its size.
func (c *compiler) source(x *Expr, ap *ArgProgram) (inMemory bool, e *SyntaxError) {
	switch x.Op {
	case ExprDeref:
		ap.Chain, e = c.chain(x.Inner)
		ap.StoreOff = x.Off
		return true, e
	case ExprMem, ExprFileMem, ExprSymMem:
		ap.Chain, e = c.address(x)
		return true, e
	}
	ap.Chain, e = c.chain(x)
	return false, e
}

// address compiles the address of @ forms.
func (c *compiler) address(x *Expr) (Chain, *SyntaxError) {
	switch {
	case x.Op == ExprMem:
		return Chain{Source: SourceImm, Imm: x.Imm}, nil
	case c.env == nil:
		return Chain{}, c.err(NoMemAddr, x.col, errNoProcess)
	case x.Op == ExprFileMem:
		at, err := c.env.FileOffset(symbols.Off(x.Imm))
		if err != nil {
			return Chain{}, c.err(BadFileOffs, x.col, err)
		}
		return Chain{Source: SourceImm, Imm: uint64(at)}, nil
	}
	at, _, err := c.env.Data(x.Module, x.Text)
	if err != nil {
		return Chain{}, c.err(NoMemAddr, x.col, err)
	}
	return Chain{Source: SourceImm, Imm: uint64(at) + uint64(x.Off)}, nil
}

// chain compiles an expression's value.
func (c *compiler) chain(x *Expr) (Chain, *SyntaxError) {
	switch x.Op {
	case ExprReg:
		return Chain{Source: SourceReg, Reg: x.Reg}, nil
	case ExprXMM:
		return Chain{Source: SourceXMM, Reg: Reg(x.N)}, nil
	case ExprStackPtr:
		return Chain{Source: SourceReg, Reg: SP}, nil
	case ExprStack:
		return Chain{Source: SourceStack, Off: 8 * int64(x.N)}, nil
	case ExprRetval:
		return Chain{Source: SourceReg, Reg: AX}, nil
	case ExprArg, ExprFArg:
		return c.argument(x)
	case ExprComm:
		return Chain{Source: SourceComm}, nil
	case ExprText:
		return Chain{Source: SourceText, Text: x.Text}, nil
	case ExprPID:
		return Chain{Source: SourcePID}, nil
	case ExprTID:
		return Chain{Source: SourceTID}, nil
	case ExprCPU:
		return Chain{Source: SourceCPU}, nil
	case ExprTime:
		return Chain{Source: SourceTime}, nil
	case ExprEntryTime:
		return c.capture(Chain{Source: SourceTime}, x.col)
	case ExprDuration:
		entry, e := c.capture(Chain{Source: SourceTime}, x.col)
		return Chain{Source: SourceComputed, From: SourceTime, Steps: []Step{{Op: StepSince, Imm: uint64(entry.N)}}}, e
	case ExprWatch:
		return Chain{Source: SourceWatch, N: x.N}, nil
	case ExprImm:
		return Chain{Source: SourceImm, Imm: x.Imm}, nil
	case ExprMem, ExprFileMem, ExprSymMem:
		ch, e := c.address(x)
		ch.Loads = append(ch.Loads, Load{})
		return ch, e
	case ExprDeref:
		ch, e := c.chain(x.Inner)
		ch.Loads = append(slices.Clip(ch.Loads), Load{x.Off})
		return ch, e
	case ExprVariable:
		v, e := c.variable(x, nil)
		if v.InMemory {
			v.Chain.Loads = append(slices.Clone(v.Chain.Loads), Load{v.Off})
		}
		return v.Chain, e
	}
	return Chain{}, c.err(BadFetchArg, x.col, nil)
}

// argument finds $argN and $fargN by the System V calling convention (psABI
// x86-64, 3.2.3): six general registers, then the stack above the return
// address; eight vector registers. Return probes captured it at the entry.
func (c *compiler) argument(x *Expr) (Chain, *SyntaxError) {
	if c.d.isUSDT() && c.env != nil {
		v, e := c.noted(x)
		return v.Chain, e
	}
	var ch Chain
	switch {
	case x.Op == ExprFArg:
		ch = Chain{Source: SourceXMM, Reg: Reg(x.N - 1)}
	case x.N <= 6:
		regs := [6]Reg{DI, SI, DX, CX, R8, R9}
		ch = Chain{Source: SourceReg, Reg: regs[x.N-1]}
	default:
		ch = Chain{Source: SourceStack, Off: 8 * int64(x.N-6)}
	}
	if known, ok, e := c.parameter(x); e != nil {
		return ch, e
	} else if ok {
		ch = known
	}
	if c.d.Kind != Return {
		if !c.isEntry() {
			return ch, c.err(NoFentryArgs, x.col, nil)
		}
		return ch, nil
	}
	if c.atEntry {
		return ch, nil // what is made of it is captured
	}
	return c.capture(ch, x.col)
}

// parameter asks debug information where $argN is. It is not asked for $fargN,
// which counts registers.
func (c *compiler) parameter(x *Expr) (ch Chain, ok bool, e *SyntaxError) {
	d, is := c.env.(DebugEnv)
	if !is || x.Op != ExprArg || c.d.Kind != Return && !c.isEntry() {
		return ch, false, nil
	}
	v, err := d.Argument(x.N)
	switch {
	case errors.Is(err, ErrNoValue):
		return ch, false, c.err(NoBTFArg, x.col, err)
	case err != nil:
		return ch, false, nil
	}
	if v.InMemory {
		v.Chain.Loads = append(slices.Clone(v.Chain.Loads), Load{v.Off})
	}
	return v.Chain, true, nil
}

func (c *compiler) isEntry() bool {
	p := c.d.Place
	if p.Kind == symbols.PlaceSymbol && p.Offset != 0 {
		return false
	}
	return c.env == nil || c.env.AtEntry()
}

// capture keeps a value of the entry, once however often it is used.
func (c *compiler) capture(ch Chain, col int) (Chain, *SyntaxError) {
	for i, have := range c.prog.Entry {
		if have.Source == ch.Source && have.Reg == ch.Reg && have.Off == ch.Off && have.Imm == ch.Imm && slices.Equal(have.Loads, ch.Loads) &&
			have.From == ch.From && slices.Equal(have.Steps, ch.Steps) {
			return Chain{Source: SourceEntry, N: i}, nil
		}
	}
	if len(c.prog.Entry) == MaxEntryValues {
		return ch, c.err(TooManyEArgs, col, nil)
	}
	c.prog.Entry = append(c.prog.Entry, Capture{ch})
	return Chain{Source: SourceEntry, N: len(c.prog.Entry) - 1}, nil
}

// errNoProcess is the detail of names that need a process to be found.
var errNoProcess = errors.New("no process or file to look in")
