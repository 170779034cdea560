package fetch

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"kprobe/symbols"
)

// findFunction answers FIELD.function; nil accepts any name (Parse, which
// knows no process).
type findFunction func(name string) (symbols.Addr, uint64, error)

// bind finds every field, checks operands against types, and compiles the
// filter to branches.
func (f *Filter) bind(fields []Field, find findFunction) (*FilterProgram, *SyntaxError) {
	b := binder{f: f, fields: fields, find: find, prog: &FilterProgram{}, labels: []int{-1}}
	if e := b.emit(f.root, false, 0); e != nil {
		return nil, e
	}
	b.labels[0] = b.prog.Reject()
	for i := range b.prog.Preds {
		b.prog.Preds[i].Target = b.labels[b.prog.Preds[i].Target]
	}
	return b.prog, nil
}

type binder struct {
	f      *Filter
	fields []Field
	find   findFunction
	prog   *FilterProgram
	labels []int // predicate that each label stands before; label 0 rejects
}

// emit appends code that goes to label when n's result is when, and falls
// through otherwise.
func (b *binder) emit(n *filterNode, when bool, label int) *SyntaxError {
	switch n.op {
	case '!':
		return b.emit(n.left, !when, label)
	case '&', '|':
		// The result that decides without the right side.
		early := n.op == '|'
		if early == when {
			if e := b.emit(n.left, when, label); e != nil {
				return e
			}
			return b.emit(n.right, when, label)
		}
		skip := len(b.labels)
		b.labels = append(b.labels, -1)
		if e := b.emit(n.left, early, skip); e != nil {
			return e
		}
		if e := b.emit(n.right, when, label); e != nil {
			return e
		}
		b.labels[skip] = len(b.prog.Preds)
		return nil
	}
	p, e := b.predicate(n.pred)
	if e != nil {
		return e
	}
	p.When, p.Target = when, label
	b.prog.Preds = append(b.prog.Preds, p)
	return nil
}

// durationField is how long the call took, as filters of return probes name it.
const durationField = "$duration"

// findField finds a field by name: arguments first, then what every event has.
func findField(fields []Field, name string) (Pred, bool) {
	for i, f := range fields {
		if f.Name == name {
			return Pred{Field: FieldArg, Arg: i, Type: f.Type}, true
		}
	}
	switch name {
	case "pid", "common_tgid":
		return Pred{Field: FieldPID, Type: Type{Base: Signed, Size: 4}}, true
	case "tid", "common_pid":
		return Pred{Field: FieldTID, Type: Type{Base: Signed, Size: 4}}, true
	case "cpu", "CPU", "common_cpu":
		// The kernel's is an int.
		return Pred{Field: FieldCPU, Type: Type{Base: Signed, Size: 4}}, true
	case "comm", "COMM", "common_comm":
		return Pred{Field: FieldComm, Type: Type{Base: String, Size: 8}}, true
	case "__probe_ip":
		return Pred{Field: FieldIP, Type: DefaultType()}, true
	case durationField:
		return Pred{Field: FieldDuration, Type: Type{Base: Unsigned, Size: 8}}, true
	}
	return Pred{}, false
}

// predicate checks one predicate in parse_pred's order.
func (b *binder) predicate(r *rawPred) (Pred, *SyntaxError) {
	p, ok := findField(b.fields, r.field)
	if !ok || p.Type.Layout != nil && p.Type.Layout.Gone != "" {
		return p, b.f.err(FiltFieldNotFound, r.fieldEnd)
	}
	if e := b.f.check(p, r); e != nil {
		return p, e
	}
	return b.operand(p, r)
}

// check refuses operators and kinds of operand that don't fit the field.
func (f *Filter) check(p Pred, r *rawPred) *SyntaxError {
	text, float := p.Type.IsText() || p.Type.isTextArray() || p.Type.isWideID(), p.Type.Base == Float
	equality := r.cmp == CmpEq || r.cmp == CmpNe
	switch {
	case p.Type.Base == Container:
		return f.err(FiltIllegalFieldOp, r.fieldEnd)
	case p.Type.IsArray() && !p.Type.isTextArray() && !p.Type.isWideID():
		return f.err(FiltIllegalFieldOp, r.fieldEnd)
	case r.function:
		if !equality || text || float || r.kind == valueCPUs {
			return f.err(FiltInvalidOp, r.valueAt)
		}
		if p.Type.Size != 8 {
			return f.err(FiltIllegalFieldOp, r.valueAt)
		}
	case r.kind == valueCPUs:
		if text || float || !equality && r.cmp != CmpAnd {
			return f.err(FiltIllegalFieldOp, r.valueAt)
		}
	case r.kind == valueText:
		switch {
		case !text && p.Type.isNamed() && r.cmp != CmpGlob:
			return nil
		case p.Type.Base == ID && !text && equality:
			return nil
		case r.bare && !text:
			return f.err(FiltInvalidValue, r.valueAt)
		case !equality && r.cmp != CmpGlob:
			return f.err(FiltIllegalFieldOp, r.valueAt)
		case !text:
			return f.err(FiltExpectDigit, r.valueAt)
		}
	case text:
		return f.err(FiltExpectString, r.valueAt)
	case r.cmp == CmpGlob || r.cmp == CmpAnd && float:
		return f.err(FiltIllegalFieldOp, r.valueAt)
	}
	return nil
}

