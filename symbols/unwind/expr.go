package unwind

import (
	"encoding/binary"
	"errors"

	"github.com/go-delve/delve/pkg/dwarf/op"
	"github.com/go-delve/delve/pkg/dwarf/regnum"

	"kprobe/symbols/dwread"
)

// maxExpression limits an expression of call frame information, in bytes. Compilers and
// linkers write about ten.
const maxExpression = 1024

// evaluate computes the value of an expression of call frame information (DWARF 5, 6.4.2) with
// delve's evaluator. If has is set, the CFA is on the stack first, as rules for registers need
// it.
//
// Only the operations of 6.4.2 reach the evaluator. The others make locations, which are not
// values, or take a size from the file and allocate that much memory.
func evaluate(code []byte, r *Regs, mem Memory, cfa uint64, has bool) (uint64, End) {
	if !computes(code) {
		return 0, Unknown
	}
	if has {
		code = append([]byte{byte(op.DW_OP_call_frame_cfa)}, code...)
	}
	regs := op.NewDwarfRegisters(0, nil, binary.LittleEndian, PC, SP, regnum.AMD64_Rbp, 0)
	for n := range uint64(Columns) {
		if v, ok := r.Get(n); ok {
			regs.AddReg(n, op.DwarfRegisterFromUint64(v))
		}
	}
	regs.CFA = int64(cfa)
	v, err := execute(*regs, code, func(b []byte, at uint64) (int, error) {
		w, ok := mem.Word(at)
		if !ok {
			return 0, op.ErrMemoryReadUnavailable
		}
		var all [8]byte
		binary.LittleEndian.PutUint64(all[:], w)
		return copy(b, all[:]), nil
	})
	switch {
	case errors.Is(err, op.ErrMemoryReadUnavailable):
		return 0, Missing
	case err != nil:
		return 0, Unknown
	}
	return v, Going
}

// errNoValue says that an expression divides by zero or ends within an operand; the evaluator
// panics there.
var errNoValue = errors.New("the expression has no value")

func execute(regs op.DwarfRegisters, code []byte, read op.ReadMemoryFunc) (v uint64, err error) {
	defer func() {
		if recover() != nil {
			err = errNoValue
		}
	}()
	n, pieces, err := op.ExecuteStackProgram(regs, code, 8, read)
	if err == nil && pieces != nil {
		err = errNoValue
	}
	return uint64(n), err
}

// computes reports whether code consists of operations that compute values from registers and
// memory, is complete to its last operand, and jumps only to the start of an operation.
func computes(code []byte) bool {
	if len(code) > maxExpression {
		return false
	}
	begins, targets := make([]bool, len(code)+1), []uint64(nil)
	begins[len(code)] = true
	r := dwread.At(code, 0)
	for r.At < uint64(len(code)) && !r.Bad {
		begins[r.At] = true
		o := op.Opcode(r.U8())
		if o == op.DW_OP_bra || o == op.DW_OP_skip {
			by := int64(int16(r.U16()))
			targets = append(targets, r.At+uint64(by))
		} else if !operand(&r, o) {
			return false
		}
	}
	for _, to := range targets {
		if to > uint64(len(code)) || !begins[to] {
			return false
		}
	}
	return !r.Bad
}

// operand skips the operands of an operation. It returns false for an operation that computes
// no value.
func operand(r *dwread.Reader, o op.Opcode) bool {
	switch {
	case o >= op.DW_OP_lit0 && o <= op.DW_OP_lit31,
		o == op.DW_OP_dup, o == op.DW_OP_drop, o == op.DW_OP_over, o == op.DW_OP_swap, o == op.DW_OP_rot,
		o == op.DW_OP_deref, o == op.DW_OP_nop,
		o >= op.DW_OP_abs && o <= op.DW_OP_plus, o >= op.DW_OP_shl && o <= op.DW_OP_xor,
		o >= op.DW_OP_eq && o <= op.DW_OP_ne:
	case o == op.DW_OP_const1u, o == op.DW_OP_const1s, o == op.DW_OP_pick:
		r.U8()
	case o == op.DW_OP_deref_size:
		n := r.U8() // delve loads no other sizes; compilers use only 4 and 8
		return n == 2 || n == 4 || n == 8
	case o == op.DW_OP_const2u, o == op.DW_OP_const2s:
		r.U16()
	case o == op.DW_OP_const4u, o == op.DW_OP_const4s:
		r.U32()
	case o == op.DW_OP_const8u, o == op.DW_OP_const8s, o == op.DW_OP_addr:
		r.U64()
	case o == op.DW_OP_constu, o == op.DW_OP_plus_uconst:
		r.Uleb()
	case o == op.DW_OP_consts, o >= op.DW_OP_breg0 && o <= op.DW_OP_breg31:
		r.Sleb()
	case o == op.DW_OP_bregx:
		r.Uleb()
		r.Sleb()
	default:
		return false
	}
	return true
}
