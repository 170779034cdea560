package vars

import (
	"debug/elf"
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
)

var (
	errBadExpression = errors.New("its location is damaged in the debug information")
	errTooDeep       = errors.New("its location leads in circles in the debug information")
)

// maxStack bounds the stack of an expression.
const maxStack = 64

// evaluator turns an expression into a place.
type evaluator struct {
	f      *frame
	unit   *debuginfo.Unit
	stack  []sym
	direct place // of an operation that names a place itself
	has    bool
	pieces []piece
	filled int64
}

// location runs a whole location description.
func (x *evaluator) location(expr []byte) (place, error) {
	if err := x.run(expr); err != nil {
		return place{}, err
	}
	if x.pieces != nil {
		return place{kind: inPieces, pieces: x.pieces}, nil
	}
	return x.simple()
}

// simple is the place that the operations so far describe.
func (x *evaluator) simple() (place, error) {
	if x.has {
		return x.direct, nil
	}
	top, err := x.pop()
	if err == nil && top.typ.opaque {
		err = errBadExpression
	}
	return place{kind: inMemory, sym: top}, err
}

func (x *evaluator) push(s sym) error {
	if len(x.stack) == maxStack {
		return errBadExpression
	}
	x.stack = append(x.stack, s)
	return nil
}

func (x *evaluator) pop() (sym, error) {
	if len(x.stack) == 0 {
		return sym{}, errBadExpression
	}
	s := x.stack[len(x.stack)-1]
	x.stack = x.stack[:len(x.stack)-1]
	return s, nil
}

func (x *evaluator) set(p place) { x.direct, x.has = p, true }

// run runs operations.
func (x *evaluator) run(expr []byte) error {
	r := dwread.At(expr, 0)
	for r.Left() > 0 {
		if err := x.op(r.U8(), &r); err != nil {
			return err
		}
		if r.Bad {
			return errBadExpression
		}
	}
	return nil
}

func (x *evaluator) op(op uint8, r *dwread.Reader) error {
	switch {
	case op >= opLit0 && op <= opLit31:
		return x.push(constant(uint64(op - opLit0)))
	case op >= opReg0 && op <= opReg31:
		return x.register(uint64(op - opReg0))
	case op >= opBreg0 && op <= opBreg31:
		return x.based(uint64(op-opBreg0), r.Sleb())
	case op >= opConst1u && op <= opConsts:
		return x.push(constant(constOperand(op, r)))
	}
	switch op {
	case opNop:
		return nil
	case opAddr:
		return x.push(constant(uint64(x.f.module.Addr(symbols.Vaddr(r.Uint(8))))))
	case opAddrx, opGNUAddrIndex:
		v, ok := x.unit.IndexedAddress(r.Uleb())
		if !ok {
			return errBadExpression
		}
		return x.push(constant(uint64(x.f.module.Addr(symbols.Vaddr(v)))))
	case opConstx, opGNUConstIndex:
		v, ok := x.unit.IndexedAddress(r.Uleb())
		if !ok {
			return errBadExpression
		}
		return x.push(constant(v))
	case opRegx:
		return x.register(r.Uleb())
	case opBregx:
		n := r.Uleb()
		return x.based(n, r.Sleb())
	case opFbreg:
		off := r.Sleb()
		base, err := x.f.frameBase()
		if err != nil {
			return err
		}
		return x.push(base.add(off))
	case opCallFrameCFA:
		cfa, err := x.f.cfa()
		if err != nil {
			return err
		}
		return x.push(cfa)
	case opPlusUconst:
		return x.top(func(s sym) sym { return s.add(int64(r.Uleb())) })
	case opDeref:
		return x.derefSize(8)
	case opDerefSize:
		return x.derefSize(r.U8())
	case opNeg:
		return x.top(func(s sym) sym { return s.fold(fetch.StepNeg, 0) })
	case opNot:
		return x.top(func(s sym) sym { return s.fold(fetch.StepNot, 0) })
	case opAnd, opMinus, opMul, opOr, opPlus, opShl, opShr, opShra, opXor, opEq, opNe:
		return x.binary(op)
	case opDup, opDrop, opOver, opSwap:
		return x.shuffle(op)
	case opStackValue:
		v, err := x.pop()
		x.set(place{kind: isValue, sym: v})
		return err
	case opImplicitValue:
		x.set(place{kind: isBytes, bytes: r.Take(r.Uleb())})
		return nil
	case opPiece:
		return x.piece(int64(r.Uleb()))
	case opImplicitPtr, opGNUImplPtr:
		ref, ok := x.unit.RefAddr(x.unit.ExprOffset(r))
		x.set(place{kind: isPointer, target: ref, off: r.Sleb()})
		if !ok {
			return errBadExpression
		}
		return nil
	case opEntryValue, opGNUEntryValue:
		return x.entryValue(r.Take(r.Uleb()))
	case opGNUParmRef:
		return x.parameterRef(r.Uint(4))
	case opFormTLS, opGNUTLS:
		return x.threadLocal()
	case opRegvalType, opGNURegvalType, opConstType, opGNUConstType, opDerefType, opGNUDerefType,
		opConvert, opGNUConvert, opReinterpret, opGNUReinterpr:
		return x.typed(op, r)
	}
	return fmt.Errorf("it is computed by DWARF operation %#x, which is not compiled: %w", op, fetch.ErrNoValue)
}

