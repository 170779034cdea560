// Package survey says what files tell about the places to be probed: whether an instruction
// starts there, whether it can run elsewhere, and what branches near it. It reads files that
// are already open, and no process.
package survey

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/go-delve/delve/pkg/dwarf/regnum"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// Decode takes a function apart, which lies at start in memory: its original
// bytes, and its instructions, with the jump tables that the file's constants
// hold. A function whose size is not known is an error, and so are bytes that the
// file doesn't hold.
func Decode(file *symbols.File, fn *symbols.Func, start symbols.Addr) (code []byte, sweep *insn.Function, err error) {
	return decodeBy(file, fn, start, new([]byte), insn.Sweep)
}

// Decoder is for decoding many functions, one after another, in the same memory. The zero value is ready to use.
// It is not safe for concurrent use.
type Decoder struct {
	text    []byte
	sweeper insn.Sweeper
}

// Decode is like the function Decode. What it returns holds until the next call.
func (d *Decoder) Decode(file *symbols.File, fn *symbols.Func, start symbols.Addr) (code []byte, sweep *insn.Function, err error) {
	return decodeBy(file, fn, start, &d.text, d.sweeper.Sweep)
}

// decodeBy is Decode with room for the code, and a way to sweep.
func decodeBy(file *symbols.File, fn *symbols.Func, start symbols.Addr, room *[]byte, divide func([]byte, uint64, insn.SweepOptions) (*insn.Function, error)) (code []byte, sweep *insn.Function, err error) {
	if fn.End <= fn.Start {
		return nil, nil, fmt.Errorf("the size of %s is not known", fn.Symbol.Name)
	}
	read, err := file.AppendText((*room)[:0], fn.Start, int(fn.Size())+behind)
	if err != nil {
		return nil, nil, err
	}
	*room, code = read, read[:min(len(read), int(fn.Size())):len(read)] // Around.Of looks at what is behind the function
	bias := uint64(start) - uint64(fn.Start)
	constant := func(b []byte, at uint64) error { return file.Constant(b, symbols.Vaddr(at-bias)) }
	pointer := func(at uint64) (uint64, bool) {
		to, ok := file.Pointer(symbols.Vaddr(at - bias))
		return uint64(to) + bias, ok
	}
	part := func(at uint64) bool { return inPart(file, symbols.Vaddr(at-bias)) }
	slot := func(at uint64) (insn.Slot, bool) { return slotAt(file, symbols.Vaddr(at-bias), bias) }
	sweep, err = divide(code, uint64(start), insn.SweepOptions{Read: constant, Pointer: pointer, Part: part, Slot: slot})
	return code, sweep, err
}

// inPart reports whether an address is in a part of a function that is only jumped to, as its name or its call frame
// information tells.
func inPart(file *symbols.File, v symbols.Vaddr) bool {
	start, ok := file.StartAt(v)
	if !ok || !file.Executable(v) {
		return false
	}
	_, part := file.PieceOf(start)
	return part || !file.Called(start)
}

// slotAt tells where the return address is, if it is at a distance from the stack pointer or the frame pointer.
func slotAt(file *symbols.File, v symbols.Vaddr, bias uint64) (insn.Slot, bool) {
	s, ok := file.ReturnSlot(v)
	out := insn.Slot{Off: s.Off, Start: uint64(s.Start) + bias, End: uint64(s.End) + bias}
	switch s.Base {
	case regnum.AMD64_Rsp:
		out.Base = insn.RSP
	case regnum.AMD64_Rbp:
		out.Base = insn.RBP
	default:
		return out, false
	}
	return out, ok
}

// Start is where the function of a place lies in memory.
func Start(w symbols.Site) symbols.Addr { return w.Addr - symbols.Addr(w.Vaddr-w.Func.Start) }

// Prove makes sure that an instruction starts at a place, that it is known, and
// that it may be patched. decode gives the instructions of the place's function;
// it is called where they are needed to know. The bytes returned are the file's
// from the place on: the instruction, and what may follow.
//
// The errors are *RefusedError and *BoundaryError.
func Prove(w symbols.Site, decode func() (*insn.Function, error)) (code []byte, in insn.Inst, err error) {
	if w.Module == nil || w.Module.File == nil {
		return nil, in, refuse(w, "no file is mapped there, so its instructions can't be known")
	}
	if w.NamedAs().USDT != nil && w.Func.End <= w.Func.Start {
		// The note is all that is known of the place, and it says that a no-op is there.
		if code, in, err = ProveStart(w); err == nil && !isNop(code[:in.Len]) {
			err = refuse(w, "no function is known there, and it isn't the no-op that its note describes")
		}
		return code, in, err
	}
	if w.Vaddr != w.Func.Start || w.Func.End == 0 {
		if w.Func.End <= w.Func.Start {
			return nil, in, refuse(w, "no function is known there, so where its instructions start can't be proved")
		}
		sweep, err := decode()
		if err != nil {
			return nil, in, refuse(w, "%v", err)
		}
		if err := Boundary(w, sweep); err != nil {
			return nil, in, err
		}
	}
	return ProveStart(w)
}

