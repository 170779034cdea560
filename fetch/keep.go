package fetch

import "slices"

// What a return probe reads, and when
//
// Numbers with which the function was called are those of its entry: $argN, $fargN, and a
// parameter by its name, with the members of a structure that was passed by value. Everything
// to which an address leads is read at the return: targets of pointers and references, strings,
// globals, thread-local variables, memory by @ and +OFFS(). EXPRESSION@entry is the value at
// the entry. (The kernel does the same: trace_probe keeps $argN and reads memory later.)

// maxKept is how many bytes of one structure or array are kept from the entry.
const maxKept = 128

// entryMark ends an expression that is read at the entry of a return probe.
const entryMark = "@entry"

// noResultYet says why a result has no value at the entry.
const noResultYet = "there is no result yet at the entry"

// Part is a piece of a value that lies in several places.
type Part struct {
	Chain
	Off  int   // in the value, in bytes
	Size uint8 // 1, 2, 4 or 8 bytes: the chain's low ones
}

// then treats the chain's value as an address and returns the chain of what lies there.
func (c Chain) then(off int64, size uint8) Chain {
	if size == 8 || size == 0 {
		c.Loads = append(slices.Clip(slices.Clone(c.Loads)), Load{off})
		return c
	}
	var steps []Step
	if c.Source == SourceComputed {
		steps = slices.Clone(c.Steps)
	} else {
		c.From, c.Source = c.Source, SourceComputed
	}
	for _, l := range c.Loads {
		steps = append(steps, Step{Op: StepLoad, Imm: uint64(l.Off), Size: 8})
	}
	c.Steps, c.Loads = append(steps, Step{Op: StepLoad, Imm: uint64(off), Size: size}), nil
	return c
}

// split keeps the result of a chain's first own steps from the entry. The other steps are done
// at the return.
func (c *compiler) split(ch Chain, own, col int) (Chain, *SyntaxError) {
	lasting := ch.root() == SourceImm || ch.root() == SourceReg && ch.Reg == RegFSBase
	if own == 0 && lasting {
		return ch, nil
	}
	first, rest := ch, ch
	if ch.Source == SourceComputed {
		own = min(own, len(ch.Steps))
		first.Steps, first.Loads = ch.Steps[:own:own], nil
		rest.Steps = ch.Steps[own:]
	} else {
		own = min(own, len(ch.Loads))
		first.Loads, rest.Loads = ch.Loads[:own:own], ch.Loads[own:]
	}
	kept, e := c.capture(first, col)
	if len(rest.Steps) > 0 {
		return Chain{Source: SourceComputed, From: SourceEntry, N: kept.N, Steps: rest.Steps, Loads: rest.Loads}, e
	}
	kept.Loads = rest.Loads
	return kept, e
}

// atReturn gives a variable its default type. In a return probe it also makes it what is read
// at the return. t is the type as which it is read; nil is a word.
func (c *compiler) atReturn(v Variable, t *Type, col int) (Variable, *SyntaxError) {
	if v.Type.Size == 0 {
		v.Type = DefaultType()
	}
	if c.d.Kind != Return || v.Chain.Source == SourceEntry || v.AtReturn && !v.ByEntry {
		return v, nil
	}
	if v.Behind && !c.atEntry {
		var e *SyntaxError
		if v.Chain, e = c.split(v.Chain, v.Own, col); e == nil && v.Len != nil {
			var n Chain
			n, e = c.split(*v.Len, v.LenOwn, col)
			v.Len = &n
		}
		return v, e
	}
	if t == nil {
		word := DefaultType()
		t = &word
	}
	if t.Base == Struct {
		t = &v.Type
	}
	return c.keep(v, *t, col)
}

// Kept returns why a return probe can't record a variable as its own type; nil if it can. The
// error is a *SyntaxError without a definition's text.
func (v Variable) Kept() error {
	c := compiler{d: &Def{Kind: Return}, prog: &Program{}}
	if _, e := c.atReturn(v, &v.Type, 0); e != nil {
		return e
	}
	return nil
}

