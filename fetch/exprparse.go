package fetch

import (
	"strconv"
	"strings"
)

// exprParser parses fetch expressions with the columns of parse_probe_arg in
// kernel/trace/trace_probe.c.
type exprParser struct {
	l    *line
	kind Kind
}

func (p *exprParser) parse(s string, col, level int) (*Expr, *SyntaxError) {
	e := &Expr{col: col}
	if s == "" {
		return nil, p.l.err(BadFetchArg, col, "")
	}
	switch c := s[0]; {
	case c == '$':
		return e, p.variable(e, s, col)
	case c == '%':
		return e, p.register(e, s, col)
	case c == '@':
		return e, p.memory(e, s, col)
	case c == '+' || c == '-':
		return e, p.deref(e, s, col, level)
	case c == '\\':
		return e, p.immediate(e, s, col)
	case strings.HasPrefix(s, "this_cpu_ptr(") || strings.HasPrefix(s, "this_cpu_read("):
		return nil, p.l.err(NoSupPerCPU, col, "")
	case isName(s) && p.kind != Return && strings.Contains(s, "$retval"):
		return nil, p.l.err(RetvalOnProbe, col+strings.Index(s, "$retval"), "")
	case isName(s):
		if i := hyphen(s); i >= 0 {
			return nil, p.l.err(BadHyphen, col+i, "")
		}
		e.Op, e.Text = ExprVariable, s
		return e, nil
	}
	return nil, p.l.err(BadFetchArg, col, "")
}

// IsName reports whether s may stand in a definition as the name of a variable,
// with or without fields, elements and casts.
func IsName(s string) bool { return s != "" && len(s) <= MaxArgText && isName(s) }

// isName reports whether s may be a name with fields, elements or casts. What
// it means is for debug information to say.
func isName(s string) bool {
	switch {
	case isAlpha(s[0]):
	case s[0] == '*' && len(s) > 1 && (isAlpha(s[1]) || strings.IndexByte("*($", s[1]) >= 0):
	case s[0] == '(' && strings.Contains(s[1:], ")") && isOperand(strings.TrimLeft(s, "(")):
	default:
		return false
	}
	open := 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '(' || c == '<':
			open++
		case c == ')' || c == '>' && open > 0 && s[i-1] != '-':
			open--
		}
		if isBlank(c) && open > 0 { // of a type
			continue
		}
		if !isAlpha(c) && !isDigit(c) && c < 0x80 && !strings.ContainsRune("->.[]()*,:&<>~$", rune(c)) {
			return false
		}
	}
	return true
}

// isOperand reports what may follow parentheses.
func isOperand(s string) bool { return s != "" && (isAlpha(s[0]) || s[0] == '*') }

// hyphen finds a - that begins no -> and stands in no brackets; -1 is none.
func hyphen(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '[', '(', '<':
			open++
		case ']', ')':
			open--
		case '>':
			if i == 0 || s[i-1] != '-' {
				open--
			}
		case '-':
			if open <= 0 && (i+1 == len(s) || s[i+1] != '>') {
				return i
			}
		}
	}
	return -1
}

func (p *exprParser) register(e *Expr, s string, col int) *SyntaxError {
	name := s[1:]
	if n, ok := strings.CutPrefix(name, "xmm"); ok && isDecimal(n) {
		if v, ok := parseUint(n); ok && v < 16 && (n[0] != '0' || n == "0") {
			e.Op, e.N = ExprXMM, int(v)
			return nil
		}
	}
	r, ok := registerByName(name)
	if !ok {
		return p.l.err(BadRegName, col, "")
	}
	e.Op, e.Reg = ExprReg, r
	return nil
}

// noDuration is the detail where $duration is asked of a probe that sees no return.
const noDuration = "only a return probe (r) knows how long the call took"

