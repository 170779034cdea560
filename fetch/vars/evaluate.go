package vars

import (
	"debug/elf"
	"errors"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
)

var (
	errBadExpression = errors.New("its location is damaged in the debug information")
	errTooDeep       = errors.New("its location refers to itself in the debug information")
)

// maxStack limits the stack of an expression.
const maxStack = 64

// evaluator turns a location expression into a place.
type evaluator struct {
	f      *frame
	unit   *debuginfo.Unit
	stack  []sym
	direct place // set by an operation that names a place itself
	has    bool
	pieces []piece
	filled int64
	odd    int64 // bits behind filled that pieces take of one more byte
}

// location evaluates a whole location description.
func (x *evaluator) location(expr []byte) (place, error) {
	if err := x.run(expr); err != nil {
		return place{}, err
	}
	if x.odd > 0 {
		x.pieces = append(x.pieces, piece{x.filled, 1, place{kind: isNowhere}})
	}
	if x.pieces != nil {
		return place{kind: inPieces, pieces: x.pieces}, nil
	}
	return x.simple()
}

// simple returns the place that the operations so far describe.
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

// run evaluates operations.
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
		return x.push(x.f.address(r.Uint(8)))
	case opAddrx, opGNUAddrIndex:
		v, ok := x.unit.IndexedAddress(r.Uleb())
		if !ok {
			return errBadExpression
		}
		return x.push(x.f.address(v))
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
	case opBitPiece:
		bits := int64(r.Uleb())
		return x.bitPiece(bits, int64(r.Uleb()))
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
	return unknown("its location uses DWARF operation %#x, which kprobe does not support", op)
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
	if size <= 0 || size > 1<<20 || len(x.pieces) >= mostPieces {
		return errBadExpression
	}
	if x.odd > 0 {
		return x.bitPiece(8*size, 0)
	}
	p := place{kind: isNowhere}
	if x.has || len(x.stack) > 0 {
		var err error
		if p, err = x.simple(); err != nil {
			return err
		}
	}
	x.add(size, p)
	return nil
}

// mostPieces limits the pieces of a location.
const mostPieces = 256

func (x *evaluator) add(size int64, p place) {
	x.pieces = append(x.pieces, piece{x.filled, size, p})
	x.filled += size
	x.stack, x.has = nil, false
}

// bitPiece ends the description of a piece of some bits, which begin at the bit off of the place
// before. A byte that the piece has only a part of is nowhere.
func (x *evaluator) bitPiece(bits, off int64) error {
	if bits <= 0 || bits > 8<<20 || off < 0 || off > 8<<20 || len(x.pieces) >= mostPieces {
		return errBadExpression
	}
	p := place{kind: isNowhere}
	if x.has || len(x.stack) > 0 {
		at, err := x.simple()
		if err != nil {
			return err
		}
		if x.odd == 0 && bits%8 == 0 {
			p = at.bits(bits, off)
		}
	}
	bits += x.odd
	if x.odd = bits % 8; bits >= 8 {
		x.add(bits/8, p)
	}
	x.stack, x.has = nil, false
	return nil
}

// bits returns the place of whole bytes that begin at a bit of the value at a place.
func (p place) bits(bits, off int64) place {
	if off%8 == 0 {
		if q, err := p.part(off/8, bits/8); err == nil {
			return q
		}
		return place{kind: isNowhere}
	}
	if v, err := p.value(8); err == nil && off+bits <= 64 && (p.kind == isValue && !p.isXMM() || p.kind == inMemory) {
		return place{kind: isValue, sym: v.step(fetch.Step{Op: fetch.StepShr, Imm: uint64(off)})}
	}
	return place{kind: isNowhere}
}

// entryValue returns the value that an expression had at the function's entry. It is known at
// the entry, and later as long as the caller still has it.
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

// entryName returns the name of the function around the address.
func (f *frame) entryName() string {
	low, _ := f.fn.EntryPC()
	return f.at(low)
}

// threadLocal computes the address of a thread-local variable from its offset in its module's
// block. The program's own block ends at the thread pointer (ELF Handling For Thread-Local
// Storage, variant II).
func (x *evaluator) threadLocal() error {
	off, err := x.pop()
	if err != nil {
		return err
	}
	c, ok := off.isConst()
	m := x.f.module
	block, has := m.File.Segment(elf.PT_TLS)
	if ok && has && c >= block.MemSize && c-uint64(block.Vaddr) < block.MemSize {
		c -= uint64(block.Vaddr) // in split debug information of GCC, the offset is the variable's address in the block's image
	}
	if ok && !m.Main {
		if in, at, preempted := x.f.scope.space.PreemptedTLS(m, c); preempted {
			m, c = in, at
			block, has = m.File.Segment(elf.PT_TLS)
		}
	}
	if ok && !m.Main {
		return x.libraryThreadLocal(m, c)
	}
	if !ok || !has || block.Align > 1<<20 {
		return errBadExpression
	}
	align := max(block.Align, 1)
	below := block.MemSize + (-block.MemSize-uint64(block.Vaddr))&(align-1)
	return x.push(register(fetch.RegFSBase).add(int64(c) - int64(below)))
}
