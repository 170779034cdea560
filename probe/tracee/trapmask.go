//go:build linux && amd64

package tracee

import (
	"context"
	"syscall"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// OpenTraps unblocks SIGTRAP in the threads that block it, until they are left. A thread that
// blocks it can hit an int3 only while a tracer lives. Otherwise the kernel resets the action
// and kills the process, whatever its handler is (kernel/signal.c, force_sig_info_to_task). The
// states of such a thread:
//
//	open    SIGTRAP is not in its mask. The original mask is remembered
//	left    the mask is as it was, unless the program has set another since, or the thread has
//	        returned from the signal handler for which the kernel blocked SIGTRAP
//
// If the program asks meanwhile, it finds SIGTRAP unblocked, and if the tracer is killed, it
// stays unblocked. Threads that block it later are not looked at again. A process without such
// threads isn't stopped.
//
// OpenTraps must be called before the first int3 is written. Threads that can't be stopped in
// time stay as they are, and are no error.
func (p *Process) OpenTraps(ctx context.Context) error {
	return p.tr.Do(func() error {
		blocked := false
		for _, th := range p.threads {
			blocked = blocked || th.blocksTrap()
		}
		if !blocked {
			return nil
		}
		err := p.withStopped(ctx, func(stopped []*Thread) error {
			for _, th := range stopped {
				th.openTrap()
			}
			return nil
		})
		if _, late := err.(*NotStoppedError); late {
			return nil
		}
		return err
	})
}

// blocksTrap reads whether the thread, which may run, blocks SIGTRAP.
func (t *Thread) blocksTrap() bool {
	st, _ := procfs.Thread(t.p.pid, t.tid).Status()
	m, _ := st.Set("SigBlk") // empty if the thread is gone
	return m&sigBit(syscall.SIGTRAP) != 0
}

// openTrap takes SIGTRAP from the stopped thread's mask.
func (t *Thread) openTrap() {
	m, err := t.SigMask()
	if err != nil || m&sigBit(syscall.SIGTRAP) == 0 {
		return
	}
	if t.SetSigMask(m&^sigBit(syscall.SIGTRAP)) == nil {
		t.trapMask, t.trapFrame = m, t.unblockingFrame()
	}
}

// unblockingFrame returns the address of the innermost signal frame whose handler's return
// removes SIGTRAP from the stopped thread's mask; 0 if there is none.
func (t *Thread) unblockingFrame() (at symbols.Addr) {
	r, err := t.Regs()
	if err != nil {
		return 0 // gone
	}
	interrupted(t.p, symbols.Addr(r.Rsp), func(f *signalFrame) bool {
		if f.mask&sigBit(syscall.SIGTRAP) == 0 {
			at = f.at
		}
		return at != 0
	})
	return at
}

// hasReturned reports whether the stopped thread has returned from the signal handler whose
// frame lay at an address.
func (t *Thread) hasReturned(frame symbols.Addr) bool {
	r, err := t.Regs()
	return err == nil && frame != 0 && (symbols.Addr(r.Rsp) > frame || frame-symbols.Addr(r.Rsp) > interruptedReach)
}

// closeTrap restores the stopped thread's mask if it is still the one that openTrap made. sig
// is the signal with which the thread is left: a SIGTRAP must get through.
func (t *Thread) closeTrap(sig syscall.Signal) {
	if t.trapMask == 0 || sig == syscall.SIGTRAP || t.p.keepsTraps {
		return
	}
	if m, err := t.SigMask(); err == nil && m == t.trapMask&^sigBit(syscall.SIGTRAP) && !t.hasReturned(t.trapFrame) {
		_ = t.SetSigMask(t.trapMask) // fails only if the thread is gone
	}
	t.trapMask = 0
}

// KeepTrapsOpen keeps SIGTRAP unblocked in the threads even when the process is left, because
// an int3 may have to stay in its text.
func (p *Process) KeepTrapsOpen() { p.keepsTraps = true }