func (p *exprParser) variable(e *Expr, s string, col int) *SyntaxError {
	name := s[1:]
	switch name {
	case "retval":
		if p.kind == Watch {
			return p.ofWatch(e, name, col)
		}
		if p.kind != Return {
			return p.l.err(RetvalOnProbe, col, "")
		}
		e.Op = ExprRetval
		return nil
	case "comm", "COMM":
		e.Op = ExprComm
		return nil
	case "pid":
		e.Op = ExprPID
		return nil
	case "tid":
		e.Op = ExprTID
		return nil
	case "cpu":
		e.Op = ExprCPU
		return nil
	case "time":
		e.Op = ExprTime
		return nil
	case "entrytime":
		if p.kind != Return {
			return p.l.err(BadVar, col, "only a return probe (r) has the time of the entry")
		}
		e.Op = ExprEntryTime
		return nil
	case "duration":
		if p.kind != Return {
			return p.l.err(BadVar, col, noDuration)
		}
		e.Op = ExprDuration
		return nil
	case "stack":
		e.Op = ExprStackPtr
		return nil
	case "goid", "trace_id", "span_id", "labels":
		e.Op, e.Text = ExprVariable, s
		return nil
	}
	if label, ok := strings.CutPrefix(name, "label."); ok && label != "" {
		if len(label) > MaxLabelName {
			return p.l.err(ArgTooLong, col, "a label's name has at most "+strconv.Itoa(MaxLabelName)+" bytes here")
		}
		e.Op, e.Text = ExprVariable, s
		return nil
	}
	if p.kind == Watch {
		return p.ofWatch(e, name, col)
	}
	switch name {
	case "arg*", "params":
		e.Op = ExprAllArgs
		return nil
	case "locals":
		e.Op, e.Which = ExprAllArgs, WhichLocals
		return nil
	case "vars":
		e.Op, e.Which = ExprAllArgs, WhichVars
		return nil
	}
	if i := strings.IndexAny(name, "-.["); i > 0 && (name[i] != '-' || strings.HasPrefix(name[i:], "->")) && (strings.HasPrefix(name, "retval") || strings.HasPrefix(name, "arg")) {
		if strings.HasPrefix(name, "retval") && p.kind != Return {
			return p.l.err(RetvalOnProbe, col, "")
		}
		e.Op, e.Text = ExprVariable, s
		return nil
	}
	if n, ok := strings.CutPrefix(name, "retval"); ok && n != "" && isDigit(n[0]) {
		if p.kind != Return {
			return p.l.err(RetvalOnProbe, col, "")
		}
		e.Op, e.Text = ExprVariable, s
		return nil
	}
	return p.numbered(e, name, col)
}

// numbered parses $stackN, $argN and $fargN.
func (p *exprParser) numbered(e *Expr, name string, col int) *SyntaxError {
	if n, ok := strings.CutPrefix(name, "stack"); ok && isDecimal(n) {
		v, ok := parseInt(decimal(n))
		switch {
		case !ok:
			return p.l.err(BadVar, col, "")
		case v > MaxStackN:
			return p.l.err(BadStackNum, col, "")
		}
		e.Op, e.N = ExprStack, int(v)
		return nil
	}
	n, isArg := strings.CutPrefix(name, "arg")
	f, isFArg := strings.CutPrefix(name, "farg")
	if !isArg && !isFArg {
		return p.l.err(BadVar, col, "")
	}
	e.Op = ExprArg
	if isFArg {
		e.Op, n = ExprFArg, f
	}
	if !isDecimal(n) {
		return p.l.err(BadArgNum, col, "")
	}
	v, ok := parseInt(decimal(n))
	switch {
	case ok && v == 0:
		return p.l.err(BadArgNum, col, "")
	case !ok || v > MaxStackN || isFArg && v > 8:
		return p.l.err(ArgIdxTooBig, col, "")
	}
	e.N = int(v)
	return nil
}

// decimal drops leading zeros, which would make a number octal.
func decimal(s string) string {
	if t := strings.TrimLeft(s, "0"); t != "" {
		return t
	}
	return "0"
}

