package vars

import (
	"debug/dwarf"
	"fmt"
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
	"kprobe/symbols/unwind"
)

// How Rust passes values
//
// Rust's own convention differs from C's and may change. The compilers from oldestRust to
// newestRust do the following on x86-64 (rustc_ty_utils, abi.rs, fn_abi_adjust_for_abi;
// rustc_abi, layout.rs):
//
//   - A value that consists of one or two numbers is passed as these numbers, each in a
//     register of its own, repr(C) or not.
//   - Another value of up to 8 bytes is passed as one whole number.
//   - A larger value is passed by its address.
//
// Whether a value consists of two numbers follows from their places. An enum does in two cases:
// all variants have the same one number beside the tag; or one variant has two numbers, of which
// one is the tag, and the others have nothing. If this isn't known, the value can't be read at
// the function's entry or return.

// The minor versions of rustc 1 whose convention is known. From pairsOfKinds on, numbers of
// different kinds in different variants, such as an integer and a pointer, count as the same
// number. Up to singleKinds they didn't.
const (
	oldestRust   = 63
	singleKinds  = 77
	pairsOfKinds = 80
	newestRust   = 97
)

// shape is how a value is passed.
type shape uint8

const (
	shapeUnknown shape = iota
	shapeNothing       // it has no bytes
	shapeNumbers
	shapeAddress
)

// rustShape returns how Rust passes a parameter; if e is nil, how it returns a result.
func (f *frame) rustShape(t ctype, e *debuginfo.Entry) (shape, []leaf) {
	switch {
	case t.size == 0:
		return shapeNothing, nil
	case e != nil && f.addressed(e):
		return shapeAddress, nil
	case e == nil && t.kind == kindWideInt:
		return shapeNumbers, []leaf{{0, 8, false}, {8, 8, false}}
	}
	var l leafList
	is := f.leaves(t, 0, &l, 0)
	if is == ofNumbers && len(l.list) == 1 && l.list[0].off == 0 && l.list[0].size == t.size {
		return shapeNumbers, l.list
	}
	minor := f.rustVersion()
	if is == ofUnknown || minor < oldestRust || minor > newestRust {
		if e == nil && t.size > 16 && is != ofUnknown {
			return shapeAddress, nil
		}
		return shapeUnknown, nil
	}
	if is == ofNumbers && len(l.list) == 2 {
		pair := inOrder(l.list)
		switch {
		case !f.isPair(t, pair):
		case !l.mixed || minor >= pairsOfKinds:
			return shapeNumbers, pair
		case minor > singleKinds:
			return shapeUnknown, nil
		}
	}
	if t.size <= 8 {
		return shapeNumbers, []leaf{{0, t.size, false}}
	}
	return shapeAddress, nil
}

// callers reports whether the function's caller has filled in a place.
func (f *frame) callers(p place) bool {
	row, ok := f.module.File.Unwind().At(f.pc)
	if !ok || row.CFA.Kind != unwind.InRegister || !f.inStack(p) || len(p.sym.steps) != 1 {
		return false
	}
	r, ok := dwarfRegister(row.CFA.Reg)
	return ok && r == p.sym.src.Reg && int64(p.sym.steps[0].Imm) >= row.CFA.Off
}

// rustVersion returns the minor version of the rustc 1 that compiled the function's unit. It
// is 0 for other compilers.
func (f *frame) rustVersion() int {
	_, version, ok := strings.Cut(f.fn.Unit().Producer(), "rustc version 1.")
	version, _, _ = strings.Cut(version, ".")
	n, err := strconv.Atoi(version)
	if !ok || err != nil {
		return 0
	}
	return n
}

// addressed reports whether the frame, or a register at the entry, has a parameter's address:
// the location loads that address, or counts from that register.
func (f *frame) addressed(e *debuginfo.Entry) bool {
	for _, l := range e.Locations(dwarf.AttrLocation) {
		r := dwread.At(l.Expr, 0)
		if r.Left() == 0 {
			continue
		}
		op := r.U8()
		if op != opFbreg && (op < opBreg0 || op > opBreg31) {
			continue
		}
		off := r.Sleb()
		switch {
		case r.Bad:
		case r.Left() > 0:
			if r.U8() == opDeref && r.Left() == 0 {
				return true
			}
		case op != opFbreg && op != opBreg0+spColumn && off == 0 && (l.Low == f.pc || isParameterRegister(op-opBreg0)):
			return true
		}
	}
	return false
}

// isParameterRegister reports whether the psABI passes parameters in a DWARF register. An
// address in such a register comes from the caller.
func isParameterRegister(n uint8) bool {
	switch n {
	case 5, 4, 1, 2, 8, 9: // di, si, dx, cx, r8, r9
		return true
	}
	return false
}

// spColumn is the DWARF number of the stack pointer.
const spColumn = 7

