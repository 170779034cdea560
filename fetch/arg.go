package fetch

import (
	"strconv"
	"strings"
)

// parseArgs parses the argument words.
func (d *Def) parseArgs(l *line, words []word) *SyntaxError {
	if len(words) > MaxArgs {
		return l.err(TooManyArgs, words[0].col, "")
	}
	if d.Kind == Jprobe {
		if len(words) > 0 {
			return l.err(BadFetchArg, words[0].col, "a jprobe (j) records all parameters and takes no arguments: use p to choose them")
		}
		d.Args = []*Arg{{Name: "arg1", Text: "$arg*", Expr: &Expr{Op: ExprAllArgs}}}
		return nil
	}
	fixed, all := 0, false
	for i, w := range words {
		a, e := d.parseArg(l, w, i)
		if e != nil {
			return e
		}
		if a.Expr.Op == ExprAllArgs {
			if all {
				return l.err(DoubleArgs, a.bodyCol, "")
			}
			all = true
		}
		if fixed += a.Type.kernelSize(); fixed > MaxFixed {
			return l.err(EventTooBig, w.col, "")
		}
		d.Args = append(d.Args, a)
	}
	return nil
}

// kernelSize is what the kernel counts for a value: its bytes in memory, and 4 for the word of
// a string.
func (t Type) kernelSize() int {
	n := int(t.Size)
	if t.IsText() {
		n = 4
	}
	return n * max(int(t.Count), 1)
}

func (d *Def) parseArg(l *line, w word, index int) (*Arg, *SyntaxError) {
	a := &Arg{col: w.col, bodyCol: w.col}
	body := w.text
	if i := strings.IndexByte(body, '='); i >= 0 && !strings.HasPrefix(body, `\"`) {
		a.Name, a.Named = body[:i], true
		body = body[i+1:]
		a.bodyCol = w.col + i + 1
		switch {
		case i > MaxArgName:
			return nil, l.err(ArgNameTooLong, w.col, "")
		case i == 0:
			return nil, l.err(NoArgName, w.col, "")
		case !isGoodName(a.Name):
			return nil, l.err(BadArgName, w.col, "")
		}
	} else {
		a.Name = "arg" + strconv.Itoa(index+1)
		if text, _ := splitType(body); isGoodName(text) && len(text) <= MaxArgName {
			a.Name = text // generate_probe_arg_name
		} else if d.namesItself(text) {
			a.Name = text
		} else if n, is := strings.CutPrefix(text, "$retval"); is && n != "" && !d.hasArg(text[1:]) {
			a.Name = text[1:] // a result by its number: the kernel has one
		}
	}
	if isReserved(a.Name) || d.hasArg(a.Name) {
		return nil, l.err(UsedArgName, w.col, "")
	}
	a.Text = body
	switch {
	case len(body) > MaxArgText:
		return nil, l.err(ArgTooLong, a.bodyCol, "")
	case body == "":
		return nil, l.err(NoArgBody, a.bodyCol, "")
	}
	return a, d.parseBody(l, a, body)
}

// namesItself reports whether an expression is the name of its value: something that only debug
// information can resolve, such as f->n. The kernel has such expressions only at an entry, and
// calls them arg1, arg2 …; its own expressions keep those names.
func (d *Def) namesItself(text string) bool {
	at := strings.HasPrefix(text, "$retval") || strings.HasPrefix(text, "$arg")
	return text != "" && len(text) <= MaxArgName && !d.hasArg(text) && strings.ContainsAny(text, "-.[*") &&
		(at && !strings.ContainsAny(text, "*") || isName(text))
}

func (d *Def) hasArg(name string) bool {
	for _, a := range d.Args {
		if a.Name == name {
			return true
		}
	}
	return false
}

// isReserved reports whether a record's own fields have the name
// (reserved_field_names in kernel/trace/trace_probe.c).
func isReserved(name string) bool {
	switch name {
	case "common_type", "common_flags", "common_preempt_count", "common_pid", "common_tgid",
		"__probe_ip", "__probe_ret_ip", "__probe_func":
		return true
	}
	return false
}