func (p *exprParser) memory(e *Expr, s string, col int) *SyntaxError {
	rest := s[1:]
	switch {
	case rest != "" && isDigit(rest[0]):
		v, ok := parseUint(rest)
		if !ok {
			return p.l.err(BadMemAddr, col, "")
		}
		e.Op, e.Imm = ExprMem, v
	case strings.HasPrefix(rest, "+"):
		v, ok := parseInt(rest[1:])
		if !ok || v < 0 {
			return p.l.err(BadFileOffs, col, "")
		}
		e.Op, e.Imm = ExprFileMem, uint64(v)
	default:
		e.Op = ExprSymMem
		if !e.fillSymbol(rest) {
			return p.l.err(BadMemAddr, col, "")
		}
	}
	return nil
}

// fillSymbol parses [MOD:]SYM[+|-offs].
func (e *Expr) fillSymbol(s string) bool {
	if i := moduleEnd(s); i >= 0 {
		if i == 0 {
			return false
		}
		e.Module, s = s[:i], s[i+1:]
	}
	if i := strings.LastIndexAny(s, "+-"); i > 0 && i+1 < len(s) && isDigit(s[i+1]) {
		v, ok := parseInt(strings.TrimPrefix(s[i:], "+"))
		if !ok {
			return false
		}
		e.Off, s = v, s[:i]
	}
	e.Text = s
	if s == "" || isDigit(s[0]) || !strings.ContainsFunc(s, isLetter) {
		return false
	}
	open := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '(' || c == '<' || c == '[' || c == '{':
			open++
		case c == ')' || c == '>' || c == ']' || c == '}':
			open--
		case open == 0 && !isAlpha(c) && !isDigit(c) && c < 0x80 && !strings.ContainsRune(".$@:~", rune(c)):
			return false
		}
	}
	return open == 0
}

func (p *exprParser) deref(e *Expr, s string, col, level int) *SyntaxError {
	if level == MaxNested {
		return p.l.err(TooManyNested, col, "")
	}
	open := strings.IndexByte(s, '(')
	if open < 0 {
		return p.l.err(DerefNeedBrace, col, "")
	}
	number := s[1:open]
	if strings.HasPrefix(number, "u") {
		e.User = true
		number = number[1:]
	}
	v, ok := parseInt(number)
	if !ok || s[0] == '-' && (number[0] == '-' || number[0] == '+') {
		return p.l.err(BadDerefOffs, col, "")
	}
	if s[0] == '-' {
		v = -v
	}
	e.Op, e.Off = ExprDeref, v
	inner := s[open+1:]
	end := strings.LastIndexByte(inner, ')')
	if end < 0 {
		return p.l.err(DerefOpenBrace, col+open+1+len(inner), "")
	}
	if end+1 < len(inner) {
		return p.l.err(BadFetchArg, col+open+1+end+1, "")
	}
	var err *SyntaxError
	if e.Inner, err = p.parse(inner[:end], col+open+1, level+1); err != nil {
		return err
	}
	switch e.Inner.Op {
	case ExprComm, ExprText:
		return p.l.err(CommCantDeref, col+open+1, "")
	case ExprAllArgs:
		return p.l.err(BadVarArgs, col+open+1, "")
	}
	return nil
}

func (p *exprParser) immediate(e *Expr, s string, col int) *SyntaxError {
	if strings.HasPrefix(s, `\"`) {
		if len(s) < 3 || s[len(s)-1] != '"' {
			return p.l.err(ImmStrNoClose, col+len(s), "")
		}
		e.Op, e.Text = ExprText, s[2:len(s)-1]
		return nil
	}
	rest := s[1:]
	e.Op = ExprImm
	var ok bool
	switch {
	case rest != "" && isDigit(rest[0]):
		e.Imm, ok = parseUint(rest)
	case rest != "" && (rest[0] == '-' || rest[0] == '+'):
		var v int64
		v, ok = parseInt(strings.TrimPrefix(rest, "+"))
		e.Imm = uint64(v)
	}
	if !ok {
		return p.l.err(BadImm, col+1, "")
	}
	return nil
}

// isLetter reports whether r can start a name in any of the languages whose
// compilers make symbols.
func isLetter(r rune) bool { return r >= 0x80 || isAlpha(byte(r)) }
