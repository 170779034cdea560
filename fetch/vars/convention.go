package vars

import (
	"debug/dwarf"
	"fmt"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// allocator hands out the places of the calling convention.
type allocator struct {
	ints    []fetch.Reg
	vectors int
	nextInt int
	nextXMM int
	stack   int64 // offset of the next word from the stack pointer at the entry
}

func systemV() allocator {
	return allocator{ints: []fetch.Reg{fetch.DI, fetch.SI, fetch.DX, fetch.CX, fetch.R8, fetch.R9}, vectors: 8, stack: 8}
}

// systemVResult hands out the registers that results are in.
func systemVResult() allocator {
	return allocator{ints: []fetch.Reg{fetch.AX, fetch.DX}, vectors: 2}
}

func xmm(n int) place {
	return place{kind: isValue, sym: sym{src: fetch.Chain{Source: fetch.SourceXMM, Reg: fetch.Reg(n)}}}
}

// assign takes the registers of a value's classes, all of them or none.
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

// behind takes the place of an address; what is passed lies there.
func (a *allocator) behind() (place, error) {
	at, err := a.assign(ctype{kind: kindPointer, size: 8}, []class{classInteger}).value(8)
	return place{kind: inMemory, sym: at}, err
}

// byConvention finds a parameter at its function's entry by the calling
// convention.
func (f *frame) byConvention(e *debuginfo.Entry) (place, error) {
	if f.isGoFunc() {
		return f.goPlace(e, false)
	}
	if f.isRustFunc() {
		return f.rustPlace(e)
	}
	if f.leavesOut() {
		return place{}, fmt.Errorf("debug information leaves a parameter of %s out, so that where the others are passed is not known: %w",
			nameOf(f.fn, f.scope.site.Name), fetch.ErrNoValue)
	}
	a := systemV()
	if t, ok := f.resultType(); ok && t.kind == kindStruct && isUnknown(f.classify(t)) {
		return place{}, fmt.Errorf("how a %s is returned, and what is passed with that, is not known: %w", t, fetch.ErrNoValue)
	} else if ok && isMemory(f.classify(t)) && t.kind == kindStruct {
		a.nextInt++ // the address for the result
	} else if ok && f.byReference(t) {
		a.nextInt++
	}
	return f.passed(e, func(c *debuginfo.Entry, t ctype) (place, error) {
		switch {
		case t.kind == kindStruct && f.addressed(c):
			return a.behind()
		case t.kind == kindUnknown || t.kind == kindVoid || f.undefined(t, 0):
			return place{}, fmt.Errorf("how a %s is passed is not known: %w", t, fetch.ErrNoValue)
		case f.byReference(t):
			return a.behind()
		case f.isWideVector(t, 0):
			return place{}, fmt.Errorf("how a %s is passed depends on what the function was compiled for: %w", t, fetch.ErrNoValue)
		}
		classes := f.classify(t)
		before := a // copied before assign changes it: Go leaves the order within one statement open
		p := a.assign(t, classes)
		if at, ok := f.inCallers(c); ok { // the compiler knows best what it aligns and what it puts there
			a, t.align = before, 0
			a.stack = at
			return a.assign(t, []class{classMemory}), nil
		}
		if p.kind == inMemory && f.mayBePacked(t) && before.stack%16 == 0 && t.align == 16 {
			return place{}, fmt.Errorf("where a %s is passed is not known, as whether it is packed is not: %w", t, fetch.ErrNoValue)
		}
		if t.kind == kindWideInt && !f.isGNU() && before.nextInt+2 > len(before.ints) {
			return place{}, fmt.Errorf("how a %s is passed behind the registers differs between versions of LLVM: %w", t, fetch.ErrNoValue)
		}
		if isUnknown(classes) {
			return place{}, fmt.Errorf("how a %s is passed is not known, as whether it is packed is not: %w", t, fetch.ErrNoValue)
		}
		if r, ok := f.entryRegister(c); ok && t.kind != kindWideInt && !p.beginsIn(r) {
			return place{}, fmt.Errorf("debug information and the calling convention differ in where %s is: %w", c.Name(), fetch.ErrNoValue)
		}
		p.promoted = f.promoted(t)
		return p, nil
	})
}

// leavesOut reports whether debug information has fewer parameters of a function than its name:
// LLVM says nothing about an unused one that is passed by its address.
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

// undefined reports whether a class is only declared, or has a part that is: nobody knows how
// it is passed.
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

// passed finds a parameter at its function's entry: pass gives each in turn its
// place.
func (f *frame) passed(e *debuginfo.Entry, pass func(c *debuginfo.Entry, t ctype) (place, error)) (place, error) {
	for c := range f.fn.Children() {
		if c.Tag() != dwarf.TagFormalParameter {
			continue
		}
		t, err := f.typeOf(&c)
		if err != nil {
			return place{}, err
		}
		t.align = f.alignment(t, 0)
		p, err := pass(&c, t)
		if err != nil || c.Ref() == e.Ref() {
			return p, err
		}
	}
	return place{}, errBadExpression
}

// resultType is the type that the function returns; ok is false for void.
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

// result is what the function returns, at its return.
func (f *frame) result() (value, error) {
	if f.isGoFunc() {
		return f.goResult(1)
	}
	if f.merged != nil {
		return value{}, fmt.Errorf("%s has %w of its result: %v", nameOf(f.fn, f.scope.site.Name), fetch.ErrNoDebugInfo, f.merged)
	}
	t, ok := f.resultType()
	if !ok || t.kind == kindVoid {
		return value{}, fmt.Errorf("%s: %w", nameOf(f.fn, f.scope.site.Name), fetch.ErrNoResult)
	}
	if f.mayReturnNothing() {
		return value{}, fmt.Errorf("%w: %s is a copy that the compiler has made for this program's calls (.isra), without a result if none of them uses it; registers (%%ax) can be had",
			fetch.ErrNoValue, nameOf(f.fn, f.scope.site.Name))
	}
	v := value{f: f, t: t, atReturn: true}
	if f.isRustFunc() {
		var err error
		if v.p, err = f.rustResult(t); err != nil {
			return v, err
		}
		return v.unreference()
	}
	classes := f.classify(t)
	switch {
	case t.kind == kindUnknown || isUnknown(classes):
		return v, fmt.Errorf("how a %s is returned is not known: %w", t, fetch.ErrNoValue)
	case t.kind == kindComplex && t.size == 32:
		v.p = place{kind: inPieces, pieces: append(x87(0, 0), x87(1, 16)...)}
	case f.holdsX87(t, 0):
		v.p = place{kind: inPieces, pieces: x87(0, 0)}
	case f.isWideVector(t, 0):
		return v, fmt.Errorf("a %s is returned in a register of which half is recorded: %w", t, fetch.ErrNoValue)
	case f.undefined(t, 0):
		return v, fmt.Errorf("how a %s is returned is not known: %w", t, fetch.ErrNoValue)
	case isMemory(classes) || f.byReference(t):
		v.p = place{kind: inMemory, sym: register(fetch.AX)}
	default:
		a := systemVResult()
		v.p = a.assign(t, classes)
	}
	if err := f.checkReturned(v.p); err != nil {
		return v, err
	}
	return v.unreference()
}

// mayReturnNothing reports whether a function is a copy by GCC's -fipa-sra, which omits results
// that no call uses. Its debug information is that of the original function.
func (f *frame) mayReturnNothing() bool {
	return f.isGNU() && strings.Contains(f.scope.site.Func.Symbol.Name, ".isra.")
}
