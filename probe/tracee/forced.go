//go:build linux && amd64

package tracee

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"syscall"

	"kprobe/symbols"
)

// Sigaction is what a process does on a signal, as struct kernel_sigaction of
// x86-64 has it.
type Sigaction struct {
	Handler  symbols.Addr // 0 is SIG_DFL, 1 SIG_IGN
	Flags    uint64
	Restorer symbols.Addr
	Mask     uint64
}

// Sigaction asks the process what it does on sig, by an injected call in t, or
// in a thread of its choice if t is nil.
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

// SetSigaction makes act what the process does on sig, by an injected call.
func (p *Process) SetSigaction(ctx context.Context, t *Thread, sig syscall.Signal, act Sigaction) error {
	_, err := p.SwapSigaction(ctx, t, sig, act)
	return err
}

// SwapSigaction is SetSigaction that gives the action which act replaced: the
// kernel does both in one, so that none that the program sets meanwhile gets
// lost.
func (p *Process) SwapSigaction(ctx context.Context, t *Thread, sig syscall.Signal, act Sigaction) (Sigaction, error) {
	var werr error
	var b [sigactionSize]byte
	_, err := p.syscallWith(ctx, t, syscall.SYS_RT_SIGACTION, func(r *room) []uintptr {
		if werr = p.WriteMemory(act.bytes(), symbols.Addr(r.buffer)); werr != nil {
			return []uintptr{0} // signal 0 is refused
		}
		old := r.buffer + sigactionSize
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

// trapGuard watches what the kernel does to a program's SIGTRAP when an int3
// is hit by a thread that blocks or ignores it: force_sig resets the action to
// SIG_DFL and unblocks the signal, although the tracer takes it (kernel/
// signal.c, force_sig_info_to_task).
type trapGuard struct {
	armed   bool
	act     Sigaction
	eager   bool // it has happened: look at every stop
	stops   uint64
	checked uint64 // stops when the action was last seen intact
}

// guardEvery is how many breakpoint stops of a thread go by between two looks
// at the process's SIGTRAP action, once the first few were looked at.
const (
	guardFirst = 4
	guardEvery = 64
)

// GuardTrap reads what the process does on SIGTRAP and keeps it so: where the
// kernel resets it because a thread hits an int3 with SIGTRAP blocked or
// ignored, it is set again before the thread runs on, and the thread's mask is
// repaired. It must be called before the first int3 is written, and again
// after the program's action was changed on its behalf. A program that has no
// handler loses nothing but the mask of that thread, which the kernel doesn't
// let us know; no look is spent on it.
//
// The first stops of each thread are looked at, then one in 64, and all from
// the first loss on.
func (p *Process) GuardTrap(ctx context.Context, t *Thread) error {
	act, err := p.Sigaction(ctx, t, syscall.SIGTRAP)
	if err != nil {
		return err
	}
	p.trap = trapGuard{armed: act.Handler != 0, act: act}
	return nil
}

// checkForced repairs what the trap that stopped th has cost the program.
func (p *Process) checkForced(th *Thread) error {
	if p.shares != nil {
		return nil // a vfork child's actions are its own, and short-lived
	}
	g := &p.trap
	g.stops++
	if !g.armed {
		return nil
	}
	th.checks++
	if !g.eager && th.checks > guardFirst && th.checks%guardEvery != 0 {
		return nil
	}
	lost, err := p.actionLost(syscall.SIGTRAP, g.act)

	if err != nil || !lost {
		g.checked = g.stops
		return nil // unreadable: the process is gone
	}
	// Was it this stop? If the one before was seen intact, yes.
	exact := g.checked+1 == g.stops
	g.checked = g.stops
	g.eager = true
	return th.RepairForced(syscall.SIGTRAP, g.act, exact && g.act.Handler != 1)
}

// RepairForced undoes in the stopped thread what the kernel does when it must
// force a signal that is blocked or ignored: it sets the action again, and
// blocks the signal if the thread had it blocked.
func (t *Thread) RepairForced(sig syscall.Signal, act Sigaction, blocked bool) error {
	if blocked {
		m, err := t.SigMask()
		if err != nil {
			return err
		}
		if err := t.SetSigMask(m | sigBit(sig)); err != nil {
			return err
		}
	}
	return t.p.SetSigaction(context.Background(), t, sig, act)
}

// actionLost reports whether the process's action on sig, once act, is SIG_DFL.
func (p *Process) actionLost(sig syscall.Signal, act Sigaction) (bool, error) {
	var buf [pageSize]byte
	status, err := readSmall(procPath(p.pid, "status"), buf[:])
	if err != nil {
		return false, err
	}
	name := "SigCgt"
	if act.Handler == 1 {
		name = "SigIgn"
	}
	m, err := strconv.ParseUint(statusField(bytes.TrimSpace(status), name), 16, 64)
	if err != nil {
		return false, err
	}
	return m&sigBit(sig) == 0, nil
}
