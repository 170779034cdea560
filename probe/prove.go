package probe

import (
	"bytes"
	"errors"
	"fmt"

	"kprobe/probe/gocode"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// function is a decoded function of a target.
type function struct {
	fn    symbols.Func
	start symbols.Addr
	code  []byte // original bytes, from the file
	sweep *insn.Function
	// golang is what is known of it as code of Go's; nil until it is asked for.
	golang *gocode.Func
}

// function decodes the function that contains the site, once.
func (tg *target) function(w symbols.Site) (*function, error) {
	start := w.Addr - symbols.Addr(w.Vaddr-w.Func.Start)
	if f := tg.funcs[start]; f != nil {
		return f, nil
	}
	f, err := decodeFunction(w.Module.File, w.Func, start)
	if err != nil {
		return nil, err
	}
	tg.funcs[start] = f
	return f, nil
}

func decodeFunction(file *symbols.File, fn symbols.Func, start symbols.Addr) (*function, error) {
	if fn.End <= fn.Start {
		return nil, fmt.Errorf("the size of %s is not known", fn.Symbol.Name)
	}
	code, err := file.Text(fn.Start, int(fn.End-fn.Start))
	if err != nil {
		return nil, err
	}
	sweep, err := insn.Sweep(code, uint64(start), insn.SweepOptions{})
	if err != nil {
		return nil, err
	}
	return &function{fn: fn, start: start, code: code, sweep: sweep}, nil
}

// prove makes sure that a breakpoint at the place is safe: that an instruction
// starts there, that the memory is what the file holds, and that the
// instruction can run out of line. It changes nothing. The bytes returned are
// the file's, from the place on, the instruction and what may follow.
//
// The errors are *RefusedError and *BoundaryError.
func (tg *target) prove(w symbols.Site) (code []byte, in insn.Inst, err error) {
	refuse := func(rule string, args ...any) error {
		return &RefusedError{Addr: w.Addr, Place: w.Name, Rule: fmt.Sprintf(rule, args...)}
	}
	if tg.area != nil && tg.area.code.holds(w.Addr) != nil {
		return nil, in, refuse("it is kprobe's own code")
	}
	if w.Module == nil || w.Module.File == nil {
		return nil, in, refuse("no file is mapped there, so its instructions can't be known")
	}
	if w.Vaddr != w.Func.Start || w.Func.End == 0 {
		if w.Func.End <= w.Func.Start {
			return nil, in, refuse("no function is known there, so where its instructions start can't be proved")
		}
		f, err := tg.function(w)
		if err != nil {
			return nil, in, refuse("%v", err)
		}
		if !f.sweep.Boundary(uint64(w.Addr)) {
			return nil, in, boundaryError(w, f)
		}
	}
	return tg.proveStart(w)
}

// proveStart is prove for an address that is known to start an instruction.
func (tg *target) proveStart(w symbols.Site) (code []byte, in insn.Inst, err error) {
	refuse := func(rule string, args ...any) error {
		return &RefusedError{Addr: w.Addr, Place: w.Name, Rule: fmt.Sprintf(rule, args...)}
	}
	file := w.Module.File
	code, err = file.Text(w.Vaddr, maxInsn)
	for n := maxInsn - 1; err != nil && n > 0; n-- {
		code, err = file.Text(w.Vaddr, n)
	}
	if err != nil {
		return nil, in, refuse("its bytes can't be read from the file: %v", err)
	}
	in, err = insn.Decode(code)
	if err != nil {
		return nil, in, refuse("what is there is no instruction that is known (%v)", err)
	}
	if name := w.Func.Symbol.Name; name == "__restore_rt" || name == "__restore" || isRestorer(code) {
		return nil, in, refuse("unwinders recognise the signal trampoline by its bytes")
	}
	if err := tg.pristine(w.Addr, code[:in.Len]); err != nil {
		return nil, in, refuse("%v", err)
	}
	return code, in, nil
}

// restorer is mov $15,%rax; syscall, by which libgcc and gdb know a signal
// frame.
var restorer = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}

func isRestorer(code []byte) bool { return bytes.HasPrefix(code, restorer) }

var errForeign = errors.New("the memory is not what the file holds: something else has patched it")

// pristine compares the process's memory with the file's bytes. kprobe's own
// breakpoints are seen through.
func (tg *target) pristine(a symbols.Addr, want []byte) error {
	have := make([]byte, len(want))
	if _, err := tg.proc.ReadMemory(have, a); err != nil {
		return fmt.Errorf("its memory can't be read: %w", err)
	}
	tg.overlay(have, a)
	if bytes.Equal(have, want) {
		return nil
	}
	if have[0] == breakpoint {
		return errors.New("another tracer's breakpoint is there (gdb, or a uprobe of the kernel)")
	}
	return errForeign
}

func boundaryError(w symbols.Site, f *function) error {
	before, after := f.sweep.Around(uint64(w.Addr))
	base := f.fn.Symbol.Name
	if base == "" {
		base = f.start.String()
	}
	at := func(a uint64) string { return fmt.Sprintf("%s+%#x", base, a-uint64(f.start)) }
	return &BoundaryError{Addr: w.Addr, Place: w.Name, Before: at(before), After: at(after)}
}

// planCopy finds how the instruction of a proved place runs out of line at slot.
func planCopy(w symbols.Site, code []byte, slot symbols.Addr, keepCall bool) (insn.Moved, error) {
	m, err := insn.Relocate(code, uint64(w.Addr), uint64(slot), insn.Options{KeepCall: keepCall})
	if err != nil {
		return m, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: err.Error()}
	}
	if len(m.Code) > slotSize {
		return m, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: "its copy would be too long"}
	}
	return m, nil
}
