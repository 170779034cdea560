package fetch

import "kprobe/symbols"

// Watched is what a watchpoint knows of an access.
type Watched struct {
	Addr uint64
	// Value is what the memory holds behind the access, Old what it held when it was
	// looked at before: at the access before this one, or when it began to be
	// watched. They are as wide as what is watched, without a sign.
	Value, Old       uint64
	HasValue, HasOld bool
}

// Numbers of SourceWatch and ExprWatch.
const (
	WatchAddr = iota
	WatchValue
	WatchOld
)

// value returns one of them; ok is false where it isn't known.
func (w *Watched) value(n int) (v uint64, ok bool) {
	switch {
	case w == nil:
		return 0, false
	case n == WatchAddr:
		return w.Addr, true
	case n == WatchValue:
		return w.Value, w.HasValue
	}
	return w.Old, w.HasOld
}

// WatchEnv is an Env of memory that is watched.
type WatchEnv interface {
	Env
	// Watched is the type that what is watched prints as.
	Watched() Type
}

// ofWatch parses the variables that a watchpoint has besides those of all.
func (p *exprParser) ofWatch(e *Expr, name string, col int) *SyntaxError {
	e.Op = ExprWatch
	switch name {
	case "addr":
		e.N = WatchAddr
	case "value":
		e.N = WatchValue
	case "old":
		e.N = WatchOld
	default:
		if err := p.numbered(e, name, col); err != nil || e.Op != ExprStack {
			return p.l.err(BadVar, col, "a watchpoint can fetch $addr, $value, $old and $stackN")
		}
	}
	return nil
}

// watchType is the type of a watchpoint's value that names none.
func (c *compiler) watchType(x *Expr) Type {
	if env, ok := c.env.(WatchEnv); ok && x.N != WatchAddr {
		return env.Watched()
	}
	return DefaultType()
}

// Address computes what a chain gives that needs no thread: it begins with a
// constant. mem reads what pointers lead to; nil: there is none to read.
func Address(ch *Chain, mem symbols.Memory) (v uint64, ok bool) {
	if ch.root() != SourceImm {
		return 0, false
	}
	for i := range ch.Steps {
		if ch.Steps[i].FromReg {
			return 0, false
		}
	}
	return ValueOf(ch, &Regs{}, mem)
}

// ValueOf computes what a chain gives that needs no more of a thread than its registers.
// ok is false where a load fails.
func ValueOf(ch *Chain, regs *Regs, mem symbols.Memory) (v uint64, ok bool) {
	e := evaluator{c: &Context{Mem: mem, Regs: regs}}
	var scratch [8]byte
	return e.chain(ch, scratch[:])
}
