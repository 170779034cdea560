package vars

import (
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/fetch/vars/touches"
	"kprobe/symbols/debuginfo"
)

// unpassed reports a parameter on the stack of Rust code that no instruction of
// the function touches. Where LLVM optimizes it leaves out what its callers would store there, also where other
// files may call the function, and gives the place all the same.
func (f *frame) unpassed(e *debuginfo.Entry, p place) error {
	if !f.isRustFunc() || !f.ofFunction(e) || !f.callers(p) {
		return nil
	}
	t, err := f.typeOf(e)
	row, ok := f.module.File.Unwind().At(f.pc)
	if err != nil || !ok || t.size <= 0 {
		return nil
	}
	low := int64(p.sym.steps[0].Imm) - row.CFA.Off
	touched := f.touched()
	if touched.Unknown || touched.Indexed || slices.ContainsFunc(touched.List, func(a touches.Touch) bool {
		return a.Low < low+t.size && low < a.High || a.Taken && a.Low >= 0 && a.Low < low+t.size
	}) {
		return nil
	}
	return fmt.Errorf("%w: nothing in the function uses it, and what callers pass then is anything", fetch.ErrNoValue)
}
