// Package fallbacks keeps the fallback handlers of a process: signal handlers, chained before
// the program's own. If no tracer does, they lead on a thread that trapped or faulted at one of
// kprobe's places (probe/detour, Fallback).
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
	"syscall"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Count is how many fallback handlers a process gets. The first is chained before the
// action that the program had when kprobe came. A program that sets a handler
// of its own later puts it in the fallback handler's place, and may go on to the fallback handler from
// there; the next fallback handler is put before that handler, and so on: each fallback handler leads to
// one action, so that no two lead to each other.
const Count = 4

// Size is that of the page of code, and of that of data, in bytes.
const Size = 4096

const (
	stride     = Size / Count
	dataStride = (detour.FallbackDataSize + 63) &^ 63
)

// The tracer and the fallback handler agree on the code of a promise: either line fails to
// compile if they differ.
const (
	_ = uint(tracee.PromiseCode - detour.PromiseCode)
	_ = uint(detour.PromiseCode - tracee.PromiseCode)
)

// ErrNone says that the program has changed an action more often than there are
// fallback handlers.
var ErrNone = errors.New("no fallback handler is left")

// Process is what the fallback handlers need of the process they are in: a *tracee.Process.
type Process interface {
	symbols.Memory
	WriteMemory(b []byte, at symbols.Addr) error
	Sigaction(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (tracee.Sigaction, error)
	SwapSigaction(ctx context.Context, t *tracee.Thread, sig syscall.Signal, act tracee.Sigaction) (tracee.Sigaction, error)
}

// Fallbacks are the fallback handlers of a process: code in a page of its own, data in another,
// which stay when the program may still call a fallback handler after kprobe has left.
// Used on the tracer thread only.
type Fallbacks struct {
	proc   Process
	code   symbols.Addr // 0: none were laid
	data   symbols.Addr
	labels [Count]detour.FallbackLabels
	// caught has for each signal the action that each fallback handler leads to, in the
	// order in which they were laid.
	caught map[syscall.Signal][]detour.Action
	inUse  bool // a thread is in one
	taken  bool // Adopt has found them: they stay
	stays  bool // the program may call one still: Remove has said so
}

// New is the fallback handlers of a process before they are laid (Lay) or found (Find).
func New(p Process) *Fallbacks { return &Fallbacks{proc: p} }

// Inherited are the same fallback handlers in a forked child, whose memory and actions are
// copies of the parent's.
func (n *Fallbacks) Inherited(child Process) *Fallbacks {
	kid := *n
	kid.proc = child
	return &kid
}

// Code is where the fallback handlers' code is, Data where their data; 0: none were laid.
func (n *Fallbacks) Code() symbols.Addr { return n.code }

// Data is where the fallback handlers' data is.
func (n *Fallbacks) Data() symbols.Addr { return n.data }

// Signals are those that a fallback handler answers.
func (n *Fallbacks) Signals() iter.Seq[syscall.Signal] { return maps.Keys(n.caught) }

// Links are the addresses, in the process, of what the fallback handlers look at.
type Links struct {
	Table       symbols.Addr // detour.Table
	Steps       symbols.Addr // u64, how many threads execute a single instruction for the tracer
	Watched     symbols.Addr // u64, not 0 while debug registers are set
	Trampolines symbols.Addr // code whose int3s are return trampolines, of TrampolinesSize bytes
	// TrampolinesSize is 0 where there are none.
	TrampolinesSize uint64
}

// Lay lets every fallback handler know what to look at, and returns the page of code, which
// is to be written to the address code. data is a page that is writable, of
// zeros. The actions stay as they are (Catch).
func (n *Fallbacks) Lay(code, data symbols.Addr, to Links) ([]byte, error) {
	n.code, n.data = code, data
	n.caught = map[syscall.Signal][]detour.Action{}
	text := n.assemble()
	return text, n.connect(to)
}

// mostLeft bounds how many mappings Adopt looks at.
const mostLeft = 4096

// Adopt takes fallback handlers that an earlier kprobe has left to the program, as that
// may still call them, into use again: a program that changes its actions under each
// kprobe would have two pages more of each. It reports whether there were some that lead
// nowhere but to the program's actions, of this very code, with room for other actions.
// They stay: a thread may have been interrupted in one. note is called before they lead anywhere
// else: a later kprobe must find them then.
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

// free reports whether the code of fallback handlers lies where they should be, and
// nothing is connected to them.
func (n *Fallbacks) free() bool {
	now, want := make([]byte, Size), n.assemble()
	const head = 32 // enough to tell what else it is
	if m, err := n.proc.ReadMemory(now[:head], n.code); err != nil || m != head || !bytes.Equal(now[:head], want[:head]) {
		return false
	}
	if m, err := n.proc.ReadMemory(now, n.code); err != nil || m != Size || !bytes.Equal(now, want) {
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

// room reports whether each signal can be led to one more action.
func (n *Fallbacks) room() bool {
	for _, list := range n.caught {
		if len(list) == Count {
			return false
		}
	}
	return true
}

// assemble makes the page of code and the labels.
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

// Disconnect has the fallback handlers find nothing any more: each goes on to its action at
// once. What they looked at may be unmapped then.
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

// writer is the fallback handlers' data as detour wants it.
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

// index says which fallback handler's an action is, -1: none's. forced says that the kernel
// has reset it, which it does when a thread that blocks the signal raises it:
// that leaves the restorer (kernel/signal.c, force_sig_info_to_task).
func (n *Fallbacks) index(act detour.Action) (i int, forced bool) {
	for i, l := range n.labels {
		switch {
		case act.Handler == l.Handler:
			return i, false
		case act.Handler == 0 && act.Restorer == l.Restorer:
			return i, true
		}
	}
	return -1, false
}

// Catch has a fallback handler answer a signal, chained before what the program does on it.
// One that the program has replaced since gets the next fallback handler in front. changed
// says that the action was. t is a stopped thread of the process or nil.
//
// The error is ErrNone, or one of calling the process.
func (n *Fallbacks) Catch(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (changed bool, err error) {
	now, err := n.action(ctx, t, sig)
	if err != nil {
		return false, err
	}
	if i, forced := n.index(now); i >= 0 {
		if !forced || i >= len(n.caught[sig]) {
			return false, nil
		}
		_, err := n.swap(ctx, t, sig, n.labels[i].Action(n.caught[sig][i]))
		return true, err
	}
	i, err := n.lead(sig, now)
	if err != nil {
		return false, err
	}
	old, err := n.swap(ctx, t, sig, n.labels[i].Action(now))
	if err != nil || old == now {
		return true, err
	}
	// The program has set another one in between.
	if j, forced := n.index(old); j >= 0 && !forced {
		_, err = n.swap(ctx, t, sig, old)
		return true, err
	}
	n.caught[sig][i] = old
	return true, n.tell(i, sig, old)
}

// lead finds a fallback handler for an action: the one that leads there, or an unused one.
func (n *Fallbacks) lead(sig syscall.Signal, to detour.Action) (int, error) {
	list := n.caught[sig]
	for i := range list {
		if list[i] == to {
			return i, nil
		}
	}
	i := len(list)
	if i == Count {
		return 0, ErrNone
	}
	n.caught[sig] = append(list, to)
	return i, n.tell(i, sig, to)
}

// tell writes what fallback handler i leads to on a signal.
func (n *Fallbacks) tell(i int, sig syscall.Signal, act detour.Action) error {
	set := uint64(0)
	for s, list := range n.caught {
		if i < len(list) {
			set |= 1 << s
		}
	}
	w := &writer{n.proc, n.data, nil}
	d := detour.FallbackData{W: w, Off: i * dataStride}
	d.SetAction(int(sig), act)
	d.SetCaught(set)
	return w.err
}

// Remove gives the program its actions back. It reports whether a fallback handler's code
// may still be called: a handler that the program has put over the fallback handler may go
// on to it, a thread may be in it (Look). An error counts as that.
func (n *Fallbacks) Remove(ctx context.Context) (chained bool, err error) {
	defer func() { n.stays = chained }()
	var errs []error
	chained = n.inUse || n.taken
	for sig, list := range n.caught {
		now, err := n.action(ctx, nil, sig)
		if err != nil {
			errs = append(errs, err)
			chained = true
			continue
		}
		i, forced := n.index(now)
		switch {
		case i < 0 || i >= len(list):
			// SIG_DFL and SIG_IGN call nobody.
			chained = chained || now.Handler > 1 || len(list) > 1
			continue
		case forced:
			// Nothing leads to the fallback handler any more, nor to what the program had.
		case len(list) > 1:
			chained = true
		}
		back, err := n.leadsTo(i, sig)
		if err == nil {
			_, err = n.swap(ctx, nil, sig, back)
		}
		if err != nil {
			errs = append(errs, err)
			chained = true
		}
	}
	return chained, errors.Join(errs...)
}

// Adopted says that a killed kprobe had made these, which it didn't lay itself, be used again. They
// stay.
func (n *Fallbacks) Adopted() { n.taken = true }

// Stay reports whether the fallback handlers' pages stay in the process, as Remove has found.
func (n *Fallbacks) Stay() bool { return n.stays }

// Holds reports whether pc is in a fallback handler.
func (n *Fallbacks) Holds(pc symbols.Addr) bool {
	return n.code != 0 && pc >= n.code && pc < n.code+Size
}

// Look notes where a thread is that is about to be left, and gives where it has to go on
// once the fallback handlers are disconnected: what it is reading goes with kprobe's memory.
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

// Find makes these the fallback handlers that a killed kprobe laid, of which it reads what
// they lead to.
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

// leadsTo reads what fallback handler i leads to: SA_RESETHAND may have changed it.
func (n *Fallbacks) leadsTo(i int, sig syscall.Signal) (detour.Action, error) {
	b := make([]byte, detour.FallbackDataSize)
	if _, err := n.proc.ReadMemory(b, n.data+symbols.Addr(i*dataStride)); err != nil {
		return detour.Action{}, fmt.Errorf("read the fallback handler's data: %w", err)
	}
	return detour.FallbackAction(b, int(sig)), nil
}

func (n *Fallbacks) action(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (detour.Action, error) {
	act, err := n.proc.Sigaction(ctx, t, sig)
	return fallbackAction(act), err
}

func (n *Fallbacks) swap(ctx context.Context, t *tracee.Thread, sig syscall.Signal, act detour.Action) (detour.Action, error) {
	old, err := n.proc.SwapSigaction(ctx, t, sig, tracee.Sigaction{
		Handler: symbols.Addr(act.Handler), Flags: act.Flags, Restorer: symbols.Addr(act.Restorer), Mask: act.Mask,
	})
	return fallbackAction(old), err
}

func fallbackAction(a tracee.Sigaction) detour.Action {
	return detour.Action{Handler: uint64(a.Handler), Flags: a.Flags, Restorer: uint64(a.Restorer), Mask: a.Mask}
}
