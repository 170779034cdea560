// Package fallbacks manages the fallback handlers of a process: signal handlers, chained before the
// program's own. If no tracer lives, they continue threads that trapped or faulted at kprobe's places
// (probe/detour, Fallback).
//
// The package knows which fallback handler leads to which action of the program, and makes the
// necessary calls in the process. The contents of the fallback handlers' table are the owner's
// business.
package fallbacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"syscall"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Count is the number of fallback handlers in a process. The first is chained before the action that the
// program had when kprobe came. If the program sets a handler of its own later, that replaces the
// fallback handler, and may call it. Then the next fallback handler is chained before that handler, and
// so on. Each fallback handler leads to one action only, so no two can lead to each other.
const Count = 4

// Size is the size in bytes of the page of code, and also of the page of data.
const Size = 4096

const (
	stride     = Size / Count
	dataStride = (detour.FallbackDataSize + 63) &^ 63
)

// The tracer and the fallback handler must use the same code for a promise. One of these lines fails to
// compile if they don't.
const (
	_ = uint(tracee.PromiseCode - detour.PromiseCode)
	_ = uint(detour.PromiseCode - tracee.PromiseCode)
)

// ErrNone says that the program has changed an action more often than there are
// fallback handlers.
var ErrNone = errors.New("no fallback handler is left")

