package fetch

import "strings"

// Condition is a filter over recorded values, instead of those of a definition: $retval < 0 &&
// size > 4096. Fields are found by their names. $retval is the field that ParseCondition is
// told, $duration a time in ns.
type Condition struct {
	filter Filter
}

// ParseCondition parses a filter. retval is the field that $retval means. Errors are
// *SyntaxError.
func ParseCondition(text, retval string) (*Condition, error) {
	c := &Condition{Filter{Text: text, input: text, calls: true}}
	p := filterParser{f: &c.filter, s: renamed(text, "$retval", retval)}
	if code, at := unbalanced(p.s); code != 0 {
		return nil, c.filter.err(code, min(at, len(text)))
	}
	root, e := p.any(0)
	if e == nil && p.at < len(p.s) {
		e = c.filter.err(FiltTooManyPreds, min(p.at, len(text)))
	}
	if e != nil {
		return nil, e
	}
	c.filter.root = root
	return c, nil
}

// renamed puts a field's name, as often as it stands outside of quotes, in the place of
// a longer one, with blanks so that columns stay.
func renamed(s, from, to string) string {
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.HasPrefix(s[i:], from):
			b.WriteString(to + strings.Repeat(" ", max(0, len(from)-len(to))))
			i += len(from) - 1
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Bind finds the condition's fields among fields. The error is a *SyntaxError: a field doesn't
// exist, or its type doesn't fit what it is compared with.
func (c *Condition) Bind(fields []Field) (*BoundCondition, error) {
	prog, e := c.filter.bind(fields, nil)
	if e != nil {
		return nil, e
	}
	return &BoundCondition{prog}, nil
}

// BoundCondition is a condition over known fields.
type BoundCondition struct{ prog *FilterProgram }

// ConditionValue is a value of a field: numbers as their bits, or text.
type ConditionValue struct {
	Fault bool
	Int   uint64
	Text  []byte
}

// ConditionHit is what a condition can ask about a hit, besides values.
type ConditionHit struct {
	PID, TID, CPU int
	Comm          string
	IP, Duration  uint64
}

// Match reports whether values, one for each bound field, satisfy the condition. A value that
// faulted satisfies nothing.
func (b *BoundCondition) Match(h *ConditionHit, values []ConditionValue) bool {
	return b.prog.passes(func(q *Pred) bool { return b.test(q, h, values) })
}

func (b *BoundCondition) test(q *Pred, h *ConditionHit, values []ConditionValue) bool {
	if q.Operand == OperandText {
		if q.Field == FieldComm {
			return testComm(q, h.Comm)
		}
		v := &values[q.Arg]
		return !v.Fault && testText(q, v.Text)
	}
	var v uint64
	switch q.Field {
	case FieldArg:
		if values[q.Arg].Fault {
			return false
		}
		v = values[q.Arg].Int
	case FieldPID:
		v = uint64(h.PID)
	case FieldTID:
		v = uint64(h.TID)
	case FieldCPU:
		v = uint64(h.CPU)
	case FieldIP:
		v = h.IP
	case FieldDuration:
		v = h.Duration
	}
	return q.Match(v)
}
