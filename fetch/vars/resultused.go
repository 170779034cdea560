package vars

import (
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols"
)

// checkReturned is an error for a result that LLVM may have left out: of a function that
// no other file calls it returns nothing, or not all, where no call uses it, and debug
// information does not say so. A call that reads the registers shows that they are set.
func (f *frame) checkReturned(p place) error {
	if f.isGNU() || f.called() || !f.fn.TellsTailCalls() || f.resultRead(p) {
		return nil
	}
	return f.unusedResult()
}

func (f *frame) unusedResult() error {
	return fmt.Errorf("%w: no other file calls %s, and no call is known that uses its result, so that the compiler may have left some of it out; probe a line of the caller behind the call, or fetch registers (%%ax, %%dx)",
		fetch.ErrNoValue, nameOf(f.fn, f.scope.site.Name))
}

// maxCallsRead bounds the calls of a function that are looked at.
const maxCallsRead = 256

// resultRead reports whether calls of the function read all the registers that a result
// is in.
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

// readBehind reports whether code that calls return to reads all the registers that a
// result is in.
func (f *frame) readBehind(returns []uint64, p place) bool {
	want := []place{p}
	switch p.kind {
	case inPieces:
		want = want[:0]
		for _, part := range p.pieces {
			want = append(want, part.place)
		}
	case inMemory: // at the address that is returned
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

// checkRustReturned is checkReturned for Rust, whose debug information has no calls: they
// are found in the code. What other code has the address of returns what it says.
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

// readsPart is reads, also for vectors and for the x87's registers: what takes a result
// from these follows the call at once.
func (p *prologueCode) readsPart(text []byte, at place) bool {
	if src := at.sym.src; at.kind == isValue && src.Source == fetch.SourceVector {
		if src.Reg < 16 {
			return p.used[int(fromXMM0)+int(src.Reg)]
		}
		return takesX87(text)
	}
	return p.reads(at)
}

// takesX87 reports an instruction that uses what the x87's stack has, and doesn't load it.
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
