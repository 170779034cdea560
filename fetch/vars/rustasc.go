package vars

import (
	"debug/dwarf"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
)

// Rust's functions that C calls
//
// Debug information doesn't tell extern "C" functions from others. If the two conventions pass
// a parameter in different places, the code that stores it decides. If that decides nothing, a
// function with a plain name, which C can call, has only those values that both conventions
// pass in the same place.

// calledAs is the convention by which a Rust function is called.
type calledAs uint8

const (
	asRust calledAs = iota
	asC
	asEither
)

// bothWays hands out the places of parameters by Rust's convention and by C's.
type bothWays struct {
	f       *frame
	rust, c allocator
}

// startBoth begins before the first parameter. unknown is the result's type if it isn't known
// how Rust returns it.
func (f *frame) startBoth() (b bothWays, unknown *ctype) {
	b = bothWays{f, systemV(), systemV()}
	t, ok := f.resultType()
	if !ok {
		return b, nil
	}
	switch s, _ := f.rustShape(t, nil); s {
	case shapeUnknown:
		return b, &t
	case shapeAddress:
		b.rust.nextInt++
	}
	if f.inMemoryByC(t) {
		b.c.nextInt++
	}
	return b, nil
}

func (f *frame) inMemoryByC(t ctype) bool {
	return (t.kind == kindStruct || t.kind == kindArray) && t.size > 0 && isMemory(f.classify(t))
}

// next takes the places of the next parameter.
func (b *bothWays) next(e *debuginfo.Entry, t ctype) (s shape, rust, c place, err error) {
	s, list := b.f.rustShape(t, e)
	switch s {
	case shapeNumbers:
		rust = b.rust.numbers(list)
	case shapeAddress:
		rust, err = b.rust.behind()
	case shapeNothing:
		return s, rust, rust, nil
	}
	if classes := b.f.classify(t); !isUnknown(classes) {
		c = b.c.assign(t, classes)
	}
	return s, rust, c, err
}

// convention returns the convention by which the function is called, as far as it is known.
func (f *frame) convention() calledAs {
	unknown := asRust
	if f.fn.LinkageName() == "" {
		unknown = asEither
	}
	b, odd := f.startBoth()
	if odd != nil {
		return unknown
	}
	for e := range f.fn.Children() {
		if e.Tag() != dwarf.TagFormalParameter {
			continue
		}
		t, err := f.typeOf(&e)
		if err != nil {
			break
		}
		t.align = f.alignment(t, 0)
		s, rust, c, err := b.next(&e, t)
		if err != nil || s == shapeUnknown {
			break
		}
		if s == shapeNothing || !f.unstored(&e) || samePlace(rust, c, t.size) {
			continue
		}
		at, ok := f.stored(&e)
		if s == shapeAddress && !f.addressed(&e) {
			// If the address is on the stack, LLVM gives its place as the value's own.
			if at, ok = f.leftInCallers(&e, t); ok && onStack(rust, at) {
				if !samePlace(c, at, t.size) {
					return asRust
				}
				continue
			}
		}
		switch {
		case ok && samePlace(rust, at, t.size):
			return asRust
		case ok && samePlace(c, at, t.size):
			return asC
		}
	}
	return unknown
}

// leftInCallers returns the place of a parameter that is still where the caller has put it.
func (f *frame) leftInCallers(e *debuginfo.Entry, t ctype) (place, bool) {
	code, end, known := f.prologue()
	s, address, ok := f.frameStore(e, &code, end)
	if !known || !ok || address || t.size <= 0 {
		return place{}, false
	}
	from, ok := code.untouched(s.base, s.disp, 8)
	return from.place(), ok
}

// onStack reports whether p is the value whose address lies at place at.
func onStack(p, at place) bool {
	if p.kind != inMemory || len(p.sym.steps) == 0 {
		return false
	}
	s := p.sym
	last := s.steps[len(s.steps)-1]
	s.steps = s.steps[:len(s.steps)-1]
	return last.Op == fetch.StepLoad && samePlace(place{kind: inMemory, sym: s.add(int64(last.Imm))}, at, 8)
}

// unlikeC returns the error for a value whose convention isn't known.
func unlikeC(does string, t ctype) error {
	return unknown(`Rust %s a %s differently from C, and debug information doesn't say whether the function is extern "C"`, does, t)
}

// resultAs returns where a result is by the function's convention, given its place by Rust's and
// the place that it has if it is in memory.
func (f *frame) resultAs(t ctype, rust, memory place) (place, error) {
	as := f.convention()
	if as == asRust {
		return rust, nil
	}
	c := memory
	if !f.inMemoryByC(t) {
		a := systemVResult()
		c = a.assign(t, f.classify(t))
	}
	switch known := !isUnknown(f.classify(t)); {
	case known && samePlace(rust, c, t.size):
		return rust, nil
	case known && as == asC:
		return c, nil
	}
	return place{}, unlikeC("returns", t)
}

// samePlace reports whether two places agree, as far as p says where the value is.
func samePlace(p, q place, size int64) bool {
	list := p.pieces
	if p.kind != inPieces {
		list = []piece{{0, size, p}}
	}
	for _, x := range list {
		a, err := x.place.part(0, x.size)
		b, err2 := q.part(x.off, x.size)
		if err != nil || err2 != nil || a.kind != b.kind || a.sym.root() != b.sym.root() || !slices.Equal(a.sym.steps, b.sym.steps) {
			return false
		}
	}
	return true
}
