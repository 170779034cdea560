package probe

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/gocode"
	"kprobe/probe/insn"
	"kprobe/probe/memory"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// function is a decoded function of a target.
type function struct {
	fn    symbols.Func
	start symbols.Addr
	size  int    // of code
	code  []byte // original bytes, from the file; nil: let go
	sweep *insn.Function
	// golang is what is known of it as code of Go's; nil until it is asked for.
	golang *gocode.Func
}

// function decodes the function that contains the site, once.
func (tg *target) function(w symbols.Site) (*function, error) {
	start := survey.Start(w)
	if f := tg.funcs[start]; f.loaded() {
		return f, nil
	}
	f, err := decodeFunction(w.Module.File, w.Func, start)
	if err != nil {
		return nil, err
	}
	return tg.keep(f), nil
}

func decodeFunction(file *symbols.File, fn symbols.Func, start symbols.Addr) (*function, error) {
	code, sweep, err := survey.Decode(file, fn, start)
	if err != nil {
		return nil, err
	}
	return &function{fn: fn, start: start, size: len(code), code: code, sweep: sweep}, nil
}

// prove makes sure that a breakpoint at the place is safe. It changes nothing.
func (tg *target) prove(w symbols.Site) (code []byte, in insn.Inst, err error) {
	p, err := tg.assessor().instruction(w)
	return p.code, p.inst, err
}

// proveStart is prove for an address that is known to start an instruction, in a
// module with a file.
func (tg *target) proveStart(w symbols.Site) (code []byte, in insn.Inst, err error) {
	p, err := tg.assessor().start(w)
	return p.code, p.inst, err
}

// isOwn reports whether kprobe's own code is at an address.
func (tg *target) isOwn(a symbols.Addr) bool { return tg.area != nil && tg.area.Code.Holds(a) != nil }

// untouched makes sure that the memory of a place is what its file holds.
func (tg *target) untouched(w symbols.Site, code []byte, in insn.Inst) error {
	switch err := tg.pristine(w.Addr, code[:in.Len]); {
	case errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EIO): // it is gone, maybe for a moment
		return fmt.Errorf("%s can't be probed: %w", w.Name, err)
	case err != nil:
		return &RefusedError{Addr: w.Addr, Place: w.Name, Rule: err.Error()}
	}
	return nil
}

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

// planCopy finds how the instruction of a proved place runs out of line at slot.
func planCopy(w symbols.Site, code []byte, slot symbols.Addr, keepCall bool) (insn.Moved, error) {
	return survey.Copy(w, code, slot, memory.SlotSize, insn.Options{KeepCall: keepCall})
}
