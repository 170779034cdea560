package vars

import (
	"debug/dwarf"
	"fmt"
	"iter"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// goABI is Go's internal calling convention (go/src/cmd/compile/abi-internal.md).
func goABI() allocator {
	return allocator{ints: []fetch.Reg{fetch.AX, fetch.BX, fetch.CX, fetch.DI, fetch.SI, fetch.R8, fetch.R9, fetch.R10, fetch.R11}, vectors: 15}
}

// isGoFunc reports whether the function is Go's.
func (f *frame) isGoFunc() bool {
	u := f.fn.Unit()
	return u.Language().IsGo()
}

// goResult returns a Go function's n-th result, counted from 1.
func (f *frame) goResult(n int) (value, error) {
	have := 0
	for c := range f.goParameters() {
		if !f.isResult(&c) {
			continue
		}
		if have++; have == n {
			return f.loadResult(&c)
		}
	}
	if have > 0 {
		return value{}, unknown("%s has %d results", nameOf(f.fn, f.scope.site.Name()), have)
	}
	return value{}, fmt.Errorf("%s: %w", nameOf(f.fn, f.scope.site.Name()), fetch.ErrNoResult)
}

// loadResult reads one of a Go function's results, at its return.
func (f *frame) loadResult(e *debuginfo.Entry) (value, error) {
	t, err := f.typeOf(e)
	if err != nil {
		return value{}, err
	}
	p, err := f.goPlace(e, true)
	return value{f: f, t: t, p: p, atReturn: true}, err
}

// goParameters yields a Go function's parameters and results, each once. The compiler
// describes a result twice if a deferred call may change it and it has no place of its own:
// the function then creates it where it returns.
func (f *frame) goParameters() iter.Seq[debuginfo.Entry] {
	return func(yield func(debuginfo.Entry) bool) {
		var before []debuginfo.Entry
		for c := range f.fn.Children() {
			if c.Tag() != dwarf.TagFormalParameter || slices.ContainsFunc(before, func(b debuginfo.Entry) bool { return isRepeated(&b, &c) }) {
				continue
			}
			if !yield(c) {
				return
			}
			before = append(before, c)
		}
	}
}

// isRepeated reports whether two entries describe the same parameter or result of a Go
// function. Names are unique, except that several may have none.
func isRepeated(a, b *debuginfo.Entry) bool {
	name := a.Name()
	return name != "" && name != "_" && name == b.Name() && a.Tag() == b.Tag() && a.Flag(dwarf.AttrVarParam) == b.Flag(dwarf.AttrVarParam)
}

// goPlace returns where Go passes a parameter at the entry, or a result at the return. A value
// that doesn't fit into the registers is on the stack, where results follow parameters.
func (f *frame) goPlace(e *debuginfo.Entry, results bool) (place, error) {
	a := goABI()
	stack := int64(8) // counted from the stack pointer at the entry
	if results {
		var err error
		if stack, err = f.goStackResults(); err != nil {
			return place{}, err
		}
	}
	for c := range f.goParameters() {
		if f.isResult(&c) != results {
			continue
		}
		t, err := f.typeOf(&c)
		if err != nil {
			return place{}, err
		}
		before := a
		var list []piece
		ok := f.goParts(t, 0, &a, &list, 0)
		at := int64(0)
		if !ok {
			a = before
			align := max(f.goAlign(t, 0), 1)
			at = (stack + align - 1) &^ (align - 1)
			stack = at + t.size
		}
		if c.Ref() != e.Ref() && !isRepeated(&c, e) {
			continue
		}
		switch {
		case !ok && (t.size <= 0 || results && f.hidesDictionary()):
			return place{}, unknown("it is passed on the stack")
		case !ok:
			return place{kind: inMemory, sym: register(fetch.SP).add(at)}, nil
		case len(list) == 0:
			return place{kind: isBytes, bytes: make([]byte, max(t.size, 0))}, nil
		case len(list) == 1 && list[0].off == 0:
			return f.onlyPart(t, list[0].place), nil
		}
		return place{kind: inPieces, pieces: list}, nil
	}
	return place{}, errBadExpression
}

// mistaken reports whether debug information places a parameter, from the function's entry on, in
// registers in which it is not passed. Go's compiler writes that of a parameter that takes the
// value of another one by a conditional move, and later places of it are mixed up, too.
func (f *frame) mistaken(e *debuginfo.Entry) bool {
	low, ok := f.fn.EntryPC()
	list := e.Locations(dwarf.AttrLocation)
	i := slices.IndexFunc(list, func(l debuginfo.Location) bool { return !l.Everywhere() && l.Low == low })
	if !ok || i < 0 || e.Tag() != dwarf.TagFormalParameter || !f.ofFunction(e) || f.isResult(e) || f.escaped(e) || f.hidesDictionary() {
		return false
	}
	x := evaluator{f: f, unit: e.Unit()}
	p, err := x.location(list[i].Expr)
	if err != nil || p.registers() == 0 {
		return false
	}
	q, err := f.byConvention(e)
	return err == nil && p.registers()&^q.registers() != 0
}

// goStackResults returns where Go's results on the stack begin, counted from the stack pointer
// at the return. They follow the parameters there; the return address is gone by then.
func (f *frame) goStackResults() (int64, error) {
	a := goABI()
	stack := int64(0)
	for c := range f.goParameters() {
		if f.isResult(&c) {
			continue
		}
		t, err := f.typeOf(&c)
		if err != nil {
			return 0, err
		}
		before := a
		var list []piece
		if !f.goParts(t, 0, &a, &list, 0) {
			a = before
			align := max(f.goAlign(t, 0), 1)
			stack = (stack+align-1)&^(align-1) + t.size
		}
	}
	return (stack + 7) &^ 7, nil
}

// goAlign returns the alignment that Go gives a value.
func (f *frame) goAlign(t ctype, depth int) int64 {
	switch {
	case depth > maxNested:
		return 8
	case t.kind == kindStruct:
		n := int64(1)
		for _, m := range f.members(t) {
			n = max(n, f.goAlign(m.typ, depth+1))
		}
		return n
	case t.kind == kindArray:
		elem, _ := f.element(t)
		return f.goAlign(elem, depth+1)
	case t.kind == kindComplex:
		return t.size / 2
	}
	return min(max(t.size, 1), 8)
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
	case kindComplex:
		half := ctype{kind: kindFloat, size: t.size / 2}
		return f.goParts(half, off, a, list, depth+1) && f.goParts(half, off+half.size, a, list, depth+1)
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
