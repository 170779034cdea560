package vars

import (
	"debug/dwarf"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/unwind"
)

// Places in the frame before it is made
//
// LLVM counts places from the stack pointer as it is when the frame is made, for
// code too that runs before that. What optimized code keeps in its frame it may store
// there anywhere, and not only up to its second line.

// misplaced reports a parameter whose place counts from a frame that isn't made.
func (f *frame) misplaced(p place) bool {
	if f.isGoFunc() || f.isRustFunc() || !f.inStack(p) {
		return false
	}
	return f.countsFromStack() && f.withoutFrame()
}

// byStack reports a parameter that is passed by its address, which is among what the
// caller has put on the stack: LLVM gives that place for the parameter's own. Of C++
// it says itself that a class is passed so.
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

// inStack reports a place at a distance from the stack pointer or the frame's.
func (f *frame) inStack(p place) bool {
	r := p.sym.src
	if p.kind != inMemory || r.Source != fetch.SourceReg || r.Reg != fetch.SP && r.Reg != fetch.BP {
		return false
	}
	return len(p.sym.steps) == 0 || len(p.sym.steps) == 1 && p.sym.steps[0].Op == fetch.StepAdd && !p.sym.steps[0].FromReg
}

// countsFromStack reports a function whose frame base is the stack pointer.
func (f *frame) countsFromStack() bool {
	base := f.fn.Locations(dwarf.AttrFrameBase)
	return len(base) == 1 && len(base[0].Expr) == 1 && base[0].Expr[0] == opReg0+spColumn
}

// withoutFrame reports an address at which a function has not made its frame yet, or
// has none any more.
func (f *frame) withoutFrame() bool {
	row, ok := f.module.File.Unwind().At(f.pc)
	return ok && row.CFA.Kind == unwind.InRegister && row.CFA.Reg == spColumn && row.CFA.Off == 8 && f.frameDepth() > 8
}

// frameDepth is how far the stack pointer gets below the canonical frame address, at
// the lines of a function.
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

// maxRowsOfFrame bounds the lines of a function that are asked for its frame.
const maxRowsOfFrame = 256

// notStored reports a parameter whose place in the frame the code from the entry to
// here, which runs straight, hasn't written to. The caller may have.
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