// keep captures a variable at the entry. For a string it captures the address; the string
// itself must then outlive the call.
func (c *compiler) keep(v Variable, t Type, col int) (Variable, *SyntaxError) {
	var e *SyntaxError
	switch {
	case t.Base == Container && (c.atEntry || v.Owned):
		return v, c.errNotKept(col)
	case v.Owned && t.Layout != nil && t.Layout.Members != nil: // with texts or containers in it
		return v, c.errNotKept(col)
	case t.Base == Container && v.InMemory:
		return c.keepContainer(v, t, col)
	case v.Parts != nil:
		parts := slices.Clone(v.Parts)
		for i := range parts {
			if parts[i].Chain, e = c.capture(parts[i].Chain, col); e != nil {
				return v, e
			}
		}
		v.Parts = parts
		return v, nil
	case v.InMemory && v.Type.IsText() && v.Len == nil && v.Max > 0 && v.Max <= maxKept && t.IsText():
		v.Type = Type{Base: Char, Size: 1, Count: uint8(v.Max), Layout: &Layout{Text: true}}
		return c.keepMemory(v, v.Type, col)
	case t.IsText() && (c.atEntry || v.Owned || v.InMemory && v.Len == nil && v.Max > 0):
		return v, c.errNotKept(col)
	case v.InMemory && t.Count != 0:
		return c.keepMemory(v, t, col)
	case v.InMemory && !t.IsText():
		v.Chain, v.InMemory, v.Off = v.Chain.then(v.Off, t.Size), false, 0
	case v.InMemory && v.Len == nil:
		v.Chain, v.InMemory, v.Off = v.Chain.then(v.Off, 8), false, 0
	}
	if v.Chain, e = c.capture(v.Chain, col); e == nil && v.Len != nil {
		var n Chain
		n, e = c.capture(*v.Len, col)
		v.Len = &n
	}
	return v, e
}

// keepContainer captures where the elements of a container are, and how many. The elements
// themselves are read at the return.
func (c *compiler) keepContainer(v Variable, t Type, col int) (Variable, *SyntaxError) {
	in := t.Layout.Content
	if !in.Copied() || in.Kind != ContentSequence || in.Count == nil {
		return c.keepMemory(v, Type{Base: Hex, Size: 8, Count: uint8(min(255, (in.Size+7)/8))}, col)
	}
	n, e := c.capture(in.Count.from(v.Chain, v.Off), col)
	if e != nil {
		return v, e
	}
	v.Chain, e = c.capture(in.Ptr.from(v.Chain, v.Off), col)
	v.Len, v.Unit, v.InMemory, v.Off = &n, int(in.Stride), false, 0
	return v, e
}

// errNotKept says that a text can't be had of the entry.
func (c *compiler) errNotKept(col int) *SyntaxError {
	return newError(TooManyEArgs, c.d.Text, col, "a return probe keeps only numbers from the entry, because a text or container may be gone or changed by the return: probe the entry (p)")
}

// keepMemory captures a structure or an array, by words.
func (c *compiler) keepMemory(v Variable, t Type, col int) (Variable, *SyntaxError) {
	parts, e := c.keptParts(v.Chain, v.Off, t, col)
	v.Parts, v.InMemory, v.Off, v.Chain = parts, false, 0, Chain{Source: SourceImm}
	return v, e
}

func (c *compiler) keptParts(at Chain, from int64, t Type, col int) ([]Part, *SyntaxError) {
	n := int(t.Size) * int(t.Count)
	if n > maxKept {
		return nil, newError(TooManyEArgs, c.d.Text, col, "it is larger than a return probe can keep from the entry: fetch parts of it")
	}
	var parts []Part
	for off := 0; off < n; {
		size := 8
		for size > n-off {
			size /= 2
		}
		kept, e := c.capture(at.then(from+int64(off), uint8(size)), col)
		if e != nil {
			return nil, e
		}
		parts = append(parts, Part{Chain: kept, Off: off, Size: uint8(size)})
		off += size
	}
	return parts, nil
}

// keepArg turns an argument that is no variable into what it was at the entry.
func (c *compiler) keepArg(a *Arg, ap *ArgProgram) (e *SyntaxError) {
	switch ap.Source {
	case SourceText, SourceComm, SourcePID, SourceTID:
		return c.err(BadFetchArg, a.bodyCol, nil)
	}
	switch {
	case a.Expr.Op == ExprRetval:
		return newError(BadVar, c.d.Text, a.bodyCol, noResultYet)
	case ap.Store == StoreMem && ap.Type.Count != 0:
		ap.Parts, e = c.keptParts(ap.Chain, ap.StoreOff, ap.Type, a.bodyCol)
		ap.Store, ap.StoreOff, ap.Chain = StoreParts, 0, Chain{Source: SourceImm}
		return e
	case ap.Store == StoreMem:
		ap.Chain = ap.Chain.then(ap.StoreOff, ap.Type.Size)
		ap.Store, ap.StoreOff = StoreValue, 0
	case ap.Store != StoreValue && ap.Store != StoreSymbol:
		return c.errNotKept(a.bodyCol)
	}
	ap.Chain, e = c.capture(ap.Chain, a.bodyCol)
	return e
}
