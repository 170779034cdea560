package vars

import (
	"debug/dwarf"
	"iter"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
	"kprobe/symbols/unwind"
)

// Places in the frame before it is made
//
// LLVM counts places from the stack pointer that the function has once its frame is made, even
// for code that runs before. Optimized code may store a variable into its frame anywhere, and
// not only before its second line.

// misplaced reports whether a place counts from a frame that isn't made yet.
func (f *frame) misplaced(p place) bool {
	if f.isGoFunc() || f.isRustFunc() || !f.inStack(p) {
		return false
	}
	return f.countsFromStack() && f.withoutFrame()
}

// byStack reports whether a parameter is passed by an address that the caller puts on the
// stack. LLVM gives the place of that address as the parameter's own. For C++, its debug
// information says which classes are passed so.
func (f *frame) byStack(e *debuginfo.Entry) bool {
	if f.isGoFunc() || !f.ofFunction(e) || f.addressed(e) || !f.unstored(e) {
		return false
	}
	t, err := f.typeOf(e)
	if err != nil {
		return false
	}
	if f.isRustFunc() {
		s, _ := f.rustShape(t, e)
		return s == shapeAddress && f.convention() != asC
	}
	t = f.whole(t)
	how, told := t.entry.Int(dwarf.AttrCalling)
	return t.kind == kindStruct && told && how == passedByReference
}

// passedByReference is DW_CC_pass_by_reference.
const passedByReference = 4

// inStack reports whether a place is at a distance from the stack pointer or the frame
// pointer.
func (f *frame) inStack(p place) bool {
	r := p.sym.src
	if p.kind != inMemory || r.Source != fetch.SourceReg || r.Reg != fetch.SP && r.Reg != fetch.BP {
		return false
	}
	return len(p.sym.steps) == 0 || len(p.sym.steps) == 1 && p.sym.steps[0].Op == fetch.StepAdd && !p.sym.steps[0].FromReg
}

// countsFromStack reports whether the function's frame base is the stack pointer.
func (f *frame) countsFromStack() bool {
	base := f.fn.Locations(dwarf.AttrFrameBase)
	return len(base) == 1 && len(base[0].Expr) == 1 && base[0].Expr[0] == opReg0+spColumn
}

// withoutFrame reports whether the function has no frame at the address: it isn't made yet, or
// is gone already.
func (f *frame) withoutFrame() bool {
	row, ok := f.module.File.Unwind().At(f.pc)
	if !ok || row.CFA.Kind != unwind.InRegister || row.CFA.Reg != spColumn {
		return false
	}
	if row.CFA.Off == 8 {
		return f.frameDepth() > 8
	}
	low, ok := f.fn.EntryPC()
	if !ok {
		return false
	}
	made, ok := f.module.File.Unwind().At(f.prologueEnd(low)) // a function's end undoes the frame step by step
	return ok && made.CFA.Kind == unwind.InRegister && made.CFA.Reg == spColumn && row.CFA.Off < made.CFA.Off
}

// frameDepth returns how far the stack pointer gets below the canonical frame address, over
// all lines of the function.
func (f *frame) frameDepth() int64 {
	t := f.fn.Unit().Lines()
	if t == nil {
		return 0
	}
	deepest, seen := int64(0), 0
	for _, r := range f.fn.Ranges() {
		for _, row := range t.Rows {
			if row.End || row.Addr < r.Low || row.Addr >= r.High {
				continue
			}
			if rule, ok := f.module.File.Unwind().At(row.Addr); ok && rule.CFA.Kind == unwind.InRegister && rule.CFA.Reg == spColumn {
				deepest = max(deepest, rule.CFA.Off)
			}
			if seen++; seen == maxRowsOfFrame {
				return deepest
			}
		}
	}
	return deepest
}

// maxRowsOfFrame limits how many lines of a function are examined for its frame.
const maxRowsOfFrame = 256

// notStored reports whether the code from the entry to here, which must run straight, has not
// stored the parameter at its place in the frame. Places that the caller may have filled in
// don't count.
func (f *frame) notStored(e *debuginfo.Entry) bool {
	low, ok := f.fn.EntryPC()
	t, err := f.typeOf(e)
	if !ok || err != nil || f.pc <= low || f.pc-low > 256 || t.size <= 0 || t.size > 16 || f.covers(nil, t, 0, 0) {
		return false
	}
	text, err := f.module.File.Text(symbols.Vaddr(low), int(f.pc-low))
	if err != nil || uint64(len(text)) != f.pc-low {
		return false
	}
	code := prologueCode{code: text}
	code.run()
	s, address, ok := f.frameStore(e, &code, f.pc)
	if !ok || len(code.code) > 0 || code.wroteSomewhere {
		return false
	}
	size := t.size
	if address {
		size = 8
	}
	for at := int64(0); at < size; at += 8 {
		if !code.touched(s.base, s.disp+at, min(size-at, 8)) {
			from, known := code.fromEntry(s.base, s.disp+at)
			return known && from < 8
		}
	}
	return false
}

