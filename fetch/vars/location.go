package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
)

// maxNested limits expressions that refer to other expressions, such as a frame base or an
// implicit pointer's target.
const maxNested = 8

// hidesDictionary reports whether the function is an instance of a generic Go function. It is
// passed a dictionary that debug information doesn't mention.
func (f *frame) hidesDictionary() bool { return strings.Contains(f.fn.Name(), "go.shape.") }

// placeOf finds where a variable is at the address.
func (f *frame) placeOf(e *debuginfo.Entry) (place, error) {
	if f.atEntry() && f.ofFunction(e) {
		list := e.Locations(dwarf.AttrLocation)
		switch {
		case f.isResult(e):
			return place{}, fmt.Errorf("%w at the function's entry: it is a result; use a return probe (r)", fetch.ErrNoValue)
		case f.unstored(e) && !f.isGoFunc():
			if p, ok := f.stored(e); ok && !f.byStack(e) {
				return p, nil
			}
			if f.keepsConvention() {
				return f.byConvention(e)
			}
			return place{}, unknown("it is not known how the parameter is passed: the frame does not exist yet at the function's entry, and no other file calls the function%s", f.later())
		case f.isGoFunc() && f.hidesDictionary() && (f.unstored(e) || len(list) == 0):
			return place{}, unknown("it is not known where it is at the function's entry: it is passed after the dictionary of a generic function%s", f.later())
		case f.unstored(e), len(list) == 0 && f.isGoFunc():
			// In unoptimized code, the parameter's place in the frame is not filled in yet.
			return f.byConvention(e)
		}
	} else if p, ok := f.captured(e); ok {
		return p, nil
	} else if err := f.inPrologue(e); err != nil {
		return place{}, err
	}
	p, err := f.located(e)
	if err == nil && f.byStack(e) && f.callers(p) {
		if t, terr := f.typeOf(e); terr == nil && f.isRustFunc() && f.convention() == asEither {
			return place{}, unlikeC("passes", t)
		}
		p.sym = p.sym.load(8)
	}
	if err == nil && f.ofFunction(e) && f.misplaced(p) {
		if f.atEntry() && f.keepsConvention() {
			return f.byConvention(e)
		}
		return place{}, fmt.Errorf("%w at this address: its place is not filled in", fetch.ErrNoValue)
	}
	if err == nil && f.isGoFunc() && f.mistaken(e) {
		if f.atEntry() {
			return f.byConvention(e)
		}
		return place{}, fmt.Errorf("%w at this address: debug information places it where another parameter is", fetch.ErrNoValue)
	}
	if f.isGoFunc() && f.atEntry() && f.ofFunction(e) && !f.hidesDictionary() && (p.kind == inPieces || errors.Is(err, fetch.ErrNoValue)) {
		if q, cerr := f.byConvention(e); cerr == nil {
			return q, nil // the whole parameter, also parts that the function doesn't use
		}
	}
	if err == nil && f.outOfFrame(p) {
		return place{}, fmt.Errorf("%w at this address: the function's frame does not exist yet, or no longer", fetch.ErrNoValue)
	}
	if err == nil && p.kind == inPieces && f.swapped(e) {
		return f.byConvention(e)
	}
	if err == nil && f.ofFunction(e) {
		p, err = f.doubled(e, p)
	}
	if err == nil {
		p, err = f.respaced(e, p)
	}
	lost := err == nil && f.incomplete(e, p) || errors.Is(err, fetch.ErrNoValue)
	if lost && f.atEntry() && f.ofFunction(e) {
		if q, ok := f.addressStored(e); ok {
			return q, nil
		}
	}
	if lost && f.ofFunction(e) && f.passedAnyway() {
		q, cerr := f.byConvention(e)
		if cerr == nil && (f.isGNU() || f.passedIn(e, p, q)) {
			return q, nil
		}
		return p.unless(err, cerr)
	}
	return p, err
}

// swapped reports whether a parameter's location can't be trusted at the entry. GCC exchanges
// the registers of an __int128 after the entry, but gives its later place for the whole
// function.
func (f *frame) swapped(e *debuginfo.Entry) bool {
	if !f.atEntry() || !f.ofFunction(e) || f.isGoFunc() || f.isRustFunc() || !f.keepsConvention() {
		return false
	}
	t, err := f.typeOf(e)
	return err == nil && t.kind == kindWideInt
}

