package symbols

import "kprobe/symbols/unwind"

// Called reports whether code that starts at an address finds its caller's return address where
// a call leaves it, at the stack pointer (psABI, 3.2.2). Call frame information tells. It is
// false for a program's start, where the kernel puts the argument count, for parts of a
// function that are jumped to, and for trampolines that are entered with more on the stack.
// Without such information it is true for a symbol of a function's type that is not the file's
// entry point. A label may be the target of a jump, as the loader's _dl_start_user is. It is
// safe for concurrent use.
func (f *File) Called(v Vaddr) bool {
	if f.inPLT(v) {
		return true // described by an expression, for all stubs at once
	}
	row, ok := f.entryRow(v)
	if !ok {
		return v != f.im.entry && f.Certain(v)
	}
	const rsp = 7 // DWARF's number (psABI, figure 3.36)
	cfa, ra := &row.CFA, &row.Regs[unwind.PC]
	return cfa.Kind == unwind.InRegister && cfa.Reg == rsp && cfa.Off == 8 && ra.Kind == unwind.AtCFA && ra.Off == -8
}

// fewRows is the number of addresses for which call frame information is searched without keeping it: that of a
// large file takes 10 MB.
const fewRows = 8

// entryRow returns the row of call frame information at an address, from .eh_frame.
func (f *File) entryRow(v Vaddr) (row unwind.Row, ok bool) {
	if f.rowsAsked.Add(1) > fewRows {
		return f.ehTable().At(uint64(v))
	}
	var err error
	defer rescue(f.Path, &err)
	if b, base := f.im.ehFrame(); b != nil {
		row, ok = unwind.Find(uint64(v), unwind.Section{Bytes: b, Addr: uint64(base), EH: true})
	}
	return row, ok
}
