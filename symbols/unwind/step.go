package unwind

import "encoding/binary"

// SP and PC are the columns in Regs for the stack pointer and for the address at which a frame
// continues.
const (
	SP = 7
	PC = Columns - 1
)

// Regs are the registers of one frame by DWARF's numbers. Number 16 is the address at which the
// frame continues. Bit n of Known says that number n is known.
type Regs struct {
	V     [Columns]uint64
	Known uint32
}

// Set makes a register known.
func (r *Regs) Set(n int, v uint64) {
	r.V[n] = v
	r.Known |= 1 << n
}

// Get returns a register, if it is known.
func (r *Regs) Get(n uint64) (uint64, bool) {
	if n >= Columns || r.Known&(1<<n) == 0 {
		return 0, false
	}
	return r.V[n], true
}

// Memory is the memory that a walk reads: a copy of the stack.
type Memory interface {
	// Word reads 8 bytes. ok is false if they are missing.
	Word(at uint64) (v uint64, ok bool)
}

// Stack is Memory that consists of a piece of a stack, from Base on, and a piece of another stack
// that a signal interrupted.
type Stack struct {
	Base     uint64
	Bytes    []byte
	MoreBase uint64
	More     []byte
}

// Word implements Memory.
func (s *Stack) Word(at uint64) (uint64, bool) {
	if v, ok := word(s.Bytes, at-s.Base); ok {
		return v, true
	}
	return word(s.More, at-s.MoreBase)
}

// AtReturn reports whether a stack pointer is that of a return instruction, with the address
// to still on the stack. It is false if the return is done and to lies in the red zone.
func (s *Stack) AtReturn(sp, to uint64) bool {
	if popped, ok := s.Word(sp - 8); ok && popped == to {
		return false
	}
	top, ok := s.Word(sp)
	return ok && top == to
}

func word(b []byte, off uint64) (uint64, bool) {
	if n := uint64(len(b)); n < 8 || off > n-8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[off:]), true
}

// End says why a walk did not continue to a caller.
type End uint8

// The ends of a step.
const (
	Going   End = iota // it continued
	Outmost            // there is no caller
	Missing            // the copy lacks the memory that is needed
	Unknown            // nothing says where the caller is
)

// Caller changes r, the registers at an address that the row describes, to those of the caller.
func (row *Row) Caller(r *Regs, mem Memory) End {
	cfa, end := row.cfa(r, mem)
	if end != Going {
		return end
	}
	ra := &row.Regs[PC]
	if ra.Kind == Undefined || ra.Kind == Unspecified {
		return Outmost
	}
	out := Regs{}
	for n := range row.Regs {
		v, end := row.Regs[n].value(uint64(n), cfa, r, mem)
		switch {
		case end == Going:
			out.Set(n, v)
		case n == PC:
			return end
		}
	}
	if row.Regs[SP].Kind == Unspecified {
		out.Set(SP, cfa)
	}
	if out.V[PC] == 0 {
		return Outmost
	}
	*r = out
	return Going
}

func (row *Row) cfa(r *Regs, mem Memory) (uint64, End) {
	switch row.CFA.Kind {
	case InRegister:
		if v, ok := r.Get(row.CFA.Reg); ok {
			return v + uint64(row.CFA.Off), Going
		}
	case IsExpr:
		return evaluate(row.CFA.Expr, r, mem, 0, false)
	}
	return 0, Unknown
}

// value computes the caller's register n.
func (rule *Rule) value(n, cfa uint64, r *Regs, mem Memory) (uint64, End) {
	at := cfa + uint64(rule.Off)
	switch rule.Kind {
	case Unspecified, SameValue:
		if v, ok := r.Get(n); ok && n != PC {
			return v, Going
		}
		return 0, Unknown
	case AtCFA:
	case IsCFA:
		return at, Going
	case InRegister:
		if v, ok := r.Get(rule.Reg); ok {
			return v + uint64(rule.Off), Going
		}
		return 0, Unknown
	case AtExpr, IsExpr:
		v, end := evaluate(rule.Expr, r, mem, cfa, true)
		if rule.Kind == IsExpr || end != Going {
			return v, end
		}
		at = v
	default:
		return 0, Unknown
	}
	if v, ok := mem.Word(at); ok {
		return v, Going
	}
	return 0, Missing
}
