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
	"kprobe/symbols/unwind"
)

// maxNested bounds expressions that lead to expressions: a frame base, an
// implicit pointer's target.
const maxNested = 8

// hidesDictionary reports an instance of a generic Go function: it is passed a
// dictionary, of which debug information doesn't tell.
func (f *frame) hidesDictionary() bool { return strings.Contains(f.fn.Name(), "go.shape.") }

// placeOf finds where a variable is at the address.
func (f *frame) placeOf(e *debuginfo.Entry) (place, error) {
	if f.atEntry() && f.ofFunction(e) {
		list := e.Locations(dwarf.AttrLocation)
		switch {
		case f.isResult(e):
			return place{}, fmt.Errorf("%w at the function's entry: it is a result", fetch.ErrNoValue)
		case f.unstored(e) && !f.isGoFunc():
			if p, ok := f.stored(e); ok && !f.byStack(e) {
				return p, nil
			}
			if f.keepsConvention() {
				return f.byConvention(e)
			}
			return place{}, fmt.Errorf("%w at the function's entry: its frame is not made yet, and no other file calls it, so that how it is passed is not known%s",
				fetch.ErrNoValue, f.later())
		case f.isGoFunc() && f.hidesDictionary() && (f.unstored(e) || len(list) == 0):
			return place{}, fmt.Errorf("%w at the function's entry: it is passed behind a dictionary%s", fetch.ErrNoValue, f.later())
		case f.unstored(e), len(list) == 0 && f.isGoFunc():
			// Unoptimized code: its place in the frame is not filled in yet.
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
		return place{}, fmt.Errorf("%w at this address: the place that debug information has is not filled in", fetch.ErrNoValue)
	}
	if f.isGoFunc() && f.atEntry() && f.ofFunction(e) && !f.hidesDictionary() && (p.kind == inPieces || errors.Is(err, fetch.ErrNoValue)) {
		if q, cerr := f.byConvention(e); cerr == nil {
			return q, nil // all of it, whatever the function uses
		}
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
		if q, cerr := f.byConvention(e); cerr == nil && (f.isGNU() || f.passedIn(e, p, q)) {
			return q, nil
		}
	}
	return p, err
}

// swapped reports a parameter at the entry of which the location can't be trusted:
// GCC exchanges the registers of an __int128 behind the entry, and gives the place
// after that for all of the function.
func (f *frame) swapped(e *debuginfo.Entry) bool {
	if !f.atEntry() || !f.ofFunction(e) || f.isGoFunc() || f.isRustFunc() || !f.keepsConvention() {
		return false
	}
	t, err := f.typeOf(e)
	return err == nil && t.kind == kindWideInt
}

// passedIn reports whether each register of q is passed what the convention says: some
// of it is in the place's pieces, or code at the entry reads it. LLVM has callers in the
// same file pass anything in a register that a function doesn't use, also where other
// files may call it.
func (f *frame) passedIn(e *debuginfo.Entry, p, q place) bool {
	list := q.pieces
	switch t, err := f.typeOf(e); {
	case q.kind == isValue:
		list = []piece{{0, 8, q}}
	case q.kind == inMemory && (f.isRustFunc() || err == nil && t.kind != kindStruct):
		// Its address, or what is on the stack, is one argument: passed if any of it is used.
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

// tellsOf reports whether some of a register's part of a value is in the place's pieces.
func (p place) tellsOf(reg piece) bool {
	return reg.place.kind == isValue && slices.ContainsFunc(p.pieces, func(have piece) bool {
		return have.place.kind == isValue && have.off < reg.off+reg.size && reg.off < have.off+have.size
	})
}

// passedAnyway reports whether the place is the entry of a function that other
// files may call: its parameters are passed by the convention. Of others compilers
// leave some out.
func (f *frame) passedAnyway() bool {
	_, at, ok := f.fn.Chased(dwarf.AttrExternal)
	return ok && at.Flag(dwarf.AttrExternal) && f.atEntry() && f.called()
}

// called reports whether the function has a name that other files can call.
func (f *frame) called() bool {
	sym := &f.scope.site.Func.Symbol
	return sym.Binding != symbols.Local && !strings.Contains(sym.Name, ".")
}

// unstored reports a parameter or local variable of unoptimized code: its place
// in the frame, or its own register, is filled in by the prologue, or later.
func (f *frame) unstored(e *debuginfo.Entry) bool {
	list := e.Locations(dwarf.AttrLocation)
	return len(list) == 1 && list[0].Everywhere() && (f.inFrame(list[0].Expr) || inKeptRegister(list[0].Expr))
}

// inKeptRegister reports a register that calls preserve: no parameter is passed in one,
// so that the prologue has to fill it (C's register variables).
func inKeptRegister(expr []byte) bool {
	return len(expr) == 1 && expr[0] >= opReg0 && expr[0] < opReg0+16 && callersRegisters>>(expr[0]-opReg0)&1 != 0
}

// keepsConvention reports whether the function's parameters are passed by the
// convention. GCC calls copies of functions (.isra) otherwise, without a result too. LLVM
// leaves parameters out of functions that no other file calls, without a word.
func (f *frame) keepsConvention() bool {
	return f.called() || f.isGNU() && !f.mayReturnNothing() || !f.fn.TellsTailCalls() && f.unoptimized()
}

// isGNU reports a function that GCC compiled.
func (f *frame) isGNU() bool {
	u := f.fn.Unit()
	return strings.HasPrefix(u.Producer(), "GNU ")
}

// located finds the place that the entry's location names.
func (f *frame) located(e *debuginfo.Entry) (place, error) {
	f.depth++
	defer func() { f.depth-- }()
	if f.depth > maxNested {
		return place{}, errTooDeep
	}
	if _, ok := e.Val(dwarf.AttrLocation); !ok {
		if p, ok := constantOf(e); ok {
			return p, nil
		}
		if r, ok := e.RefTo(dwarf.AttrAbstractOrigin); ok { // of a static of an inlined function
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
		return place{}, f.optimizedOut(nil)
	}
	expr, list, ok := e.LocationAt(dwarf.AttrLocation, f.pc)
	if !ok {
		return place{}, f.optimizedOut(list)
	}
	if off, ok := f.besideAligned(e); ok {
		cfa, err := f.cfa()
		return place{kind: inMemory, sym: cfa.add(off)}, err
	}
	x := evaluator{f: f, unit: e.Unit()}
	p, err := x.location(expr)
	if err == nil && f.language(*e).IsGo() && f.overwritten(p, list) {
		return place{}, fmt.Errorf("%w at this address: the program has copied memory with its register", fetch.ErrNoValue)
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
	d, ok := f.data.FindVariable(e.QualifiedName(), nil)
	return d, ok && d.Ref() != e.Ref()
}

// constantOf is a variable's constant value.
func constantOf(e *debuginfo.Entry) (place, bool) {
	v, ok := e.Val(dwarf.AttrConstValue)
	if !ok {
		return place{}, false
	}
	if v.IsBlock() || v.B != nil {
		return place{kind: isBytes, bytes: v.B}, true
	}
	// The forms of fixed size have no sign: compilers write what is negative as
	// sdata, and the type's size cuts the rest.
	n, ok := v.Int()
	return place{kind: isValue, sym: constant(uint64(n))}, ok
}

// inFrame reports an expression that names a place in the function's own frame,
// which is filled in when the prologue is over. What lies at or above the
// canonical frame address the caller has filled in, and other expressions tell
// of registers as they are.
func (f *frame) inFrame(expr []byte) bool {
	if len(expr) == 0 {
		return false
	}
	switch expr[0] {
	case opFbreg, opCallFrameCFA:
	case opBreg0 + 3, opBreg0 + 6, opBreg0 + 7: // rbx, rbp, rsp: LLVM's, in a frame that is aligned
		return true
	default:
		return false
	}
	r := dwread.At(expr[1:], 0)
	off := int64(0)
	if expr[0] == opFbreg {
		base := f.fn.Locations(dwarf.AttrFrameBase)
		if len(base) != 1 || len(base[0].Expr) != 1 || base[0].Expr[0] != opCallFrameCFA {
			return true // counted from a register that the prologue changes
		}
		off = r.Sleb()
	} else if r.Left() > 0 && r.U8() == opConsts {
		off = r.Sleb()
	}
	return off < 0
}

// inPrologue says that a parameter of unoptimized code has not been stored yet,
// or that there is no frame yet for a local variable.
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
			return fmt.Errorf("%w at this address: it is not stored into its frame yet", fetch.ErrNoValue)
		}
		return nil
	}
	return fmt.Errorf("%w at this address: the function is not past its prologue; available from %s on", fetch.ErrNoValue, f.at(end))
}

// prologueEnd is the first address of a function at which the line table has a
// second line, or says that the prologue ends.
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

// cfa is the canonical frame address.
func (f *frame) cfa() (sym, error) {
	row, ok := f.module.File.Unwind().At(f.pc)
	if !ok {
		return sym{}, fmt.Errorf("no unwinding information for %s: %w", f.at(f.pc), fetch.ErrNoValue)
	}
	switch row.CFA.Kind {
	case unwind.InRegister:
		r, ok := dwarfRegister(row.CFA.Reg)
		if !ok {
			break
		}
		return register(r).add(row.CFA.Off), nil
	case unwind.IsExpr:
		f.depth++
		defer func() { f.depth-- }()
		if f.depth > maxNested {
			return sym{}, errTooDeep
		}
		x := evaluator{f: f, unit: f.fn.Unit()}
		if err := x.run(row.CFA.Expr); err != nil {
			return sym{}, err
		}
		return x.pop()
	}
	return sym{}, fmt.Errorf("the frame's address is %w", fetch.ErrNoValue)
}

// frameBase is what DW_OP_fbreg counts from.
func (f *frame) frameBase() (sym, error) {
	f.depth++
	defer func() { f.depth-- }()
	if f.depth > maxNested {
		return sym{}, errTooDeep
	}
	expr, list, ok := f.fn.LocationAt(dwarf.AttrFrameBase, f.pc)
	if !ok {
		return sym{}, f.optimizedOut(list)
	}
	x := evaluator{f: f, unit: f.fn.Unit()}
	p, err := x.location(expr)
	if err != nil {
		return sym{}, err
	}
	if p.kind != inMemory && p.kind != isValue {
		return sym{}, fmt.Errorf("the frame base is %w", fetch.ErrNoValue)
	}
	return p.sym, nil // a register's contents, or an address computed
}

// dwarfRegister is a general register by its DWARF number (psABI x86-64,
// figure 3.36).
func dwarfRegister(n uint64) (fetch.Reg, bool) {
	order := [...]fetch.Reg{fetch.AX, fetch.DX, fetch.CX, fetch.BX, fetch.SI, fetch.DI, fetch.BP, fetch.SP,
		fetch.R8, fetch.R9, fetch.R10, fetch.R11, fetch.R12, fetch.R13, fetch.R14, fetch.R15, fetch.RegIP}
	switch {
	case n < uint64(len(order)):
		return order[n], true
	case n == 58:
		return fetch.RegFSBase, true
	case n == 59:
		return fetch.RegGSBase, true
	}
	return 0, false
}

// registerPlace is a register as the place of a value.
func registerPlace(n uint64) (place, error) {
	if r, ok := dwarfRegister(n); ok {
		return place{kind: isValue, sym: register(r)}, nil
	}
	if n >= 17 && n <= 32 {
		return place{kind: isValue, sym: sym{src: fetch.Chain{Source: fetch.SourceXMM, Reg: fetch.Reg(n - 17)}}}, nil
	}
	return place{}, fmt.Errorf("it is in DWARF register %d, which is not recorded: %w", n, fetch.ErrNoValue)
}
