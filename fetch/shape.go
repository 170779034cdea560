package fetch

// SameShape reports whether o can be one more place of d's event: the same
// kind of probe, and arguments of the same number, names and types
// (append_trace_kprobe in kernel/trace/trace_kprobe.c). Its errors are
// *SyntaxError of o: DIFF_PROBE_TYPE, DIFF_ARG_TYPE with the caret under the
// first argument that differs, and SAME_PROBE where o is d again.
func (d *Def) SameShape(o *Def) error {
	if d.Kind != o.Kind {
		return newError(DiffProbeType, o.Text, 0, "")
	}
	for i, a := range d.Args {
		if i >= len(o.Args) {
			return newError(DiffArgType, o.Text, len(o.Text)+1, "")
		}
		if b := o.Args[i]; a.Name != b.Name || a.Type != b.Type || a.variable() != b.variable() {
			return newError(DiffArgType, o.Text, b.col, "")
		}
	}
	if len(o.Args) > len(d.Args) {
		return newError(DiffArgType, o.Text, o.Args[len(d.Args)].col, "")
	}
	if d.sameProbe(o) {
		return newError(SameProbe, o.Text, 0, "")
	}
	return nil
}

// variable reports whether the argument's type is for debug information to
// choose.
func (a *Arg) variable() bool {
	return a.Expr.Op == ExprAllArgs || a.Expr.Op == ExprVariable && !a.TypeGiven
}

// sameProbe reports whether two definitions of one shape ask for the same.
func (d *Def) sameProbe(o *Def) bool {
	if d.Place != o.Place || d.Stack != o.Stack || d.Limit != o.Limit || (d.Filter == nil) != (o.Filter == nil) ||
		d.Filter != nil && d.Filter.Text != o.Filter.Text {
		return false
	}
	for i, a := range d.Args {
		if a.Text != o.Args[i].Text {
			return false
		}
	}
	return true
}

// Deletes reports whether d, a Delete, names o: its event, and its place and
// arguments as far as they are given. Arguments are compared as text in the
// form NAME=EXPRESSION.
func (d *Def) Deletes(o *Def) bool {
	if d.Kind != Delete || d.Event != o.Event || d.Group != "" && d.Group != o.Group {
		return false
	}
	if !d.HasPlace {
		return true
	}
	p, q := d.Place, o.Place
	p.Return, q.Return = false, false
	if p != q || len(d.DeleteArgs) > len(o.Args) || d.Stack != 0 && d.Stack != o.Stack {
		return false
	}
	for i, s := range d.DeleteArgs {
		if a := o.Args[i]; s != a.String() && (a.Named || s != a.Text) {
			return false
		}
	}
	return true
}
