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
// Rust's own convention is not C's, and is no promise. What rustc does on x86-64
// (rustc_ty_utils, abi.rs, fn_abi_adjust_for_abi; rustc_abi, layout.rs), as compilers
// from oldestRust to newestRust do it: a value that is one number or two is passed as
// these numbers are, each in a register of its own, repr(C) or not; another of up to
// 8 bytes as one whole number; what is larger by its address. Whether a value is two
// numbers is known by where they are, and of an enum by its variants: all of them have
// the same one number beside the tag, or one has two, of which one is the tag, and the
// others nothing. What is not known so has no value at a function's entry or return.

// The minor versions of rustc 1 whose convention is known; from pairsOfKinds on numbers
// of different kinds, as an integer and a pointer, in different variants are the same
// number, as they were not up to singleKinds.
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

// rustShape tells how Rust passes a parameter, or a result where e is nil.
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

// callers reports a place that the function's caller has filled in.
func (f *frame) callers(p place) bool {
	row, ok := f.module.File.Unwind().At(f.pc)
	if !ok || row.CFA.Kind != unwind.InRegister || !f.inStack(p) || len(p.sym.steps) != 1 {
		return false
	}
	r, ok := dwarfRegister(row.CFA.Reg)
	return ok && r == p.sym.src.Reg && int64(p.sym.steps[0].Imm) >= row.CFA.Off
}

// rustVersion is the minor version of the rustc 1 that made the function's unit; 0 is
// another compiler.
func (f *frame) rustVersion() int {
	_, version, ok := strings.Cut(f.fn.Unit().Producer(), "rustc version 1.")
	version, _, _ = strings.Cut(version, ".")
	n, err := strconv.Atoi(version)
	if !ok || err != nil {
		return 0
	}
	return n
}

// addressed reports a parameter of which the frame, or at the entry a register,
// has the address: its location loads it, or counts from that register.
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

// isParameterRegister reports a DWARF register that the psABI passes parameters
// in: an address there is the caller's.
func isParameterRegister(n uint8) bool {
	switch n {
	case 5, 4, 1, 2, 8, 9: // di, si, dx, cx, r8, r9
		return true
	}
	return false
}

// spColumn is the stack pointer's DWARF number.
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

// isRustFunc reports a function of Rust.
func (f *frame) isRustFunc() bool {
	u := f.fn.Unit()
	return u.Language().IsRust()
}

// rustPlace finds a parameter of a Rust function at its entry.
func (f *frame) rustPlace(e *debuginfo.Entry) (place, error) {
	unknown := func(what string, t ctype) (place, error) {
		return place{}, fmt.Errorf("%w at the function's entry: how Rust %s a %s is not known%s", fetch.ErrNoValue, what, t, f.later())
	}
	as := f.convention()
	b, odd := f.startBoth()
	if odd != nil {
		return unknown("returns", *odd)
	}
	return f.passed(e, func(c *debuginfo.Entry, t ctype) (place, error) {
		s, byRust, byC, err := b.next(c, t)
		switch {
		case s == shapeUnknown:
			return unknown("passes", t)
		case err != nil || c.Ref() != e.Ref():
			return byRust, err
		case s == shapeNothing:
			return place{}, fmt.Errorf("a %s has no bytes: %w", t, fetch.ErrNoValue)
		case as == asRust || samePlace(byRust, byC, t.size):
			return byRust, nil
		case as == asC && !isUnknown(f.classify(t)):
			return byC, nil
		}
		return place{}, unlikeC("passes", t)
	})
}

// later says where a function is past its prologue.
func (f *frame) later() string {
	low, ok := f.fn.EntryPC()
	if end := f.prologueEnd(low); ok && end > low {
		return "; available from " + f.at(end) + " on"
	}
	return ""
}

// rustResult is where a Rust function's result is when it returns.
func (f *frame) rustResult(t ctype) (place, error) {
	s, list := f.rustShape(t, nil)
	var p place
	switch s {
	case shapeNumbers:
		a := systemVResult()
		p = a.numbers(list)
	case shapeAddress:
		p = place{kind: inMemory, sym: register(fetch.AX)}
	case shapeNothing:
		return place{}, fmt.Errorf("%s: %w", nameOf(f.fn, f.scope.site.Name), fetch.ErrNoResult)
	default:
		return place{}, fmt.Errorf("how Rust returns a %s is not known: %w", t, fetch.ErrNoValue)
	}
	if !f.unoptimized() {
		if s == shapeAddress { // which LLVM doesn't return, other than C's convention
			return place{}, fmt.Errorf("%w: no other file calls %s, and a function in the same file may return a %s without its address; probe a line of the caller behind the call",
				fetch.ErrNoValue, nameOf(f.fn, f.scope.site.Name), t)
		}
		if err := f.checkRustReturned(p); err != nil {
			return place{}, err
		}
	}
	return f.resultAs(t, p)
}

// unoptimized reports a function that returns as the convention says: other files
// may call it, or it is not optimized. Its parameters are then stored in its
// frame, nothing is inlined, and no variable changes its place.
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
	return stored > 0 && !f.optimized(f.fn, 0)
}

// optimized reports a function, or block, with something inlined, or variables
// that change their places.
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

// maxDepthOfBlocks bounds blocks within blocks.
const maxDepthOfBlocks = 64
