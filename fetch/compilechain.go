package fetch

import (
	"errors"
	"slices"

	"kprobe/symbols"
)

// source compiles an argument's outermost expression. For memory it returns the address's chain
// and offset, so that the size of the last read can be chosen later.
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

// argument finds $argN and $fargN by the System V calling convention (psABI x86-64, 3.2.3): six
// general registers, then the stack above the return address; eight vector registers. For
// return probes the entry has captured them.
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

// parameter asks debug information where $argN is. It isn't asked for $fargN, which counts
// registers.
func (c *compiler) parameter(x *Expr) (ch Chain, ok bool, e *SyntaxError) {
	d, is := c.env.(DebugEnv)
	if !is || x.Op != ExprArg || c.d.Kind != Return && !c.isEntry() {
		return ch, false, nil
	}
	v, err := d.Argument(x.N)
	switch {
	case errors.Is(err, ErrNoValue), errors.Is(err, ErrInParts):
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
