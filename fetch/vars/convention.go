package vars

import (
	"debug/dwarf"
	"fmt"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// class is a class of the psABI's classification (x86-64, 3.2.3).
type class uint8

const (
	noClass class = iota
	classInteger
	classSSE
	classMemory
)

// classify gives the classes of a value's eightbytes: one or two, or
// classMemory alone.
func (f *frame) classify(t ctype) []class {
	memory := []class{classMemory}
	switch t.kind {
	case kindInt, kindUint, kindChar, kindBool, kindPointer, kindReference, kindEnum:
		return []class{classInteger}
	case kindFloat:
		return []class{classSSE}
	case kindStruct, kindArray:
		if t.size <= 0 || t.size > 16 {
			return memory
		}
		out := make([]class, (t.size+7)/8)
		if !f.classifyParts(t, 0, out, 0) {
			return memory
		}
		for i := range out {
			if out[i] == noClass {
				out[i] = classSSE
			}
		}
		return out
	}
	return memory
}

// classifyParts merges the classes of a structure's members; ok is false when
// one of them forces the whole to memory.
func (f *frame) classifyParts(t ctype, off int64, out []class, depth int) bool {
	if depth > maxNested || off < 0 || off >= int64(8*len(out)) {
		return false
	}
	switch t.kind {
	case kindStruct:
		for _, m := range f.members(t) {
			if m.static.Unit() == nil && !f.classifyParts(m.typ, off+m.off, out, depth+1) {
				return false
			}
		}
		return true
	case kindArray:
		elem, stride := f.element(t)
		if stride <= 0 || t.count > 16 {
			return false
		}
		for i := range t.count {
			if !f.classifyParts(elem, off+i*stride, out, depth+1) {
				return false
			}
		}
		return true
	case kindUnknown, kindVoid, kindFunc:
		return false
	}
	if t.size > 0 && off%t.size != 0 { // packed
		return false
	}
	c := classInteger
	if t.kind == kindFloat {
		c = classSSE
	}
	if i := off / 8; out[i] != classInteger {
		out[i] = c
	}
	return true
}

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

// goABI is Go's internal convention (go/src/cmd/compile/abi-internal.md).
func goABI() allocator {
	return allocator{ints: []fetch.Reg{fetch.AX, fetch.BX, fetch.CX, fetch.DI, fetch.SI, fetch.R8, fetch.R9, fetch.R10, fetch.R11}, vectors: 15}
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
	if classes[0] == classMemory || a.nextInt+ints > len(a.ints) || a.nextXMM+xmms > a.vectors {
		p := place{kind: inMemory, sym: register(fetch.SP).add(a.stack)}
		a.stack += (max(t.size, 8) + 7) &^ 7
		return p
	}
	var list []piece
	for i, c := range classes {
		var p place
		if c == classInteger {
			p = place{kind: isValue, sym: register(a.ints[a.nextInt])}
			a.nextInt++
		} else {
			p = xmm(a.nextXMM)
			a.nextXMM++
		}
		list = append(list, piece{int64(8 * i), 8, p})
	}
	if len(list) == 1 {
		return list[0].place
	}
	return place{kind: inPieces, pieces: list}
}

// behind takes the place of an address; what is passed lies there.
func (a *allocator) behind() (place, error) {
	at, err := a.assign(ctype{kind: kindPointer, size: 8}, []class{classInteger}).value(8)
	return place{kind: inMemory, sym: at}, err
}

// isGoFunc reports a function of Go.
func (f *frame) isGoFunc() bool {
	u := f.fn.Unit()
	return u.Language().IsGo()
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
	a := systemV()
	if t, ok := f.resultType(); ok && f.classify(t)[0] == classMemory && t.kind == kindStruct {
		a.nextInt++ // the address for the result
	} else if ok && f.byReference(t) {
		a.nextInt++
	}
	return f.passed(e, func(c *debuginfo.Entry, t ctype) (place, error) {
		switch {
		case t.kind == kindUnknown || t.kind == kindVoid:
			return place{}, fmt.Errorf("how a %s is passed is not known: %w", t, fetch.ErrNoValue)
		case f.byReference(t) || f.addressed(c):
			return a.behind()
		}
		return a.assign(t, f.classify(t)), nil
	})
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
		p, err := pass(&c, t)
		if err != nil || c.Ref() == e.Ref() {
			return p, err
		}
	}
	return place{}, errBadExpression
}