// passedIn reports whether callers pass a value in each register of q, as the convention says.
// It is so if the place's pieces mention the register, or code at the entry reads it. If a
// function doesn't use a register, LLVM lets callers in the same file pass anything in it,
// even if other files may call the function.
func (f *frame) passedIn(e *debuginfo.Entry, p, q place) bool {
	list := q.pieces
	switch t, err := f.typeOf(e); {
	case q.kind == isValue:
		list = []piece{{0, 8, q}}
	case q.kind == inMemory && (f.isRustFunc() || err == nil && t.kind != kindStruct):
		// An address, or a value on the stack, is one argument. It is passed if any part of it is used.
		return len(e.Locations(dwarf.AttrLocation)) > 0
	}
	code, _, _ := f.prologue()
	for _, reg := range list {
		if !p.tellsOf(reg) && !code.reads(reg.place) {
			return false
		}
	}
	return true
}

// tellsOf reports whether the place's pieces have at least some of the part of a value that is
// in reg.
func (p place) tellsOf(reg piece) bool {
	return reg.place.kind == isValue && slices.ContainsFunc(p.pieces, func(have piece) bool {
		return have.place.kind == isValue && have.off < reg.off+reg.size && reg.off < have.off+have.size
	})
}

// passedAnyway reports whether the place is the entry of a function whose parameters are all passed by
// the convention, because other files may call it. For other functions, compilers leave some
// out. Where GCC does, it makes a copy of the function.
func (f *frame) passedAnyway() bool {
	if f.isGNU() && f.atEntry() && !f.mayBeCopy() {
		return true
	}
	_, at, ok := f.fn.Chased(dwarf.AttrExternal)
	return ok && at.Flag(dwarf.AttrExternal) && f.atEntry() && f.called()
}

// called reports whether the function has a name that other files can call.
func (f *frame) called() bool {
	sym := &f.scope.site.Func.Symbol
	return sym.Binding != symbols.Local && !strings.Contains(sym.Name, ".")
}

// unstored reports whether a variable belongs to unoptimized code that has not filled in its
// place. The prologue, or later code, fills in the place in the frame or the variable's own
// register.
func (f *frame) unstored(e *debuginfo.Entry) bool {
	list := e.Locations(dwarf.AttrLocation)
	if len(list) != 1 || !list[0].Everywhere() {
		return false
	}
	for part := range partsOf(list[0].Expr) {
		if f.inFrame(part) || inKeptRegister(part) {
			return true
		}
	}
	return false
}

// keepsConvention reports whether the function's parameters are passed by the convention.
// GCC's copies of functions (.isra) have a convention of their own, and may have no result.
// LLVM omits parameters of functions that no other file calls, without saying so.
func (f *frame) keepsConvention() bool {
	return f.called() || f.isGNU() && !f.mayReturnNothing() || !f.fn.TellsTailCalls() && f.unoptimized()
}

// isGNU reports whether GCC compiled the function.
func (f *frame) isGNU() bool {
	u := f.fn.Unit()
	return strings.HasPrefix(u.Producer(), "GNU ")
}

// located returns the place that the entry's location describes.
func (f *frame) located(e *debuginfo.Entry) (place, error) {
	f.depth++
	defer func() { f.depth-- }()
	if f.depth > maxNested {
		return place{}, errTooDeep
	}
	if _, ok := e.Val(dwarf.AttrLocation); !ok {
		if p, ok := constantOf(e); ok && (!e.Flag(dwarf.AttrDeclaration) || isConst(e)) {
			return p, nil
		}
		if r, ok := e.RefTo(dwarf.AttrAbstractOrigin); ok { // the entry is a static variable of an inlined function
			if o, ok := r.Entry(); ok {
				if _, ok := o.Val(dwarf.AttrLocation); ok {
					return f.located(&o)
				}
				if p, ok := constantOf(&o); ok {
					return p, nil
				}
			}
		}
		if d, ok := f.definition(e); ok {
			return f.located(&d)
		}
		if p, ok := f.linked(e); ok {
			return p, nil
		}
		return place{}, f.undefinedVariable(e)
	}
	expr, list, ok := e.LocationAt(dwarf.AttrLocation, f.pc)
	if !ok {
		return place{}, f.optimizedOut(list)
	}
	if len(list) == 1 && list[0].Everywhere() && f.acrossCalls(e, expr) {
		return place{}, unknown("it is not known where it is: debug information places it in a register that calls here overwrite")
	}
	if off, ok := f.besideAligned(e); ok {
		cfa, err := f.cfa()
		return place{kind: inMemory, sym: cfa.add(off)}, err
	}
	x := evaluator{f: f, unit: e.Unit()}
	p, err := x.location(expr)
	if err == nil && f.language(*e).IsGo() && f.overwritten(p, list) {
		return place{}, fmt.Errorf("%w at this address: the program has used its register to copy memory", fetch.ErrNoValue)
	}
	if err == nil && f.language(*e).IsGo() && f.afterCall(p, list) {
		return place{}, fmt.Errorf("%w at this address: the program has used its register for a call", fetch.ErrNoValue)
	}
	if err == nil {
		p = f.written(e, p, list)
	}
	return p, err
}

