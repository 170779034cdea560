package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"reflect"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// allocator hands out places by the calling convention.
type allocator struct {
	ints    []fetch.Reg
	vectors int
	nextInt int
	nextXMM int
	stack   int64 // offset of the next free word from the stack pointer at the entry
}

func systemV() allocator {
	return allocator{ints: []fetch.Reg{fetch.DI, fetch.SI, fetch.DX, fetch.CX, fetch.R8, fetch.R9}, vectors: 8, stack: 8}
}

// systemVResult hands out the registers that hold results.
func systemVResult() allocator {
	return allocator{ints: []fetch.Reg{fetch.AX, fetch.DX}, vectors: 2}
}

func xmm(n int) place {
	return place{kind: isValue, sym: sym{src: fetch.Chain{Source: fetch.SourceXMM, Reg: fetch.Reg(n)}}}
}

// assign takes registers for all classes of a value, or for none of them.
func (a *allocator) assign(t ctype, classes []class) place {
	ints, xmms := 0, 0
	for _, c := range classes {
		switch c {
		case classInteger:
			ints++
		case classSSE:
			xmms++
		}
	}
	if ints+xmms == 0 && !isMemory(classes) { // an empty class
		return place{kind: isBytes, bytes: make([]byte, max(t.size, 0))}
	}
	if isMemory(classes) || a.nextInt+ints > len(a.ints) || a.nextXMM+xmms > a.vectors {
		if t.align > 8 {
			a.stack += (8 - a.stack) & (t.align - 1) // the first word is at 8, and aligned as the largest is
		}
		p := place{kind: inMemory, sym: register(fetch.SP).add(a.stack)}
		a.stack += (max(t.size, 8) + 7) &^ 7
		return p
	}
	var list []piece
	for i, c := range classes {
		var p place
		switch c {
		case classInteger:
			p = place{kind: isValue, sym: register(a.ints[a.nextInt])}
			a.nextInt++
		case classSSE:
			p = xmm(a.nextXMM)
			a.nextXMM++
		case classSSEUp:
			p = vectorHalf(a.nextXMM - 1)
		default: // padding
			continue
		}
		list = append(list, piece{int64(8 * i), 8, p})
	}
	if len(list) == 1 && list[0].off == 0 && len(classes) == 1 {
		return list[0].place
	}
	return place{kind: inPieces, pieces: list}
}

// behind takes the place for an address. The value itself lies at that address.
func (a *allocator) behind() (place, error) {
	at, err := a.assign(ctype{kind: kindPointer, size: 8}, []class{classInteger}).value(8)
	return place{kind: inMemory, sym: at}, err
}

// byConvention finds a parameter at its function's entry by the calling convention.
func (f *frame) byConvention(e *debuginfo.Entry) (place, error) {
	if f.isGoFunc() {
		return f.goPlace(e, false)
	}
	if f.isRustFunc() {
		return f.rustPlace(e)
	}
	if f.leavesOut() {
		return place{}, unknown("debug information omits a parameter of %s, so it is not known where the others are passed", nameOf(f.fn, f.scope.site.Name()))
	}
	hidden, known := f.returnsByAddress()
	p, err := f.passedAs(e, hidden)
	if known {
		return p, err
	}
	if q, qerr := f.passedAs(e, !hidden); err != nil || qerr != nil || !reflect.DeepEqual(p, q) {
		t, _ := f.resultType()
		return place{}, unknown("it is not known how a %s is returned, nor what is passed for that", t)
	}
	return p, nil
}

// passedAs finds a parameter at its function's entry. hidden says that callers pass an address
// for the result before the parameters.
func (f *frame) passedAs(e *debuginfo.Entry, hidden bool) (place, error) {
	a := systemV()
	if hidden {
		a.nextInt++
	}
	return f.passed(e, f.passing(&a))
}

// errDiffers says that debug information places a parameter elsewhere than the calling
// convention does.
var errDiffers = errors.New("debug information and the calling convention differ")

// passing returns a function that gives each parameter its place, in order.
func (f *frame) passing(a *allocator) pass {
	return func(c *debuginfo.Entry, t ctype) (place, error) {
		switch {
		case t.kind == kindStruct && f.addressed(c):
			return a.behind()
		case t.kind == kindUnknown || t.kind == kindVoid || f.undefined(t, 0):
			return place{}, unknown("it is not known how a %s is passed", t)
		case f.byReference(t):
			return a.behind()
		case f.isWideVector(t, 0):
			return place{}, unknown("how a %s is passed depends on what the function was compiled for", t)
		}
		classes := f.classify(t)
		before := *a // copied before assign changes it: Go leaves the order within one statement open
		p := a.assign(t, classes)
		if at, ok := f.inCallers(c); ok { // debug information knows better what the compiler aligns and puts there
			*a, t.align = before, 0
			a.stack = at
			return a.assign(t, []class{classMemory}), nil
		}
		if p.kind == inMemory && f.mayBePacked(t) && before.stack%16 == 0 && t.align == 16 {
			return place{}, unknown("it is not known whether a %s is packed, and so not where it is passed", t)
		}
		if t.kind == kindWideInt && !f.isGNU() && before.nextInt+2 > len(before.ints) {
			return place{}, unknown("versions of LLVM differ in how they pass a %s once registers are used up", t)
		}
		if p.kind != inMemory { // where it is with _Atomic members, too
			if err := f.checkAtomic(c, t, classes); err != nil {
				return place{}, err
			}
		}
		if isUnknown(classes) {
			return place{}, unknown("it is not known whether a %s is packed, and so not how it is passed", t)
		}
		if r, ok := f.entryRegister(c); ok && t.kind != kindWideInt && !p.beginsIn(r) {
			return place{}, unknown("%w about the place of %s", errDiffers, c.Name())
		}
		p.promoted = f.promoted(t)
		return p, nil
	}
}

