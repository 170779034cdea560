package fetch

import (
	"slices"
	"strings"
)

// lengthText returns what stands in the brackets of bytes[LENGTH]; without closing
// bracket it ends with the word. ok is false for other types.
func lengthText(typ string) (length string, ok bool) {
	return strings.CutPrefix(typ, Bytes.name())
}

// parseLength parses the [LENGTH] of Bytes: a number, or an expression with or
// without a type.
func (d *Def) parseLength(l *line, a *Arg, s string) *SyntaxError {
	col := a.typeCol + len(Bytes.name())
	inside, ok := strings.CutPrefix(s, "[")
	switch {
	case !ok:
		return l.err(BadType, a.typeCol, "bytes needs a length: bytes[LENGTH]")
	}
	end := closing(inside)
	switch {
	case end < 0:
		return l.err(ArrayNoClose, col+len(s), "")
	case end+1 < len(inside):
		return l.err(BadArraySuffix, col+1+end+1, "")
	}
	inside = inside[:end]
	a.Len = &Arg{Text: inside, col: col + 1, bodyCol: col + 1}
	switch n, isNumber := parseUint(inside); {
	case inside == "" || isNumber && n == 0:
		return l.err(BadArrayNum, col+1, "")
	case isNumber && n > MaxString:
		return l.err(ArrayTooBig, col+1, "")
	case isNumber:
		a.Len.Expr, a.Len.Type = &Expr{Op: ExprImm, Imm: n, col: col + 1}, DefaultType()
		return nil
	}
	if e := d.parseBody(l, a.Len, inside); e != nil {
		return e
	}
	t := a.Len.Type
	if a.Len.TypeGiven && !t.isInteger() || t.IsText() {
		return l.err(BadType, a.Len.typeCol, "a length must be an integer")
	}
	if a.Len.Expr.Op == ExprAllArgs {
		return l.err(BadVarArgs, a.Len.bodyCol, "")
	}
	return nil
}

// closing is where the bracket closes that was opened before s; -1: nowhere.
func closing(s string) int {
	open := 1
	for i := range len(s) {
		switch s[i] {
		case '[':
			open++
		case ']':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// isInteger reports whether a value of the type is one number without a fraction.
func (t Type) isInteger() bool {
	return t.Count == 0 && (t.Base == Hex || t.Base == Unsigned || t.Base == Signed)
}

// length compiles the length of Bytes to a chain whose value is the number, extended to 64 bits
// as its type prints.
func (c *compiler) length(a *Arg) (*Chain, *SyntaxError) {
	typed := *a
	if a.Expr.Op == ExprArg && !a.TypeGiven {
		// A register is 64 bits wide, and the parameter may be an int.
		if t, ok := c.parameterType(a.Expr.N); ok && t.isInteger() {
			typed.Type, typed.TypeGiven = t, true
		}
	}
	at := len(c.prog.Args)
	if e := c.arg(&typed); e != nil {
		return nil, e
	}
	p := c.prog.Args[at]
	c.prog.Args, c.prog.fields = c.prog.Args[:at], c.prog.fields[:at]
	if !p.Type.isInteger() || p.Store != StoreValue && p.Store != StoreMem {
		return nil, newError(BadType, c.d.Text, a.bodyCol, "a length must be an integer")
	}
	ch := p.number()
	return &ch, nil
}

// parameterType is the type of the N-th parameter by debug information.
func (c *compiler) parameterType(n int) (Type, bool) {
	d, is := c.env.(DebugEnv)
	if !is {
		return Type{}, false
	}
	v, err := d.Argument(n)
	return v.Type, err == nil && v.Type.Size != 0
}

// number is the chain that gives an argument's value as its slot would hold it.
func (a *ArgProgram) number() Chain {
	t := a.Type
	if a.Store == StoreValue && t.Size == 8 && t.BitWidth == 0 {
		return a.Chain
	}
	ch := a.Chain
	ch.Source, ch.From, ch.Steps = SourceComputed, a.root(), slices.Clone(a.Steps)
	for _, l := range a.Loads {
		ch.Steps = append(ch.Steps, Step{Op: StepLoad, Imm: uint64(l.Off), Size: 8})
	}
	ch.Loads = nil
	if a.Store == StoreMem {
		ch.Steps = append(ch.Steps, Step{Op: StepLoad, Imm: uint64(a.StoreOff), Size: t.Size})
	}
	width, bit := 8*t.Size, uint8(0)
	if t.BitWidth != 0 {
		width, bit = t.BitWidth, t.BitOff
	}
	if up := 64 - width - bit; up != 0 {
		ch.Steps = append(ch.Steps, Step{Op: StepShl, Imm: uint64(up)})
	}
	if down := 64 - width; down != 0 {
		op := StepShr
		if t.Base == Signed {
			op = StepSar
		}
		ch.Steps = append(ch.Steps, Step{Op: op, Imm: uint64(down)})
	}
	return ch
}

// addressWord is the text word of Bytes that have a negative length: where they
// would be, an address of user space.
func addressWord(at uint64) uint64 { return TextFault | at>>32<<48 | uint64(uint32(at)) }

// wordAddress is the address in such a word; 0 of a text that can't be read.
func wordAddress(w uint64) uint64 { return w&^TextFault>>48<<32 | uint64(uint32(w)) }