// Process is what this package needs of a process. *tracee.Process implements it.
type Process interface {
	symbols.Memory
	WriteMemory(b []byte, at symbols.Addr) error
	Sigaction(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (tracee.Sigaction, error)
	SwapSigaction(ctx context.Context, t *tracee.Thread, sig syscall.Signal, act tracee.Sigaction, to symbols.Addr) (tracee.Sigaction, error)
}

// Fallbacks are the fallback handlers of a process. Their code has a page, and their data has another. Both
// pages stay if the program may still call a fallback handler after kprobe has left. A Fallbacks is used
// on the tracer's thread only.
type Fallbacks struct {
	proc   Process
	code   symbols.Addr // 0: there are none yet
	data   symbols.Addr
	labels [Count]detour.FallbackLabels
	// caught has for each signal the actions to which the fallback handlers lead: that of fallback
	// handler i at index i.
	caught map[syscall.Signal][]detour.Action
	inUse  bool // a thread is in one
	taken  bool // an earlier kprobe has left them to the program (Adopt), so they stay
	stays  bool // Remove has found that the program may still call one
	looked bool // it is known where each thread continues (See)
	seen   []symbols.Addr
}

// New returns the Fallbacks of a process, which has no fallback handlers before Lay, Adopt or Find.
func New(p Process) *Fallbacks { return &Fallbacks{proc: p} }

// Inherited returns the Fallbacks of a forked child, whose memory and actions are copies of the parent's.
func (n *Fallbacks) Inherited(child Process) *Fallbacks {
	kid := *n
	kid.proc = child
	kid.caught = maps.Clone(n.caught)
	for sig, list := range kid.caught {
		kid.caught[sig] = slices.Clone(list)
	}
	kid.seen = slices.Clone(n.seen)
	return &kid
}

// Code is the address of the fallback handlers' code; 0: there are none.
func (n *Fallbacks) Code() symbols.Addr { return n.code }

// Data is the address of the fallback handlers' data; 0: there are none.
func (n *Fallbacks) Data() symbols.Addr { return n.data }

// Signals yields the signals that have a fallback handler.
func (n *Fallbacks) Signals() iter.Seq[syscall.Signal] { return maps.Keys(n.caught) }

// Links are the addresses in the process of what the fallback handlers use; 0: they don't.
type Links struct {
	Table       symbols.Addr // detour.Table
	Steps       symbols.Addr // u64, the number of threads that the tracer is stepping
	Watched     symbols.Addr // u64, not 0 while debug registers are set
	Trampolines symbols.Addr // return trampolines that trap
	// TrampolinesSize is the size of Trampolines in bytes; 0: there are none.
	TrampolinesSize uint64
}

// Lay writes the fallback handlers' data, which lead to to, and returns the page of code. The caller must
// write it to the address code. data is the address of a writable page of zeros. The program's actions
// don't change (Catch).
func (n *Fallbacks) Lay(code, data symbols.Addr, to Links) ([]byte, error) {
	n.code, n.data = code, data
	n.caught = map[syscall.Signal][]detour.Action{}
	text := n.assemble()
	return text, n.connect(to)
}

// mostLeft bounds the number of mappings that Adopt examines.
const mostLeft = 4096

// Adopt reuses fallback handlers that an earlier kprobe has left to the program because it may still call
// them. Without this, a program that changes its actions under each kprobe would get two more pages
// from each. It reports whether it has found some: they must have the same code, lead only to the
// program's actions, and have room for further actions. Adopted fallback handlers stay, because a
// thread may have been interrupted in one. note is called before they lead to anything else, so that
// a later kprobe finds them.
func (n *Fallbacks) Adopt(maps []symbols.Mapping, to Links, note func()) (bool, error) {
	looked := 0
	for i := range maps[:max(len(maps)-1, 0)] {
		m, next := &maps[i], &maps[i+1]
		if m.Path != "" || !m.Exec || m.Write || next.Path != "" || !next.Write || next.Exec || next.Start != m.End {
			continue
		}
		if looked++; looked > mostLeft {
			break
		}
		left := Fallbacks{proc: n.proc, code: m.End - Size, data: next.Start, taken: true}
		if left.free() && left.Find(left.code, left.data) == nil && left.room() {
			*n = left
			note()
			return true, n.connect(to)
		}
	}
	return false, nil
}

// free reports whether the code of fallback handlers is at n.code, and their data lead only to the program's
// actions.
func (n *Fallbacks) free() bool {
	if !n.same() {
		return false
	}
	data := make([]byte, Count*dataStride)
	if m, err := n.proc.ReadMemory(data, n.data); err != nil || m != len(data) {
		return false
	}
	for i := range Count {
		if detour.FallbackConnected(data[i*dataStride:]) {
			return false
		}
	}
	return true
}

// same reports whether the code of fallback handlers is at n.code.
func (n *Fallbacks) same() bool {
	now, want := make([]byte, Size), n.assemble()
	const head = 32 // enough to recognise other code
	if m, err := n.proc.ReadMemory(now[:head], n.code); err != nil || m != head || !bytes.Equal(now[:head], want[:head]) {
		return false
	}
	m, err := n.proc.ReadMemory(now, n.code)
	return err == nil && m == Size && bytes.Equal(now, want)
}

// room reports whether each signal has an unused fallback handler.
func (n *Fallbacks) room() bool {
	for _, list := range n.caught {
		if len(list) == Count {
			return false
		}
	}
	return true
}

// assemble returns the page of code, and sets the labels.
func (n *Fallbacks) assemble() []byte {
	text := make([]byte, Size)
	for i := range text {
		text[i] = 0xcc
	}
	for i := range Count {
		var blob []byte
		blob, n.labels[i] = detour.Fallback(uint64(n.code)+uint64(i*stride), detour.FallbackParams{Data: uint64(n.data) + uint64(i*dataStride)})
		copy(text[i*stride:(i+1)*stride], blob)
	}
	return text
}

// Disconnect removes the links, so that each fallback handler calls its action at once. After that the memory
// of the links may be unmapped.
func (n *Fallbacks) Disconnect() error { return n.connect(Links{}) }

func (n *Fallbacks) connect(to Links) error {
	for i := range Count {
		w := &writer{n.proc, n.data, nil}
		d := detour.FallbackData{W: w, Off: i * dataStride}
		d.SetTable(uint64(to.Table))
		d.SetSteps(uint64(to.Steps))
		d.SetWatched(uint64(to.Watched))
		d.SetTrampolines(0, uint64(to.Trampolines), to.TrampolinesSize)
		if w.err != nil {
			return fmt.Errorf("write the fallback handler's data: %w", w.err)
		}
	}
	return nil
}

// writer writes the fallback handlers' data as a detour.Putter. err is the first error.
type writer struct {
	proc Process
	at   symbols.Addr
	err  error
}

// Put implements detour.Putter.
func (w *writer) Put(off int, b []byte) {
	if w.err == nil {
		w.err = w.proc.WriteMemory(b, w.at+symbols.Addr(off))
	}
}

// Adopted notes that a killed kprobe had adopted these fallback handlers. So they stay.
func (n *Fallbacks) Adopted() { n.taken = true }

// Stay reports whether the fallback handlers' pages must stay in the process. It is valid after Remove.
func (n *Fallbacks) Stay() bool { return n.stays }

// Holds reports whether pc is in a fallback handler.
func (n *Fallbacks) Holds(pc symbols.Addr) bool {
	return n.code != 0 && pc >= n.code && pc < n.code+Size
}

// Look notes the address of a thread that is about to be left, and returns where it must continue after
// Disconnect. If the thread is reading the memory of the links, which is about to be unmapped, it must
// begin the fallback handler anew.
func (n *Fallbacks) Look(pc symbols.Addr) (to symbols.Addr) {
	n.inUse = n.inUse || n.Holds(pc)
	for _, l := range n.labels {
		for _, look := range l.Looks {
			if uint64(pc) >= look[0] && uint64(pc) < look[1] {
				return symbols.Addr(l.Handler)
			}
		}
	}
	return pc
}

// Find makes n the fallback handlers that a killed kprobe has left at code and data. It reads the actions to
// which they lead.
func (n *Fallbacks) Find(code, data symbols.Addr) error {
	n.code, n.data = code, data
	n.caught = map[syscall.Signal][]detour.Action{}
	n.assemble()
	b := make([]byte, Count*dataStride)
	if _, err := n.proc.ReadMemory(b, data); err != nil {
		return fmt.Errorf("read the fallback handler's data: %w", err)
	}
	for _, s := range detour.FallbackSignals() {
		used := 0
		for i := range Count {
			if detour.FallbackCaught(b[i*dataStride:])&(1<<s) != 0 {
				used = i + 1
			}
		}
		for i := range used {
			sig := syscall.Signal(s)
			n.caught[sig] = append(n.caught[sig], detour.FallbackAction(b[i*dataStride:], s))
		}
	}
	return nil
}