// partsOf splits an expression into those of its pieces, as long as each piece is a register
// or a place in the frame. Otherwise it yields the whole expression.
func partsOf(expr []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for r := dwread.At(expr, 0); r.Left() > 0 && !r.Bad; {
			from := r.At
			switch op := r.U8(); {
			case op >= opReg0 && op <= opReg31:
			case op == opFbreg, op >= opBreg0 && op <= opBreg31:
				r.Sleb()
			case op == opPiece:
				r.Uleb() // the size of a piece that is nowhere
				continue
			default:
				yield(expr[from:])
				return
			}
			part := expr[from:r.At]
			if r.Left() > 0 && r.U8() != opPiece {
				yield(expr[from:])
				return
			}
			if r.Left() > 0 {
				r.Uleb()
			}
			if !yield(part) {
				return
			}
		}
	}
}

// inKeptRegister reports whether an expression names a register that calls preserve. No
// parameter is passed in one, so the prologue has to fill it (C's register variables).
func inKeptRegister(expr []byte) bool {
	return len(expr) == 1 && expr[0] >= opReg0 && expr[0] < opReg0+16 && callersRegisters>>(expr[0]-opReg0)&1 != 0
}

// acrossCalls reports whether a variable is said to be in one register all the time, in a
// block with calls that don't preserve the register. GCC says so where it has lost the
// variable.
func (f *frame) acrossCalls(e *debuginfo.Entry, expr []byte) bool {
	overwritten := false
	if !f.isGNU() {
		return false
	}
	for part := range partsOf(expr) {
		if len(part) == 1 && part[0] >= opReg0 && part[0] <= opReg31 && !inKeptRegister(part) {
			overwritten = true
		}
	}
	if !overwritten {
		return false
	}
	for _, s := range f.scopes {
		for c := range s.Children() {
			if c.Ref() == e.Ref() {
				return slices.ContainsFunc(s.Ranges(), f.hasCall)
			}
		}
	}
	return false
}

// hasCall reports whether code has a call that returns to it.
func (f *frame) hasCall(r debuginfo.Range) bool {
	if r.High < r.Low || r.High-r.Low > maxTouching {
		return true
	}
	code, err := f.module.File.Text(symbols.Vaddr(r.Low), int(r.High-r.Low))
	if err != nil {
		return false
	}
	for len(code) > 0 {
		i, err := insn.Decode(code)
		if err != nil || i.Len == 0 {
			return false
		}
		if code = code[i.Len:]; i.Is(insn.Call) && len(code) > 0 {
			return true
		}
	}
	return false
}

// redZone is how many bytes below the stack pointer functions may use (System V ABI, 3.2.2).
const redZone = 128

// outOfFrame reports whether a place, or a piece of it, is outside of the function's frame at
// this address. It may be so far below the stack pointer that anything may be there. Or it
// counts from the frame pointer while that register belongs to the caller. Debug information
// gives places for whole functions, but a function's end gives up the frame before it returns.
func (f *frame) outOfFrame(p place) bool {
	if p.kind == inPieces {
		return slices.ContainsFunc(p.pieces, func(part piece) bool { return f.outOfFrame(part.place) })
	}
	r := p.sym.src
	if r.Source != fetch.SourceReg || p.kind != inMemory && !p.sym.loads() {
		return false
	}
	if f.inStack(p) && f.countsFromStack() && !f.atEntry() && f.withoutFrame() {
		return true
	}
	switch r.Reg {
	case fetch.BP:
		base := f.fn.Locations(dwarf.AttrFrameBase)
		return len(base) == 1 && len(base[0].Expr) == 1 && base[0].Expr[0] == opReg0+6 && f.countsFromSP()
	case fetch.SP:
		below := int64(redZone)
		if f.isGoFunc() {
			below = 0
		}
		return p.sym.distance() < -below
	}
	return false
}

// countsFromSP reports whether the canonical frame address counts from the stack pointer here.
func (f *frame) countsFromSP() bool {
	row, ok := f.module.File.Unwind().At(f.pc)
	return ok && row.CFA.Kind == unwind.InRegister && row.CFA.Reg == spColumn
}

// distance returns how far from a register the first memory access of a value lies.
func (s sym) distance() (off int64) {
	for _, t := range s.steps {
		switch {
		case t.Op == fetch.StepAdd && !t.FromReg:
			off += int64(t.Imm)
		case t.Op == fetch.StepLoad:
			return off + int64(t.Imm)
		default:
			return off
		}
	}
	return off
}

// loads reports whether a value is read from memory.
func (s sym) loads() bool {
	return slices.ContainsFunc(s.steps, func(t fetch.Step) bool { return t.Op == fetch.StepLoad })
}
