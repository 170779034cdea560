//go:build linux && amd64

package tracee

import (
	"context"
	"encoding/binary"
	"fmt"
	"syscall"

	"kprobe/symbols"
)

// Sigaction is a process's action for a signal, struct kernel_sigaction of x86-64.
type Sigaction struct {
	Handler  symbols.Addr // 0 is SIG_DFL, 1 SIG_IGN
	Flags    uint64
	Restorer symbols.Addr
	Mask     uint64
}

// Sigaction returns the process's action for sig. It injects a call in t, or in a thread of its
// choice if t is nil.
func (p *Process) Sigaction(ctx context.Context, t *Thread, sig syscall.Signal) (Sigaction, error) {
	var b [sigactionSize]byte
	_, err := p.syscallWith(ctx, t, syscall.SYS_RT_SIGACTION, func(r *room) []uintptr {
		r.after = func() error {
			_, err := p.ReadMemory(b[:], symbols.Addr(r.buffer))
			return err
		}
		return []uintptr{uintptr(sig), 0, uintptr(r.buffer), 8}
	})
	if err != nil {
		return Sigaction{}, err
	}
	return parseSigaction(b[:]), nil
}

// SetSigaction makes act the process's action for sig, by an injected call.
func (p *Process) SetSigaction(ctx context.Context, t *Thread, sig syscall.Signal, act Sigaction) error {
	_, err := p.SwapSigaction(ctx, t, sig, act, 0)
	return err
}

// SwapSigaction is SetSigaction and returns the previous action. The kernel does both in one
// step, so an action that the program sets meanwhile isn't lost. It writes the previous action to
// the address to in the process, where it stays; 0: nowhere that stays.
func (p *Process) SwapSigaction(ctx context.Context, t *Thread, sig syscall.Signal, act Sigaction, to symbols.Addr) (Sigaction, error) {
	var werr error
	var b [sigactionSize]byte
	_, err := p.syscallWith(ctx, t, syscall.SYS_RT_SIGACTION, func(r *room) []uintptr {
		if werr = p.WriteMemory(act.bytes(), symbols.Addr(r.buffer)); werr != nil {
			return []uintptr{0} // signal 0 is refused
		}
		old := r.buffer + sigactionSize
		if to != 0 {
			old = uint64(to)
		}
		r.after = func() error {
			_, err := p.ReadMemory(b[:], symbols.Addr(old))
			return err
		}
		return []uintptr{uintptr(sig), uintptr(r.buffer), uintptr(old), 8}
	})
	if werr != nil {
		return Sigaction{}, fmt.Errorf("set the action of signal %d: %w", sig, werr)
	}
	if err != nil {
		return Sigaction{}, err
	}
	return parseSigaction(b[:]), nil
}

// sigactionSize is the size of struct kernel_sigaction.
const sigactionSize = 32

func parseSigaction(b []byte) Sigaction {
	le := binary.LittleEndian
	return Sigaction{
		Handler:  symbols.Addr(le.Uint64(b[0:])),
		Flags:    le.Uint64(b[8:]),
		Restorer: symbols.Addr(le.Uint64(b[16:])),
		Mask:     le.Uint64(b[24:]),
	}
}

func (a Sigaction) bytes() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, uint64(a.Handler))
	b = le.AppendUint64(b, a.Flags)
	b = le.AppendUint64(b, uint64(a.Restorer))
	return le.AppendUint64(b, a.Mask)
}

// RepairForced undoes what the kernel does to the stopped thread when it forces a signal that
// is blocked or ignored: it sets the action again, and blocks the signal if the thread had it
// blocked.
func (t *Thread) RepairForced(sig syscall.Signal, act Sigaction, blocked bool) error {
	if blocked {
		if err := t.BlockSignal(sig); err != nil {
			return err
		}
	}
	return t.p.SetSigaction(context.Background(), t, sig, act)
}

// BlockSignal blocks a signal in the stopped thread.
func (t *Thread) BlockSignal(sig syscall.Signal) error {
	m, err := t.SigMask()
	if err != nil {
		return err
	}
	return t.SetSigMask(m | sigBit(sig))
}