func (x *evaluator) register(n uint64) error {
	p, err := registerPlace(n)
	x.set(p)
	return err
}

func (x *evaluator) based(n uint64, off int64) error {
	r, ok := dwarfRegister(n)
	if !ok {
		return errBadExpression
	}
	return x.push(register(r).add(off))
}

func (x *evaluator) top(do func(sym) sym) error {
	s, err := x.pop()
	if err != nil {
		return err
	}
	if s.typ.opaque {
		return errOpaque
	}
	return x.push(do(s).as(s.typ))
}

func (x *evaluator) derefSize(n uint8) error {
	if n == 0 || n > 8 || n&(n-1) != 0 {
		return errBadExpression
	}
	s, err := x.pop()
	if err != nil {
		return err
	}
	if s.typ.opaque {
		return errOpaque
	}
	s.typ = numType{}
	return x.push(s.load(n))
}

// piece ends the description of one piece of a value.
func (x *evaluator) piece(size int64) error {
	if size <= 0 || size > 1<<20 || len(x.pieces) >= 256 {
		return errBadExpression
	}
	p := place{kind: isNowhere}
	if x.has || len(x.stack) > 0 {
		var err error
		if p, err = x.simple(); err != nil {
			return err
		}
	}
	x.pieces = append(x.pieces, piece{x.filled, size, p})
	x.filled += size
	x.stack, x.has = nil, false
	return nil
}

// entryValue is the value of an expression when the function was entered. It is known there,
// and as long as the caller still has it.
func (x *evaluator) entryValue(expr []byte) error {
	if !x.f.atEntry() {
		if s, ok := x.f.passedBy(expr, debuginfo.Ref{}); ok {
			return x.push(s)
		}
		return x.f.goneValue()
	}
	x.f.depth++
	defer func() { x.f.depth-- }()
	if x.f.depth > maxNested {
		return errTooDeep
	}
	y := evaluator{f: x.f, unit: x.unit}
	p, err := y.location(expr)
	if err != nil {
		return err
	}
	v := p.sym
	if p.kind != isValue && p.kind != inMemory {
		return errBadExpression
	}
	return x.push(v)
}

// entryName is the name of the function around the address.
func (f *frame) entryName() string {
	low, _ := f.fn.EntryPC()
	return f.at(low)
}

// threadLocal is the address of a thread-local variable by its offset in its
// module's block. The program's own block ends at the thread pointer (ELF
// Handling For Thread-Local Storage, variant II).
func (x *evaluator) threadLocal() error {
	off, err := x.pop()
	if err != nil {
		return err
	}
	c, ok := off.isConst()
	block, has := x.f.module.File.Segment(elf.PT_TLS)
	if ok && has && c >= block.MemSize && c-uint64(block.Vaddr) < block.MemSize {
		c -= uint64(block.Vaddr) // GCC's in split debug information: where the block's image has the variable
	}
	if ok && !x.f.module.Main {
		return x.libraryThreadLocal(c)
	}
	if !ok || !has || block.Align > 1<<20 {
		return errBadExpression
	}
	align := max(block.Align, 1)
	below := block.MemSize + (-block.MemSize-uint64(block.Vaddr))&(align-1)
	return x.push(register(fetch.RegFSBase).add(int64(c) - int64(below)))
}