// byReference reports a C++ class that can't be copied by its bytes: what is
// passed is its address (DW_CC_pass_by_reference). GCC leaves that out; its
// classes are those with a destructor of their own, or parts that have one.
func (f *frame) byReference(t ctype) bool {
	if t.kind != kindStruct {
		return false
	}
	if cc, ok := t.entry.Int(dwarf.AttrCalling); ok {
		return cc == 4
	}
	return f.language(t.entry).IsCXX() && f.destroyed(t, 0)
}

// destroyed reports a class with a destructor that its source has written, of its
// own, of a base class or of a member.
func (f *frame) destroyed(t ctype, depth int) bool {
	if t.kind != kindStruct || depth > maxNested {
		return false
	}
	for c := range t.entry.Children() {
		if c.Tag() != dwarf.TagSubprogram || !strings.HasPrefix(c.Name(), "~") || c.Flag(dwarf.AttrArtificial) {
			continue
		}
		if _, defaulted := c.Int(dwarf.AttrDefaulted); !defaulted {
			return true
		}
	}
	for _, m := range f.members(t) {
		if m.static.Unit() == nil && f.destroyed(m.typ, depth+1) {
			return true
		}
	}
	return false
}

// resultType is the type that the function returns; ok is false for void.
func (f *frame) resultType() (ctype, bool) {
	fn := &f.scopes[f.home]
	_, at, ok := fn.Chased(dwarf.AttrType)
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
		return f.goResult()
	}
	t, ok := f.resultType()
	if !ok || t.kind == kindVoid {
		return value{}, fmt.Errorf("%s: %w", nameOf(f.fn, f.scope.site.Name), fetch.ErrNoResult)
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
	case t.kind == kindUnknown:
		return v, fmt.Errorf("how a %s is returned is not known: %w", t, fetch.ErrNoValue)
	case classes[0] == classMemory || f.byReference(t):
		v.p = place{kind: inMemory, sym: register(fetch.AX)}
	default:
		a := allocator{ints: []fetch.Reg{fetch.AX, fetch.DX}, vectors: 2}
		v.p = a.assign(t, classes)
	}
	return v.unreference()
}

// goResult is a Go function's first result.
func (f *frame) goResult() (value, error) {
	for c := range f.fn.Children() {
		if c.Tag() != dwarf.TagFormalParameter || !f.isResult(&c) {
			continue
		}
		t, err := f.typeOf(&c)
		if err != nil {
			return value{}, err
		}
		p, err := f.goPlace(&c, true)
		return value{f: f, t: t, p: p, atReturn: true}, err
	}
	return value{}, fmt.Errorf("%s: %w", nameOf(f.fn, f.scope.site.Name), fetch.ErrNoResult)
}

// goPlace is where Go passes a parameter, or a result, by registers; one that
// doesn't fit them lies on the stack and is not found by this.
func (f *frame) goPlace(e *debuginfo.Entry, results bool) (place, error) {
	a := goABI()
	for c := range f.fn.Children() {
		if c.Tag() != dwarf.TagFormalParameter || f.isResult(&c) != results {
			continue
		}
		t, err := f.typeOf(&c)
		if err != nil {
			return place{}, err
		}
		before := a
		var list []piece
		ok := f.goParts(t, 0, &a, &list, 0)
		if !ok {
			a = before
		}
		if c.Ref() != e.Ref() {
			continue
		}
		switch {
		case !ok || len(list) == 0:
			return place{}, fmt.Errorf("it is passed on the stack: %w", fetch.ErrNoValue)
		case len(list) == 1:
			return list[0].place, nil
		}
		return place{kind: inPieces, pieces: list}, nil
	}
	return place{}, errBadExpression
}

// goParts gives each part of a value the next register.
func (f *frame) goParts(t ctype, off int64, a *allocator, list *[]piece, depth int) bool {
	if depth > maxNested || len(*list) > 32 {
		return false
	}
	switch t.kind {
	case kindStruct:
		for _, m := range f.members(t) {
			if !f.goParts(m.typ, off+m.off, a, list, depth+1) {
				return false
			}
		}
		return true
	case kindArray:
		elem, _ := f.element(t)
		return t.count == 0 || t.count == 1 && f.goParts(elem, off, a, list, depth+1)
	case kindFloat:
		if a.nextXMM >= a.vectors {
			return false
		}
		*list = append(*list, piece{off, t.size, xmm(a.nextXMM)})
		a.nextXMM++
		return true
	case kindUnknown, kindVoid:
		return false
	}
	if a.nextInt >= len(a.ints) {
		return false
	}
	*list = append(*list, piece{off, max(t.size, 1), place{kind: isValue, sym: register(a.ints[a.nextInt])}})
	a.nextInt++
	return true
}