// numbers takes a place for each number of a value.
func (a *allocator) numbers(list []leaf) place {
	var out []piece
	for _, l := range list {
		c := classInteger
		if l.float {
			c = classSSE
		}
		p := a.assign(ctype{kind: kindPointer, size: 8}, []class{c})
		out = append(out, piece{l.off, l.size, p})
	}
	if len(out) == 1 {
		return out[0].place
	}
	return place{kind: inPieces, pieces: out}
}

// isRustFunc reports whether the function is Rust's.
func (f *frame) isRustFunc() bool {
	u := f.fn.Unit()
	return u.Language().IsRust()
}

// rustPlace finds a parameter of a Rust function at its entry.
func (f *frame) rustPlace(e *debuginfo.Entry) (place, error) {
	unclear := func(what string, t ctype) (place, error) {
		return place{}, unknown("it is not known how Rust %s a %s%s", what, t, f.later())
	}
	as := f.convention()
	b, odd := f.startBoth()
	if odd != nil {
		return unclear("returns", *odd)
	}
	return f.passed(e, func(c *debuginfo.Entry, t ctype) (place, error) {
		s, byRust, byC, err := b.next(c, t)
		switch {
		case s == shapeUnknown:
			return unclear("passes", t)
		case err != nil || c.Ref() != e.Ref():
			return byRust, err
		case s == shapeNothing:
			return place{}, unknown("a %s has no bytes", t)
		case as == asRust || samePlace(byRust, byC, t.size):
			return byRust, nil
		case as == asC && !isUnknown(f.classify(t)):
			return byC, nil
		}
		return place{}, unlikeC("passes", t)
	})
}

// later says where the function's prologue is over.
func (f *frame) later() string {
	low, ok := f.fn.EntryPC()
	if end := f.prologueEnd(low); ok && end > low {
		return "; available from " + f.at(end) + " on"
	}
	return ""
}

// passingRust is passing for Rust's convention.
func (f *frame) passingRust(a *allocator) pass {
	return func(c *debuginfo.Entry, t ctype) (place, error) {
		switch s, list := f.rustShape(t, c); s {
		case shapeNumbers:
			return a.numbers(list), nil
		case shapeAddress:
			return a.behind()
		case shapeUnknown:
			return place{}, unknown("it is not known how Rust passes a %s", t)
		}
		return place{}, nil
	}
}

// rustResult returns where a Rust function's result is when it returns.
func (f *frame) rustResult(t ctype) (place, error) {
	s, list := f.rustShape(t, nil)
	memory, err := f.rustMemory(t)
	p := memory
	switch s {
	case shapeNumbers:
		a := systemVResult()
		p = a.numbers(list)
		if !f.unoptimized() {
			if err := f.checkRustReturned(p); err != nil {
				return place{}, err
			}
		}
	case shapeAddress:
		if err != nil {
			return place{}, err
		}
	case shapeNothing:
		return place{}, fmt.Errorf("%s: %w", nameOf(f.fn, f.scope.site.Name()), fetch.ErrNoResult)
	default:
		return place{}, unknown("it is not known how Rust returns a %s", t)
	}
	as, inC := f.resultAs(t, p, memory)
	if inC == nil && as.kind == inMemory && err != nil {
		return place{}, err
	}
	return as, inC
}

// rustMemory returns the place of a result in memory.
func (f *frame) rustMemory(t ctype) (place, error) {
	returned := place{kind: inMemory, sym: register(fetch.AX)}
	if f.called() {
		return returned, nil
	}
	if p, ok := f.givenRust(); ok {
		return p, nil
	}
	if f.unoptimized() {
		return returned, nil
	}
	return place{kind: inMemory}, unknown("no other file calls %s, and a function in the same file may return a %s without its address; probe a line of the caller after the call",
		nameOf(f.fn, f.scope.site.Name()), t)
}

// unoptimized reports whether the function returns as the convention says: other files may
// call it, or it isn't optimized. In unoptimized code, parameters are stored in the frame,
// nothing is inlined, no variable changes its place, and few of the whole unit do.
func (f *frame) unoptimized() bool {
	if f.called() {
		return true
	}
	stored := 0
	for c := range f.fn.Children() {
		if c.Tag() != dwarf.TagFormalParameter {
			continue
		}
		if !f.unstored(&c) && !f.addressed(&c) {
			return false
		}
		stored++
	}
	u := f.fn.Unit()
	return stored > 0 && !f.optimized(f.fn, 0) && !u.MovesVariables()
}

// optimized reports whether a function, or a block, has something inlined, or variables that
// change their places.
func (f *frame) optimized(e debuginfo.Entry, depth int) bool {
	if depth > maxDepthOfBlocks {
		return true
	}
	for c := range e.Children() {
		switch c.Tag() {
		case dwarf.TagInlinedSubroutine:
			return true
		case dwarf.TagLexDwarfBlock:
			if f.optimized(c, depth+1) {
				return true
			}
		case dwarf.TagVariable:
			if list := c.Locations(dwarf.AttrLocation); len(list) != 1 || !list[0].Everywhere() {
				return true
			}
		}
	}
	return false
}

// maxDepthOfBlocks limits nested blocks.
const maxDepthOfBlocks = 64