// parseBody parses EXPRESSION[:TYPE[N]] and checks that they fit.
func (d *Def) parseBody(l *line, a *Arg, body string) *SyntaxError {
	text, typ := splitType(body)
	whole := len(text)
	if before, ok := strings.CutSuffix(text, entryMark); ok && before != "" && d.Kind == Return {
		text, a.AtEntry = before, true
	}
	a.typeCol = a.bodyCol
	var t Type
	if whole < len(body) {
		a.typeCol += whole + 1
		a.TypeGiven = true
		var e *SyntaxError
		if length, ok := lengthText(typ); ok {
			t = Type{Base: Bytes, Size: 8}
			e = d.parseLength(l, a, length)
		} else {
			t, e = parseType(l, typ, a.typeCol)
		}
		if e != nil {
			return e
		}
	}
	constant := text == "$comm" || text == "$COMM" || strings.HasPrefix(text, `\"`)
	if constant && a.TypeGiven && (t.Base != String || t.Count != 0) {
		return l.err(NeedStringType, a.typeCol, "")
	}
	if a.TypeGiven && t.Size == 0 {
		return l.err(BadType, a.typeCol, "")
	}
	p := exprParser{l: l, kind: d.Kind}
	var e *SyntaxError
	if a.Expr, e = p.parse(text, a.bodyCol, 0); e != nil {
		return e
	}
	if a.AtEntry && a.Expr.Op == ExprDuration {
		return l.err(BadVar, a.bodyCol, "at the entry, no time has passed yet")
	}
	if a.Expr.Op == ExprAllArgs {
		if a.Named || a.TypeGiven || a.AtEntry {
			return l.err(BadVarArgs, a.bodyCol, "")
		}
		a.Type = DefaultType()
		return nil
	}
	if !a.TypeGiven {
		t = a.Expr.defaultType()
	}
	a.Type = t
	return d.checkStore(l, a, typ)
}

// defaultType is the type of a value that gives none. The kernel prints everything as x64. What
// the kernel doesn't know gets the type that it has.
func (e *Expr) defaultType() Type {
	switch e.Op {
	case ExprComm, ExprText:
		return Type{Base: String, Size: 8}
	case ExprFArg:
		return Type{Base: Float, Size: 8}
	case ExprPID, ExprTID:
		return Type{Base: Signed, Size: 4}
	case ExprCPU:
		return Type{Base: Unsigned, Size: 4}
	case ExprTime, ExprEntryTime, ExprDuration:
		return Type{Base: Unsigned, Size: 8}
	}
	return DefaultType()
}

// checkStore applies the rules of __store and __parse_bitfield_probe_arg in
// kernel/trace/trace_probe.c: texts and arrays are read from memory.
func (d *Def) checkStore(l *line, a *Arg, typ string) *SyntaxError {
	x, t := a.Expr, a.Type
	inMemory := x.isMemory() || x.Op == ExprVariable || x.Op == ExprArg && d.isUSDT()
	switch {
	case t.Base == Bytes && !inMemory:
		return l.err(BadString, a.typeCol, "")
	case t.Base == String || t.Base == UString:
		if !inMemory && (x.Op != ExprComm && x.Op != ExprText && x.Op != ExprImm || t.Count != 0) {
			return l.err(BadString, a.typeCol, "")
		}
	case t.Base == SymbolText && (x.Op == ExprText || x.Op == ExprComm):
		return l.err(BadSymString, a.typeCol, "")
	}
	if strings.HasPrefix(typ, "b") && t.BitWidth == 0 && t.Base != Bytes {
		return l.err(BadBitfield, a.typeCol, "")
	}
	if t.Base == Struct && (x.Op != ExprVariable && x.Op != ExprRetval || t.Count != 0) {
		return l.err(BadType, a.typeCol, "")
	}
	if t.Count != 0 {
		switch t.Base {
		case SymbolText, Path, FilePath:
			return l.err(BadString, a.typeCol, "")
		}
		if !inMemory {
			return l.err(BadString, a.typeCol, "")
		}
	}
	return nil
}
