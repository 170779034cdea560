package fetch

import (
	"math/bits"
	"strconv"
)

// StepOp is an operation of a computed chain.
type StepOp uint8

// The operations on a chain's value v; x is the step's operand.
const (
	StepAdd  StepOp = iota // v + x
	StepSub                // v - x
	StepMul                // v * x
	StepAnd                // v & x
	StepOr                 // v | x
	StepXor                // v ^ x
	StepShl                // v << x; 0 from 64 on
	StepShr                // v >> x, zeros come in; 0 from 64 on
	StepSar                // v >> x, the sign comes in
	StepNeg                // -v
	StepNot                // ^v
	StepLoad               // Size bytes at v + Imm, zero-extended; may fault
	StepEq                 // 1 if v == x, else 0
	StepNe                 // 1 if v != x, else 0
	StepDiff               // u64 at v + Imm less the one at v + Imm2; may fault
	// StepBase is v + the u64 at Imm behind the address that is at v: where an object
	// has a virtual base class. It may fault.
	StepBase
	// StepWhen is v if the number of Size bytes at v + Imm is Imm2, or with Not if it
	// isn't, else a fault. With FromReg the number is in Reg, from bit Imm on.
	StepWhen
	// StepSince is v less the entry value Imm, 0 where that is more: the clocks of
	// two processors may differ by a little.
	StepSince
	StepSwap // v with its bytes in the other order
	// StepLabel is the address of the text that the label Text has, of a goroutine's that
	// lie as Imm says (LabelList, LabelMap) where v leads; without one a fault.
	StepLabel
	// StepAtMost is the u64 at v + Imm, or with FromReg v itself, if it is at most the
	// u64 at v + Imm2, or what is in Reg; else a fault. It may fault.
	StepAtMost
)

// String returns the operation's name.
func (o StepOp) String() string {
	names := [...]string{"add", "sub", "mul", "and", "or", "xor", "shl", "shr", "sar", "neg", "not", "load", "eq", "ne", "diff", "base", "when", "since", "swap", "label", "atmost"}
	if int(o) < len(names) {
		return names[o]
	}
	return "step " + strconv.Itoa(int(o))
}

// Step is one operation of a chain whose Source is SourceComputed: each is one
// or two instructions on one register. All arithmetic is modulo 2^64.
type Step struct {
	Op StepOp
	// Imm is the operand x, or the offset of a load.
	Imm uint64
	// FromReg makes x the register Reg instead.
	FromReg bool
	Reg     Reg
	Size    uint8 // of StepLoad and StepWhen: 1, 2, 4 or 8
	Imm2    uint64
	Not     bool
	Text    string
}

// steps runs the steps of a computed chain on v.
func (e *evaluator) steps(list []Step, v uint64, scratch []byte) (uint64, bool) {
	for i := range list {
		s := &list[i]
		if s.Op == StepLoad {
			if s.Size == 0 || s.Size > 8 || !e.read(scratch[:s.Size], v+s.Imm) {
				return 0, false
			}
			v = 0
			for j := int(s.Size) - 1; j >= 0; j-- {
				v = v<<8 | uint64(scratch[j])
			}
			continue
		}
		if s.Op == StepSwap {
			v = bits.ReverseBytes64(v)
			continue
		}
		if s.Op == StepDiff {
			high, ok := e.load(scratch, v+s.Imm)
			if !ok {
				return 0, false
			}
			low, ok := e.load(scratch, v+s.Imm2)
			if !ok {
				return 0, false
			}
			v = high - low
			continue
		}
		if s.Op == StepBase {
			table, ok := e.load(scratch, v)
			if !ok {
				return 0, false
			}
			off, ok := e.load(scratch, table+s.Imm)
			if !ok {
				return 0, false
			}
			v += off
			continue
		}
		if s.Op == StepSince {
			v = e.c.since(v, int(s.Imm))
			continue
		}
		if s.Op == StepLabel {
			var ok bool
			if v, ok = e.label(s, v); !ok {
				return 0, false
			}
			continue
		}
		if s.Op == StepAtMost {
			var ok bool
			if v, ok = e.atMost(s, v, scratch); !ok {
				return 0, false
			}
			continue
		}
		if s.Op == StepWhen {
			if !e.when(s, v, scratch) {
				return 0, false
			}
			continue
		}
		x := s.Imm
		if s.FromReg {
			var ok bool
			if x, ok = e.c.Regs.Get(s.Reg); !ok {
				return 0, false
			}
		}
		v = s.Op.Apply(v, x)
	}
	return v, true
}

// atMost is what a StepAtMost gives.
func (e *evaluator) atMost(s *Step, v uint64, scratch []byte) (uint64, bool) {
	if s.FromReg {
		most, ok := e.c.Regs.Get(s.Reg)
		return v, ok && v <= most
	}
	n, ok := e.load(scratch, v+s.Imm)
	if !ok {
		return 0, false
	}
	most, ok := e.load(scratch, v+s.Imm2)
	return n, ok && n <= most
}

// since is what has passed from the entry value n, a time, to v.
func (c *Context) since(v uint64, n int) uint64 {
	return v - min(v, littleEndian(c.Entry[8+8*n:][:8]))
}

// when reports whether what a StepWhen is about is so.
func (e *evaluator) when(s *Step, v uint64, scratch []byte) bool {
	n := uint64(0)
	if s.FromReg {
		x, ok := e.c.Regs.Get(s.Reg)
		if !ok || s.Size == 0 {
			return false
		}
		n = x >> s.Imm << (64 - 8*s.Size) >> (64 - 8*s.Size)
	} else {
		if s.Size == 0 || s.Size > 8 || !e.read(scratch[:s.Size], v+s.Imm) {
			return false
		}
		n = littleEndian(scratch[:s.Size])
	}
	return (n == s.Imm2) != s.Not
}

// Apply computes one step that reads no memory; of others it gives v.
func (o StepOp) Apply(v, x uint64) uint64 {
	truth := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	switch o {
	case StepAdd:
		return v + x
	case StepSub:
		return v - x
	case StepMul:
		return v * x
	case StepAnd:
		return v & x
	case StepOr:
		return v | x
	case StepXor:
		return v ^ x
	case StepShl:
		return v << x
	case StepShr:
		return v >> x
	case StepSar:
		return uint64(int64(v) >> min(x, 63))
	case StepNeg:
		return -v
	case StepNot:
		return ^v
	case StepEq:
		return truth(v == x)
	case StepNe:
		return truth(v != x)
	}
	return v
}