// leavesOut reports whether debug information has fewer parameters than the function's mangled
// name. LLVM leaves out an unused parameter that is passed by its address.
func (f *frame) leavesOut() bool {
	if f.isGNU() || !f.fn.Unit().Language().IsCXX() {
		return false
	}
	n, ok := symbols.ParameterCount(f.fn.LinkageName())
	if !ok {
		return false
	}
	for c := range f.fn.Children() {
		if c.Tag() != dwarf.TagFormalParameter {
			continue
		}
		if _, at, ok := c.Chased(dwarf.AttrArtificial); !ok || !at.Flag(dwarf.AttrArtificial) {
			n--
		}
	}
	return n != 0
}

// undefined reports whether a class, or a part of it, is only declared, so that it isn't known
// how it is passed.
func (f *frame) undefined(t ctype, depth int) bool {
	if t.kind != kindStruct || f.tooDeep(depth) {
		return false
	}
	t = f.whole(t)
	if t.entry.Flag(dwarf.AttrDeclaration) {
		return true
	}
	if t.size > 16 {
		return false // its own functions tell the rest
	}
	for _, m := range f.members(t) {
		if m.static.Unit() == nil && f.undefined(m.typ, depth+1) {
			return true
		}
	}
	return false
}

// passed finds a parameter at its function's entry.
func (f *frame) passed(e *debuginfo.Entry, each pass) (place, error) {
	for c := range f.fn.Children() {
		if c.Tag() != dwarf.TagFormalParameter {
			continue
		}
		t, err := f.typeOf(&c)
		if err != nil {
			return place{}, err
		}
		t.align = f.alignment(t, 0)
		p, err := each(&c, t)
		if err != nil || c.Ref() == e.Ref() {
			return p, err
		}
	}
	return place{}, errBadExpression
}

// resultType returns the type of the function's result. ok is false for void.
func (f *frame) resultType() (ctype, bool) {
	_, at, ok := f.fn.Chased(dwarf.AttrType)
	if !ok {
		return ctype{}, false
	}
	r, ok := at.RefTo(dwarf.AttrType)
	if !ok {
		return ctype{}, false
	}
	return f.resolve(r), true
}

// result returns the function's result, at its return.
func (f *frame) result() (value, error) {
	if f.isGoFunc() {
		return f.goResult(1)
	}
	if f.merged != nil {
		return value{}, fmt.Errorf("%s has %w of its result: %v", nameOf(f.fn, f.scope.site.Name()), fetch.ErrNoDebugInfo, f.merged)
	}
	t, ok := f.resultType()
	if !ok || t.kind == kindVoid {
		return value{}, fmt.Errorf("%s: %w", nameOf(f.fn, f.scope.site.Name()), fetch.ErrNoResult)
	}
	if f.mayReturnNothing() {
		return value{}, f.unknownCopy()
	}
	v := value{f: f, t: t, atReturn: true}
	if f.isRustFunc() {
		var err error
		if v.p, err = f.rustResult(t); err != nil {
			return v, err
		}
		return v.given().unreference()
	}
	classes := f.classify(t)
	hidden, known := f.returnsByAddress()
	if f.mayHideAtomic(t, classes) {
		switch {
		case !known:
			return v, f.unknownAtomic(t, "returned")
		case hidden:
			classes = []class{classMemory}
		}
	}
	switch {
	case t.kind == kindUnknown || isUnknown(classes) && !(hidden && known):
		return v, unknown("it is not known how a %s is returned", t)
	case t.kind == kindComplex && t.size == 32:
		v.p = place{kind: inPieces, pieces: append(x87(0, 0), x87(1, 16)...)}
	case f.holdsX87(t, 0):
		v.p = place{kind: inPieces, pieces: x87(0, 0)}
	case f.isWideVector(t, 0):
		return v, unknown("a %s is returned in a register of which only half is recorded", t)
	case f.undefined(t, 0):
		return v, unknown("it is not known how a %s is returned", t)
	case isMemory(classes) || isUnknown(classes) || f.byReference(t):
		v.p = place{kind: inMemory, sym: register(fetch.AX)}
	default:
		a := systemVResult()
		v.p = a.assign(t, classes)
	}
	if err := f.checkReturned(v.p); err != nil {
		given, ok := f.givenC()
		if v.p.kind != inMemory || !ok {
			return v, err
		}
		v.p = given
	}
	return v.given().unreference()
}

// returnsByAddress reports whether callers pass an address for the result. If debug
// information doesn't describe the result's type well enough, the register of a parameter
// decides.
func (f *frame) returnsByAddress() (hidden, known bool) {
	t, ok := f.resultType()
	if !ok {
		return false, true
	}
	classes := f.classify(t)
	if t.kind != kindStruct || !isUnknown(classes) && !f.mayHideAtomic(t, classes) || f.byReference(t) {
		return isMemory(classes) && t.kind == kindStruct || f.byReference(t), true
	}
	without, with := systemV(), systemV()
	with.nextInt++
	hidden, known = f.shown(f.passing(&without), f.passing(&with))
	if !known && !isUnknown(classes) {
		return f.takesAddress()
	}
	return hidden, known
}
