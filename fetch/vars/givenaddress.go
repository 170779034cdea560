package vars

import (
	"cmp"

	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Results at an address that only the caller has
//
// A function that returns in memory is given the address in RDI, and returns the address in RAX.
// LLVM doesn't have it returned by a function that no other file calls and that it has optimized: the
// attribute (sret) is lost when the convention becomes fastcc. The address is then what RDI held
// at the entry, which a return probe keeps. Code that reads this value, or the places of the
// parameters, show that callers still give the address.

// givenAddress returns the result's place at the address that the function is given in RDI. ok
// is false if nothing shows that the function is given one. with and without pass
// parameters after this address, and without it.
func (f *frame) givenAddress(with, without pass) (p place, ok bool) {
	use := f.useOfDI(true)
	hidden, known := f.shown(without, with)
	if known && !hidden || use == diUnread || use == diUnknown && !known {
		return place{}, false
	}
	return place{kind: inMemory, sym: register(fetch.DI)}, true
}

// pass gives each parameter its place, in order.
type pass func(c *debuginfo.Entry, t ctype) (place, error)

// shown reports in which of two ways parameters are passed, as far as debug information or the prologue's stores
// show in which register one is.
func (f *frame) shown(first, second pass) (isSecond, known bool) {
	_, _ = f.passed(&f.fn, func(c *debuginfo.Entry, t ctype) (place, error) { // no parameter is f.fn, so all of them are visited
		p, err := first(c, t)
		q, err2 := second(c, t)
		r, ok := f.entryRegister(c)
		if !ok && f.unstored(c) {
			r, ok = f.stored(c)
		}
		if r.kind == inPieces && len(r.pieces) > 0 && r.pieces[0].off == 0 {
			r = r.pieces[0].place
		}
		if ok && r.kind == isValue && p.beginsIn(r) != q.beginsIn(r) {
			isSecond, known = err2 == nil && q.beginsIn(r), true
			return p, errDiffers
		}
		return p, cmp.Or(err, err2)
	})
	return isSecond, known
}

// givenC is givenAddress for C and C++.
func (f *frame) givenC() (p place, ok bool) {
	with, without := systemV(), systemV()
	with.nextInt++
	return f.givenAddress(f.passing(&with), f.passing(&without))
}

// givenRust is givenAddress for Rust.
func (f *frame) givenRust() (p place, ok bool) {
	with, without := systemV(), systemV()
	with.nextInt++
	return f.givenAddress(f.passingRust(&with), f.passingRust(&without))
}

// given notes that a result is at an address which the function was given, so that a return probe keeps the address.
func (v value) given() value {
	if r, ok := v.p.sym.isReg(); ok && v.p.kind == inMemory && r == fetch.DI {
		v.behind, v.byEntry = true, true
	}
	return v
}

// diUse is what the function does with the value that RDI has at its entry.
type diUse uint8

const (
	diUnread  diUse = iota
	diPassed        // a call may read it
	diRead          // instructions read it
	diUnknown       // code that isn't known may read it
)

// maxReadsDI limits how many instructions are followed.
const maxReadsDI = 1024

// useOfDI follows the function's code. If beyond is set, it also follows the code of other functions that this one
// jumps to; otherwise, that code isn't known.
func (f *frame) useOfDI(beyond bool) diUse {
	low, ok := f.fn.EntryPC()
	if !ok {
		return diUnknown
	}
	use := diUnread
	seen, left := map[uint64]bool{}, []uint64{low}
	for len(left) > 0 {
		at := left[len(left)-1]
		left = left[:len(left)-1]
		for !seen[at] {
			if seen[at] = true; len(seen) > maxReadsDI || !f.hasCode(at) && !(beyond && f.inFunction(at)) {
				return diUnknown
			}
			text, err := f.module.File.Text(symbols.Vaddr(at), maxInstruction)
			if err != nil {
				return diUnknown
			}
			i, err := insn.Decode(text)
			switch {
			case err != nil || i.Len == 0:
				return diUnknown
			case i.Uses().Has(insn.RDI):
				return diRead
			}
			switch to, ok := i.Target(at, text[:i.Len]); {
			case i.Is(insn.Call):
				use = diPassed
			case ok:
				left = append(left, to)
			case i.Flags.Any(insn.Jmp):
				return diUnknown
			}
			if i.Overwrites().Has(insn.RDI) || i.Flags.Any(insn.Call|insn.Stops) {
				break
			}
			at += uint64(i.Len)
		}
	}
	return use
}

// maxInstruction is the longest instruction, in bytes.
const maxInstruction = 15

// hasCode reports whether an address is the function's.
func (f *frame) hasCode(at uint64) bool {
	for _, r := range f.fn.Ranges() {
		if r.Low <= at && at < r.High {
			return true
		}
	}
	return false
}

// inFunction reports whether an address is in a function of the file, and not in a PLT's stub.
func (f *frame) inFunction(at uint64) bool {
	fn, ok := f.module.File.FuncAt(symbols.Vaddr(at))
	return ok && fn.Symbol.Kind != symbols.KindPLT
}
