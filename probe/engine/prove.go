package engine

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/assess"
	"kprobe/probe/insn"
	"kprobe/probe/planner"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// assessor assesses places of the target.
func (tg *Target) assessor() *assess.Assessor {
	return &assess.Assessor{Function: tg.funcs.Of, Golang: &tg.Engine.golang, Own: tg.isOwn, Memory: tg.untouched, KeepCall: tg.shadowStack}
}

// prove proves that a breakpoint at the place is safe. It changes nothing.
func (tg *Target) prove(w symbols.Site) (assess.Place, error) { return tg.assessor().Instruction(w) }

// proveStart is prove for an address that is known to start an instruction, in a
// module with a file.
func (tg *Target) proveStart(w symbols.Site) (assess.Place, error) { return tg.assessor().Start(w) }

// isOwn reports whether kprobe's own code is at an address.
func (tg *Target) isOwn(a symbols.Addr) bool { return tg.Area != nil && tg.Area.IsCode(a) }

// untouched returns an error if the memory of a place's instruction differs from its file.
func (tg *Target) untouched(w symbols.Site, code []byte, in insn.Inst) error {
	switch err := tg.pristine(w.Addr, code[:in.Len]); {
	case errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EIO): // the file is unmapped, maybe for a moment
		return fmt.Errorf("%s can't be probed: %w", w.Name(), err)
	case err != nil:
		return &survey.RefusedError{Addr: w.Addr, Place: w.Name(), Rule: err.Error()}
	}
	return nil
}

var errForeign = errors.New("the memory is not what the file holds: something else has patched it")

// pristine compares the process's memory at a with want, the file's bytes. kprobe's own patches count
// as original bytes. The error says who may have changed the memory. Bytes that detached probes need are theirs, also
// where they are original: they may be part of a jump.
func (tg *Target) pristine(a symbols.Addr, want []byte) error {
	if len(tg.leftIn(a, a+symbols.Addr(len(want)))) > 0 {
		return errors.New(tg.left.why(tg.Proc.PID(), a, a+symbols.Addr(len(want))))
	}
	have := make([]byte, len(want))
	if err := tg.readText(have, a); err != nil {
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

// textWindow keeps a piece of the process's text, so that neighbouring places are compared with the
// file by one read.
type textWindow struct {
	on   bool
	at   symbols.Addr
	text []byte
	when time.Time // answers.Last when it was read: a stop that was answered since may have changed the text
}

// windowSize is how much text is read at once, in bytes.
const windowSize = 16 << 10

// readAhead makes readText read in pieces of windowSize while many places are examined. done ends that.
func (tg *Target) readAhead(places int) (done func()) {
	if places < planner.LetGoFrom {
		return func() {}
	}
	tg.reading = textWindow{on: true}
	return func() { tg.reading = textWindow{} }
}

// readText reads the text of the process at an address.
func (tg *Target) readText(b []byte, a symbols.Addr) error {
	w := &tg.reading
	if !w.on {
		_, err := tg.Proc.ReadMemory(b, a)
		return err
	}
	end := w.at + symbols.Addr(len(w.text))
	if !w.when.Equal(tg.Engine.Answers.Last) || a < w.at || a+symbols.Addr(len(b)) > end {
		if w.text = w.text[:cap(w.text)]; len(w.text) == 0 {
			w.text = make([]byte, windowSize)
		}
		w.at, w.when = a, tg.Engine.Answers.Last
		n, _ := tg.Proc.ReadMemory(w.text, a) // as much as is mapped
		if w.text = w.text[:n]; n < len(b) {
			_, err := tg.Proc.ReadMemory(b, a)
			return err
		}
	}
	copy(b, w.text[a-w.at:])
	return nil
}