// operand converts what the field is compared with.
func (b *binder) operand(p Pred, r *rawPred) (Pred, *SyntaxError) {
	p.Cmp = r.cmp
	switch {
	case r.function:
		return b.function(p, r)
	case r.kind == valueCPUs:
		p.Operand = OperandCPUs
		var ok bool
		if p.CPUs, ok = parseCPUs(r.value); !ok {
			return p, b.f.err(FiltInvalidCPUList, r.valueEnd)
		}
		return p, nil
	case r.kind == valueText && p.Type.isNamed():
		v, ok := p.Type.Layout.valueOf(r.value)
		if !ok {
			return p, newError(FiltInvalidValue, b.f.input, b.f.col+r.valueAt, p.Type.String()+" has no "+r.value)
		}
		p.Val = v
		if p.Type.Base == Signed {
			p.Operand = OperandSigned
		}
		return p, nil
	case r.kind == valueText && p.Type.Base == ID && !p.Type.isWideID():
		v, err := strconv.ParseUint(r.value, 16, 64)
		if err != nil || len(r.value) != 16 {
			return p, newError(FiltInvalidValue, b.f.input, b.f.col+r.valueAt, "write it as 16 hexadecimal digits")
		}
		p.Val = v
		return p, nil
	case r.kind == valueText:
		if len(r.value) >= MaxFilterText {
			return p, b.f.err(FiltOperandTooLong, r.valueEnd)
		}
		p.Operand, p.Text = OperandText, r.value
		return p, nil
	}
	return b.number(p, r)
}

// isTime reports whether a field is a time.
func (f *Filter) isTime(field string) bool {
	return field == durationField || slices.Contains(f.times, field)
}

func (b *binder) number(p Pred, r *rawPred) (Pred, *SyntaxError) {
	ok := false
	switch {
	case b.f.isTime(r.field) && p.Type.Base != Float && !isDigit(r.value[len(r.value)-1]) && !strings.HasPrefix(r.value, "0x"):
		t, err := time.ParseDuration(r.value)
		if err != nil || t < 0 {
			return p, newError(FiltIllegalIntVal, b.f.input, b.f.col+r.valueAt, "write a time in nanoseconds, or with a unit: ns, us, ms, s, m or h")
		}
		p.Val, ok = uint64(t), true
		if p.Type.Base == Signed {
			p.Operand = OperandSigned
		}
	case p.Type.Base == Float:
		var v float64
		if u, isInt := parseUint(strings.TrimPrefix(r.value, "-")); isInt {
			v, ok = float64(u), true
			if r.value[0] == '-' {
				v = -v
			}
		} else if !strings.Contains(r.value, "_") {
			var err error
			v, err = strconv.ParseFloat(r.value, 64)
			ok = err == nil
		}
		p.Operand, p.Val = OperandFloat, math.Float64bits(v)
	case p.Type.Base == Signed:
		var v int64
		v, ok = parseInt(r.value)
		p.Operand, p.Val = OperandSigned, uint64(v)
	case p.Type.Base == ID && len(r.value) == 16:
		v, err := strconv.ParseUint(r.value, 16, 64)
		p.Val, ok = v, err == nil
	default:
		p.Val, ok = parseUint(r.value)
	}
	if !ok {
		return p, b.f.err(FiltIllegalIntVal, r.valueAt)
	}
	return p, nil
}

// function turns FIELD.function == SYM into a test of SYM's range.
func (b *binder) function(p Pred, r *rawPred) (Pred, *SyntaxError) {
	p.Operand = OperandRange
	if r.kind == valueNumber {
		v, ok := parseUint(r.value)
		if !ok {
			return p, b.f.err(FiltIllegalIntVal, r.valueAt)
		}
		p.Val, p.End = v, v+1
		return p, nil
	}
	if b.find == nil {
		return p, nil
	}
	at, size, err := b.find(r.value)
	if err != nil {
		e := newError(FiltNoFunction, b.f.input, b.f.col+r.valueAt, err.Error())
		e.Err = err
		return p, e
	}
	p.Val, p.End = uint64(at), uint64(at)+max(size, 1)
	return p, nil
}