// ProveStart is Prove for an address that is known to start an instruction, in a
// module with a file. The error is a *RefusedError.
func ProveStart(w symbols.Site) (code []byte, in insn.Inst, err error) {
	if w.Module.Translated {
		return nil, in, &RefusedError{Addr: w.Addr, Place: w.Name(), Rule: TranslatedRule, Many: TranslatedRule}
	}
	code, err = w.Module.File.Text(w.Vaddr, insn.MaxLen) // fewer at the file's end
	if err != nil {
		return nil, in, refuse(w, "its bytes can't be read from the file: %v", err)
	}
	in, err = insn.Decode(code)
	if err != nil {
		return nil, in, refuse(w, "no known instruction is there (%v)", err)
	}
	if Shared(w.Module, w.Addr, int(in.Len)) {
		return nil, in, &RefusedError{Addr: w.Addr, Place: w.Name(), Rule: SharedRule, Many: SharedRule}
	}
	if name := w.Func.Symbol.Name; name == "__restore_rt" || name == "__restore" || IsRestorer(code) {
		return nil, in, refuse(w, RestorerRule)
	}
	if why := inSequence(w, int(in.Len)); why != "" {
		return nil, in, &RefusedError{Addr: w.Addr, Place: w.Name(), Rule: why, Many: SequenceRule}
	}
	return code, in, nil
}

// isNop reports one of the no-ops by which statically defined probes are marked: of
// one byte, or a multi-byte NOP (Intel SDM vol. 2, NOP).
func isNop(code []byte) bool {
	code = bytes.TrimLeft(code, "\x66\x2e")
	return len(code) == 1 && code[0] == 0x90 || len(code) > 2 && code[0] == 0x0f && code[1] == 0x1f
}

// Boundary makes sure that one of a function's instructions starts at a place.
// The error is a *BoundaryError.
func Boundary(w symbols.Site, sweep *insn.Function) error {
	if sweep.Boundary(uint64(w.Addr)) {
		return nil
	}
	start := Start(w)
	base := w.Func.Symbol.Name
	if base == "" {
		base = start.String()
	}
	at := func(a uint64) string { return fmt.Sprintf("%s+%#x", base, a-uint64(start)) }
	before, after := sweep.Around(uint64(w.Addr))
	return &BoundaryError{Addr: w.Addr, Place: w.Name(), Before: at(before), After: at(after)}
}

// Copy finds how the instruction of a proved place, of which code are the bytes,
// runs at slot, which has room for size bytes. The error is a *RefusedError.
func Copy(w symbols.Site, code []byte, slot symbols.Addr, size int, o insn.Options) (insn.Moved, error) {
	return relocate(new(insn.Relocator), w, code, slot, size, o)
}

// trials are relocators for instructions that are only tried.
var trials = sync.Pool{New: func() any { return new(insn.Relocator) }}

// TryCopy is Copy for a caller that needs the error only.
func TryCopy(w symbols.Site, code []byte, slot symbols.Addr, size int, o insn.Options) error {
	r := trials.Get().(*insn.Relocator)
	defer trials.Put(r)
	_, err := relocate(r, w, code, slot, size, o)
	return err
}

func relocate(r *insn.Relocator, w symbols.Site, code []byte, slot symbols.Addr, size int, o insn.Options) (insn.Moved, error) {
	m, err := r.One(code, uint64(w.Addr), uint64(slot), o)
	if err != nil {
		return m, refuse(w, "%v", err)
	}
	if len(m.Code) > size {
		return m, refuse(w, "its copy would be too long")
	}
	return m, nil
}

// TranslatedRule says why what runs under Valgrind can't be probed. What was translated before the probe came has no
// hits, and what is translated later leads to memory that Valgrind doesn't know, which ends the program.
const TranslatedRule = "Valgrind runs a translation of this code, in which a probe has no hits or ends the program"

// RestorerRule says why the signal trampoline can't be probed.
const RestorerRule = "unwinders recognise the signal trampoline by its bytes"

// restorer is mov $15,%rax; syscall, by which libgcc and gdb know a signal
// frame.
var restorer = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}

// IsRestorer reports whether the signal trampoline starts with code.
func IsRestorer(code []byte) bool { return bytes.HasPrefix(code, restorer) }

func refuse(w symbols.Site, rule string, args ...any) error {
	return &RefusedError{Addr: w.Addr, Place: w.Name(), Rule: fmt.Sprintf(rule, args...)}
}