// definition finds the variable that a declaration (extern) declares.
func (f *frame) definition(e *debuginfo.Entry) (debuginfo.Entry, bool) {
	if !e.Flag(dwarf.AttrDeclaration) {
		return debuginfo.Entry{}, false
	}
	d, ok := f.data.FindDefinition(e)
	return d, ok && d.Ref() != e.Ref()
}

// constantOf returns a variable's constant value.
func constantOf(e *debuginfo.Entry) (place, bool) {
	v, ok := e.Val(dwarf.AttrConstValue)
	if !ok {
		return place{}, false
	}
	if v.IsBlock() || v.B != nil {
		return place{kind: isBytes, bytes: v.B}, true
	}
	// Forms of a fixed size have no sign. Compilers write negative values as sdata, and
	// the type's size cuts off the rest.
	n, ok := v.Int()
	return place{kind: isValue, sym: constant(uint64(n))}, ok
}

// inFrame reports whether an expression names a place in the function's own frame, which has
// its value only after the prologue. The caller has filled in places at or above the canonical
// frame address. Other expressions describe registers as they are.
func (f *frame) inFrame(expr []byte) bool {
	if len(expr) == 0 {
		return false
	}
	switch expr[0] {
	case opFbreg, opCallFrameCFA:
	case opBreg0 + 3, opBreg0 + 6, opBreg0 + 7: // rbx, rbp, rsp: LLVM's registers for an aligned frame
		return true
	default:
		return false
	}
	r := dwread.At(expr[1:], 0)
	off := int64(0)
	if expr[0] == opFbreg {
		base := f.fn.Locations(dwarf.AttrFrameBase)
		if len(base) != 1 || len(base[0].Expr) != 1 || base[0].Expr[0] != opCallFrameCFA {
			return true // the place counts from a register that the prologue changes
		}
		off = r.Sleb()
	} else if r.Left() > 0 && r.U8() == opConsts {
		off = r.Sleb()
	}
	return off < 0
}

// inPrologue returns the error for a parameter of unoptimized code that has not been stored
// yet, or for a local variable whose frame doesn't exist yet.
func (f *frame) inPrologue(e *debuginfo.Entry) error {
	if f.home != 0 {
		return nil
	}
	if !f.unstored(e) {
		return nil
	}
	low, ok := f.fn.EntryPC()
	end := f.prologueEnd(low)
	if !ok || f.pc < low || f.pc >= end {
		if f.ofFunction(e) && f.notStored(e) {
			return fmt.Errorf("%w at this address: it is not stored into the frame yet", fetch.ErrNoValue)
		}
		return nil
	}
	return fmt.Errorf("%w at this address: the function is not past its prologue; available from %s on", fetch.ErrNoValue, f.at(end))
}

// prologueEnd returns the first address in a function at which the line table has a second
// line, or at which it marks the end of the prologue.
func (f *frame) prologueEnd(low uint64) uint64 {
	u := f.fn.Unit()
	t := u.Lines()
	if t == nil {
		return low
	}
	for _, r := range f.fn.Ranges() {
		if r.Low != low {
			continue
		}
		for pc := low + 1; pc < r.High && pc < low+256; pc++ {
			if row, ok := t.At(pc); ok && row.Addr == pc && row.Stmt {
				return pc
			}
		}
	}
	return low
}
