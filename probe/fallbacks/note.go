package fallbacks

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"syscall"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a change of an action is noted
//
// A fallback handler that was never the program's action can't be called, nor can one whose action
// was given back. A kprobe that is killed in between must let the next one know which of the two
// it is: the action alone doesn't tell, as the program may have replaced it. So the page of data
// has a note behind the fallback handlers' data.
//
//	begun    the note names the signal and the fallback handler, and has bytes that no action has
//	changed  the kernel has changed the action, and has written the previous one over these bytes
//	known    the fallback handler's data say which signals it answers, the note is empty
//
// The injected call may be made after kprobe was killed. Who reads the note has waited for it.

// The note, after the data of the fallback handlers, little-endian:
//
//	0  u64 the signal, + 256 * the fallback handler's number, + noteOut; 0: there is no note
//	8  the previous action, or unset
const (
	noteAt   = Count * dataStride
	noteSize = 8 + 32
	noteOut  = 1 << 16
)

// unset stands where the previous action will be: its mask has SIGKILL, which no action's has.
var unset = bytes.Repeat([]byte{0xff}, noteSize-8)

// A page holds the data and the note, or the line fails to compile.
const _ = uint(Size - noteAt - noteSize)

// note is a change of an action: a fallback handler becomes it, or goes.
type note struct {
	sig     syscall.Signal
	handler int
	out     bool // the fallback handler goes
	act     detour.Action
}

// swapNoted changes an action so that the next kprobe can tell whether it was changed if this one
// is killed. After it the data must say which signals the fallback handler answers.
func (n *Fallbacks) swapNoted(ctx context.Context, t *tracee.Thread, c note) (old detour.Action, err error) {
	w := &writer{n.proc, n.data, nil}
	w.Put(noteAt+8, unset)
	what := uint64(c.sig) | uint64(c.handler)<<8
	if c.out {
		what |= noteOut
	}
	w.Put(noteAt, binary.LittleEndian.AppendUint64(nil, what))
	if w.err != nil {
		return old, w.err
	}
	if old, err = n.swapTo(ctx, t, c.sig, c.act, n.data+noteAt+8); err != nil || c.out {
		return old, err
	}
	return old, n.clearNote()
}

func (n *Fallbacks) clearNote() error { return n.proc.WriteMemory(make([]byte, 8), n.data+noteAt) }

// settle finishes the change that a killed kprobe was making.
func (n *Fallbacks) settle() error {
	if n.data == 0 {
		return nil
	}
	b := make([]byte, noteSize)
	if _, err := n.proc.ReadMemory(b, n.data+noteAt); err != nil {
		return err
	}
	what := binary.LittleEndian.Uint64(b)
	if what == 0 {
		return nil
	}
	changed := !bytes.Equal(b[8:], unset)
	if out := what&noteOut != 0; out == changed {
		return n.forget(syscall.Signal(what&0xff), int(what>>8&0xff))
	}
	return n.clearNote()
}

// forget notes that fallback handler i, the last one of a signal, can't be called on it.
func (n *Fallbacks) forget(sig syscall.Signal, i int) error {
	if list := n.caught[sig]; i != len(list)-1 {
		return n.clearNote()
	}
	if n.caught[sig] = n.caught[sig][:i]; i == 0 {
		delete(n.caught, sig)
	}
	if err := n.tellCaught(i); err != nil {
		return err
	}
	return n.clearNote()
}

// mostBeyond bounds how many fallback handlers beyond follows.
const mostBeyond = 64

// beyond is the program's own action, where act is that of a fallback handler that leads nowhere
// else: of these, which are about to be, or of an earlier kprobe's that were left to the program.
func (n *Fallbacks) beyond(sig syscall.Signal, act detour.Action) detour.Action {
	for range mostBeyond {
		of := n
		if !n.Holds(symbols.Addr(act.Handler)) {
			code := symbols.Addr(act.Handler) &^ (Size - 1)
			of = &Fallbacks{proc: n.proc, code: code, data: code + Size}
			if !of.free() {
				break
			}
		}
		i, _ := of.index(act)
		if i < 0 {
			break
		}
		next, err := of.leadsTo(i, sig)
		if err != nil {
			break
		}
		act = next
	}
	return act
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
	return n.swapTo(ctx, t, sig, act, 0)
}

// swapTo is swap, but the kernel writes the previous action to an address in the process.
func (n *Fallbacks) swapTo(ctx context.Context, t *tracee.Thread, sig syscall.Signal, act detour.Action, to symbols.Addr) (detour.Action, error) {
	old, err := n.proc.SwapSigaction(ctx, t, sig, tracee.Sigaction{
		Handler: symbols.Addr(act.Handler), Flags: act.Flags, Restorer: symbols.Addr(act.Restorer), Mask: act.Mask,
	}, to)
	return fallbackAction(old), err
}

func fallbackAction(a tracee.Sigaction) detour.Action {
	return detour.Action{Handler: uint64(a.Handler), Flags: a.Flags, Restorer: uint64(a.Restorer), Mask: a.Mask}
}
