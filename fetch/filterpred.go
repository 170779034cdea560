package fetch

import "strings"

// valueKind is how a predicate's operand was written.
type valueKind uint8

const (
	valueNumber valueKind = iota
	valueText             // quoted, or a bare word
	valueCPUs             // CPUS{…}
)

// rawPred is a predicate as written; columns are in the filter's text.
type rawPred struct {
	field    string
	fieldEnd int
	function bool // .function
	cmp      Cmp
	kind     valueKind
	bare     bool // text without quotes
	value    string
	valueAt  int
	valueEnd int
}

// cmpTexts lists the operators so that no one hides a longer one.
func cmpTexts() []string { return []string{"==", "!=", "<=", "<", ">=", ">", "&", "~"} }

func cmpOf(index int) Cmp {
	return [...]Cmp{CmpEq, CmpNe, CmpLe, CmpLt, CmpGe, CmpGt, CmpAnd, CmpGlob}[index]
}

// memberDot reports a dot within a field's name: a part of a variable that lies
// in several places is list.len. FIELD.function is the kernel's.
func (p *filterParser) memberDot() bool {
	rest, ok := strings.CutPrefix(p.s[p.at:], ".")
	if !ok || rest == "" || !isAlpha(rest[0]) {
		return false
	}
	after, ok := strings.CutPrefix(rest, "function")
	return !ok || after != "" && (isAlpha(after[0]) || isDigit(after[0]))
}

// expression is the length of an argument's name that is no identifier: the longest
// that stands here, and ends here.
func (p *filterParser) expression() (n int) {
	rest := p.s[p.at:]
	for _, name := range p.named {
		if len(name) > n && strings.HasPrefix(rest, name) && (len(rest) == len(name) || !isAlpha(rest[len(name)]) && !isDigit(rest[len(name)])) {
			n = len(name)
		}
	}
	return n
}

// predicate parses FIELD OP VALUE.
func (p *filterParser) predicate() (*rawPred, *SyntaxError) {
	start := p.at
	if p.at += p.expression(); p.at == start {
		if strings.HasPrefix(p.s[p.at:], durationField) {
			if !p.f.calls {
				return nil, newError(BadVar, p.f.input, p.f.col+p.at, noDuration)
			}
			p.at++ // the $
		}
		for p.at < len(p.s) && (isAlpha(p.s[p.at]) || isDigit(p.s[p.at]) || p.memberDot()) {
			p.at++
		}
	}
	r := &rawPred{field: p.s[start:p.at], fieldEnd: p.at}
	if r.field == "" {
		return nil, p.f.err(FiltFieldNotFound, p.at)
	}
	var pred Pred
	if p.fields != nil {
		var ok bool
		if pred, ok = findField(p.fields, r.field); !ok {
			return nil, p.f.err(FiltFieldNotFound, p.at)
		}
	}
	if rest, ok := strings.CutPrefix(p.s[p.at:], ".function"); ok {
		r.function = true
		p.at = len(p.s) - len(rest)
	}
	p.blanks()
	found := false
	for i, op := range cmpTexts() {
		if strings.HasPrefix(p.s[p.at:], op) {
			r.cmp, found = cmpOf(i), true
			p.at += len(op)
			break
		}
	}
	if !found {
		return nil, p.f.err(FiltInvalidOp, p.at)
	}
	p.blanks()
	if e := p.kindOf(r); e != nil {
		return nil, e
	}
	// What doesn't fit the field is said before the operand is read.
	if p.fields != nil {
		if e := p.f.check(pred, r); e != nil {
			return nil, e
		}
	}
	if e := p.value(r); e != nil {
		return nil, e
	}
	if p.fields != nil {
		b := binder{f: p.f}
		if _, e := b.operand(pred, r); e != nil {
			return nil, e
		}
	}
	return r, nil
}

// kindOf tells the kind of the operand by how it starts.
func (p *filterParser) kindOf(r *rawPred) *SyntaxError {
	r.valueAt = p.at
	rest := p.s[p.at:]
	switch {
	case strings.HasPrefix(rest, "CPUS"):
		r.kind = valueCPUs
	case rest != "" && (rest[0] == '"' || rest[0] == '\''):
		r.kind = valueText
	case rest != "" && (isDigit(rest[0]) || rest[0] == '-'):
		r.kind = valueNumber
	case rest == "" || isBlank(rest[0]) || strings.IndexByte(bareEnds, rest[0]) >= 0:
		return p.f.err(FiltInvalidValue, p.at)
	default:
		r.kind, r.bare = valueText, true
	}
	return nil
}

// bareEnds are the characters that end a text without quotes.
const bareEnds = "()&|!=<>\"'"

// value reads the operand.
func (p *filterParser) value(r *rawPred) *SyntaxError {
	rest := p.s[p.at:]
	n := 0
	switch {
	case r.kind == valueCPUs:
		return p.cpus(r)
	case r.kind == valueText && !r.bare:
		end := strings.IndexByte(rest[1:], rest[0])
		if end < 0 {
			return p.f.err(FiltMissingQuote, p.at)
		}
		r.value = rest[1 : 1+end]
		p.at += end + 2
		r.valueEnd = p.at - 1
		return nil
	case r.kind == valueNumber:
		n = numberLen(rest)
	default:
		for n < len(rest) && !isBlank(rest[n]) && strings.IndexByte(bareEnds, rest[n]) < 0 {
			n++
		}
	}
	r.value = rest[:n]
	p.at += n
	r.valueEnd = p.at
	return nil
}

// numberLen is the length of what is meant to be a number, floats included.
func numberLen(s string) int {
	n := 1
	for n < len(s) && (isAlpha(s[n]) || isDigit(s[n]) || s[n] == '.' ||
		(s[n] == '-' || s[n] == '+') && s[n-1]|0x20 == 'e' && !strings.HasPrefix(s, "0x")) {
		n++
	}
	return n
}

// cpus parses CPUS{LIST}.
func (p *filterParser) cpus(r *rawPred) *SyntaxError {
	p.at += len("CPUS")
	if p.at == len(p.s) || p.s[p.at] != '{' {
		return p.f.err(FiltMissingBraceOpen, p.at)
	}
	p.at++
	end := strings.IndexByte(p.s[p.at:], '}')
	if end < 0 {
		return p.f.err(FiltMissingBraceClose, len(p.s))
	}
	r.value = p.s[p.at : p.at+end]
	r.valueEnd = p.at
	p.at += end + 1
	return nil
}

// maxCPU bounds the CPU numbers of a list (NR_CPUS of the biggest kernels).
const maxCPU = 8192

// parseCPUs parses a list such as 2,4,6-8 into a bit mask.
func parseCPUs(s string) ([]uint64, bool) {
	var mask []uint64
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !isDecimal(lo) || ranged && !isDecimal(hi) {
			return nil, false
		}
		first, ok := parseUint(decimal(lo))
		last := first
		if ok && ranged {
			last, ok = parseUint(decimal(hi))
		}
		if !ok || first > last || last >= maxCPU {
			return nil, false
		}
		for c := first; c <= last; c++ {
			for uint64(len(mask)) <= c/64 {
				mask = append(mask, 0)
			}
			mask[c/64] |= 1 << (c % 64)
		}
	}
	return mask, true
}
