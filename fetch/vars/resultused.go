package vars

import (
	"slices"

	"kprobe/fetch"
	"kprobe/symbols"
)

// checkReturned returns an error if LLVM may have omitted a result. A function that no other
// file calls returns nothing, or only a part, if no call uses the rest, and debug information
// doesn't say so. A call that reads the registers proves that they are set.
func (f *frame) checkReturned(p place) error {
	if f.isGNU() || f.called() || !f.fn.TellsTailCalls() || f.resultRead(p) {
		return nil
	}
	return f.unusedResult()
}

func (f *frame) unusedResult() error {
	return unknown("no other file calls %s, and no known call uses its result, so the compiler may have left some of it out; probe a line of the caller after the call, or fetch registers (%%ax, %%dx)",
		nameOf(f.fn, f.scope.site.Name()))
}

// maxCallsRead limits how many calls of the function are examined.
const maxCallsRead = 256

// resultRead reports whether calls of the function read all registers that hold a result.
func (f *frame) resultRead(p place) bool {
	own := f.fn.Same()
	var returns []uint64
	for _, c := range f.fn.Unit().CallSites() {
		if c.Return != 0 && slices.Contains(own, c.Callee) {
			returns = append(returns, c.Return)
		}
	}
	return f.readBehind(returns, p)
}

// readBehind reports whether the code to which calls return reads all registers that hold a
// result.
func (f *frame) readBehind(returns []uint64, p place) bool {
	want := []place{p}
	switch p.kind {
	case inPieces:
		want = want[:0]
		for _, part := range p.pieces {
			want = append(want, part.place)
		}
	case inMemory: // the function returns the address
		want = []place{{kind: isValue, sym: register(fetch.AX)}}
	}
	for _, at := range returns[:min(len(returns), maxCallsRead)] {
		text, err := f.module.File.Text(symbols.Vaddr(at), 64)
		if err != nil {
			continue
		}
		code := prologueCode{code: text}
		code.run()
		want = slices.DeleteFunc(want, func(w place) bool { return code.readsPart(text, w) })
		if len(want) == 0 {
			return true
		}
	}
	return len(want) == 0
}

// checkRustReturned is checkReturned for Rust, whose debug information lists no calls. The
// code is searched for them. If other code has the function's address, the function returns
// what its type says.
func (f *frame) checkRustReturned(p place) error {
	low, _ := f.fn.EntryPC()
	file := f.module.File
	if f.called() || file.Leads(symbols.Vaddr(low))&(symbols.LeadTaken|symbols.LeadExported) != 0 {
		return nil
	}
	var returns []uint64
	for _, at := range file.CallsOf(symbols.Vaddr(low)) {
		returns = append(returns, uint64(at))
	}
	if f.readBehind(returns, p) {
		return nil
	}
	return f.unusedResult()
}

// readsPart is reads, also for vector and x87 registers. Code that takes a result from those
// follows the call immediately.
func (p *prologueCode) readsPart(text []byte, at place) bool {
	if src := at.sym.src; at.kind == isValue && src.Source == fetch.SourceVector {
		if src.Reg < 16 {
			return p.used[int(fromXMM0)+int(src.Reg)]
		}
		return takesX87(text)
	}
	return p.reads(at)
}

// takesX87 reports whether an instruction uses a value on the x87's stack, and doesn't load
// one.
func takesX87(code []byte) bool {
	if len(code) < 2 || code[0] < 0xd8 || code[0] > 0xdf {
		return false
	}
	op, m := code[0], code[1]
	if m >= 0xc0 {
		return op != 0xd9 || m < 0xe8 || m > 0xee // constants; fld st(i) reads what is there
	}
	switch m >> 3 & 7 {
	case 0:
		return op&1 == 0 // fld, fild
	case 5:
		return op == 0xd8 || op == 0xda || op == 0xdc || op == 0xde // fld, fild, fldcw
	}
	return op != 0xd9 || m>>3&7 < 4 // not the control word
}
