package fetch

import "strings"

// Filter is the parsed condition after "if". Its fields are bound to arguments when the
// definition is compiled.
type Filter struct {
	Text string // as written

	input string // the definition's text, for errors
	col   int    // of Text in input
	root  *filterNode
	// times are the names of arguments that are times: what they are compared with
	// may have a unit.
	times []string
	calls bool // of a return probe, which has $duration
}

// filterNode is a node of a filter's tree: a predicate, or '&', '|' and '!'
// over others.
type filterNode struct {
	op          byte // 0 for a predicate
	left, right *filterNode
	pred        *rawPred
}

// filterParser parses a filter. Positions of errors are those of calc_stack,
// predicate_parse and parse_pred in kernel/trace/trace_events_filter.c.
type filterParser struct {
	f     *Filter
	s     string
	at    int
	count int
	// named are the names of arguments that are no identifiers, such as f->n.
	named []string
	// fields are the arguments; nil while debug information is to name them.
	fields []Field
}

// maxPreds bounds a filter's predicates. The kernel bounds memory instead.
const maxPreds = 256

// maxFilterDepth bounds how deep parentheses and negations nest.
const maxFilterDepth = 64

func (d *Def) parseFilter(l *line) *SyntaxError {
	w := *l.filter
	if w.text == "" {
		return l.err(NoEPFilter, l.past(), "")
	}
	f, e := d.filter(w.text, l.input, w.col)
	if e == nil {
		d.Filter = f
	}
	return e
}

// filter parses a filter over what the definition fetches, which stands at a column of
// input.
func (d *Def) filter(text, input string, col int) (*Filter, *SyntaxError) {
	f := &Filter{Text: text, input: input, col: col, calls: d.Kind == Return}
	p := filterParser{f: f, s: text}
	for _, a := range d.Args {
		if !isGoodName(a.Name) {
			p.named = append(p.named, a.Name)
		}
		switch a.Expr.Op {
		case ExprTime, ExprEntryTime, ExprDuration:
			f.times = append(f.times, a.Name)
		}
	}
	late := d.typedLate()
	if !late {
		p.fields = d.fields()
	}
	if code, at := unbalanced(text); code != 0 {
		return nil, f.err(code, at)
	}
	root, e := p.any(0)
	if e != nil {
		return nil, e
	}
	if p.at < len(p.s) {
		return nil, f.err(FiltTooManyPreds, p.at)
	}
	f.root = root
	if late {
		return f, nil
	}
	_, e = f.bind(p.fields, nil)
	return f, e
}

// typedLate reports whether the names or types of the arguments depend on debug information, so
// that only Compile can bind the filter.
func (d *Def) typedLate() bool {
	for _, a := range d.Args {
		if a.variable() {
			return true
		}
	}
	return false
}

// fields lists the arguments as far as their definition types them.
func (d *Def) fields() []Field {
	out := make([]Field, len(d.Args))
	for i, a := range d.Args {
		out[i] = Field{a.Name, a.Type}
	}
	return out
}

func (f *Filter) err(code Code, at int) *SyntaxError {
	return newError(code, f.input, f.col+at, "")
}

// unbalanced finds parentheses and quotes that don't match, before anything
// else is looked at.
func unbalanced(s string) (Code, int) {
	var open []int
	quote, start := byte(0), 0
	for i := range len(s) {
		c := s[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote, start = c, i
		case c == '(':
			open = append(open, i)
		case c == ')':
			if len(open) == 0 {
				return FiltTooManyClose, i
			}
			open = open[:len(open)-1]
		}
	}
	switch {
	case quote != 0:
		return FiltMissingQuote, start
	case len(open) > 0:
		return FiltTooManyOpen, open[len(open)-1]
	}
	return 0, 0
}

func (p *filterParser) blanks() {
	for p.at < len(p.s) && isBlank(p.s[p.at]) {
		p.at++
	}
}

// any parses terms joined by ||.
func (p *filterParser) any(depth int) (*filterNode, *SyntaxError) {
	return p.chain(depth, '|', (*filterParser).all)
}

// all parses terms joined by &&, which binds tighter.
func (p *filterParser) all(depth int) (*filterNode, *SyntaxError) {
	return p.chain(depth, '&', (*filterParser).term)
}

func (p *filterParser) chain(depth int, op byte, next func(*filterParser, int) (*filterNode, *SyntaxError)) (*filterNode, *SyntaxError) {
	left, e := next(p, depth)
	if e != nil {
		return nil, e
	}
	for {
		p.blanks()
		if !strings.HasPrefix(p.s[p.at:], string([]byte{op, op})) {
			return left, nil
		}
		p.at += 2
		right, e := next(p, depth)
		if e != nil {
			return nil, e
		}
		left = &filterNode{op: op, left: left, right: right}
	}
}

func (p *filterParser) term(depth int) (*filterNode, *SyntaxError) {
	p.blanks()
	if depth > maxFilterDepth {
		return nil, p.f.err(FiltTooManyPreds, p.at)
	}
	if p.at == len(p.s) {
		return nil, p.f.err(FiltNoFilter, p.at)
	}
	switch c := p.s[p.at]; {
	case p.expression() > 0: // which may begin with a parenthesis
	case c == '!':
		p.at++
		n, e := p.term(depth + 1)
		if e != nil {
			return nil, e
		}
		return &filterNode{op: '!', left: n}, nil
	case c == '(':
		p.at++
		n, e := p.any(depth + 1)
		if e != nil {
			return nil, e
		}
		p.blanks()
		if p.at == len(p.s) || p.s[p.at] != ')' {
			return nil, p.f.err(FiltTooManyPreds, p.at)
		}
		p.at++
		return n, nil
	}
	if p.count++; p.count > maxPreds {
		return nil, p.f.err(FiltTooManyPreds, p.at)
	}
	r, e := p.predicate()
	if e != nil {
		return nil, e
	}
	return &filterNode{pred: r}, nil
}
