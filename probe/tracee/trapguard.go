//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"syscall"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// trapGuard watches what the kernel does to a program's SIGTRAP when an int3 is hit by a thread
// that blocks or ignores it. force_sig then resets the action to SIG_DFL and unblocks the
// signal, although the tracer takes it (kernel/signal.c, force_sig_info_to_task). The states:
//
//	guarded   the action is the one that GuardTrap read, or one that the program has set since
//	lost      a thread that blocked SIGTRAP stands at an int3. The action is SIG_DFL, with the
//	          previous flags, mask and restorer, and SIGTRAP isn't in that thread's mask
//	given up  the program, or a fallback handler that should end it, has set SIG_DFL: that
//	          stays until GuardTrap is called again
//	guarded   again, before the thread continues, and before any SIGTRAP is delivered to the
//	          program. Another thread that hit an int3 in between may have blocked the
//	          signal, too, and left no trace of that: it is doubtful
type trapGuard struct {
	armed bool
	act   Sigaction
	// eager: a thread that blocked nothing else has lost the action, so every stop is
	// looked at.
	eager bool
	// blocked are the masks, without SIGTRAP, of threads that blocked it.
	blocked map[uint64]bool
	// unclear is the action that was last lost without a sign of who did it. unclearSi is
	// the signal that was about to be delivered then.
	unclear   Sigaction
	unclearSi Siginfo
	stat      int // descriptor of the leader's stat file, 0: not open
}

// guardEvery is how many breakpoint stops of a thread that blocks no signal pass between two
// looks at the process's SIGTRAP action, after the first few, which are all looked at. Such a
// thread may have blocked SIGTRAP alone.
const (
	guardFirst = 4
	guardEvery = 64
)

// GuardTrap reads the process's action for SIGTRAP and keeps it: if the kernel resets it
// because a thread hits an int3 with SIGTRAP blocked or ignored, the action is set again before
// the thread continues, and the thread's mask is repaired. GuardTrap must be called before the
// first int3 is written, and again after the program's action was changed on its behalf. A
// program without a handler only loses the mask of that thread, which the kernel doesn't
// reveal; nothing is checked for it (Guarded).
//
// The action is checked at each stop of a thread that blocks other signals, as one that blocks
// all for a moment does, and before each delivery of a SIGTRAP. Of other threads the first few
// stops are checked, then one in 64.
func (p *Process) GuardTrap(ctx context.Context, t *Thread) error {
	act, err := p.Sigaction(ctx, t, syscall.SIGTRAP)
	if err != nil {
		return err
	}
	p.trap.armed, p.trap.act = act.Handler != 0, act
	return nil
}

// Guarded reports whether GuardTrap has found an action that can be lost.
func (p *Process) Guarded() bool { return p.trap.armed }

func (g *trapGuard) close() {
	if g.stat > 0 {
		_ = unix.Close(g.stat)
	}
	*g = trapGuard{}
}

// checkForced repairs the damage of the trap that stopped th and that is the tracer's.
func (p *Process) checkForced(th *Thread) error {
	if p.shares != nil {
		return nil // a vfork child's actions are its own, and short-lived
	}
	g := &p.trap
	if !g.armed {
		return nil
	}
	doubtful := th.doubtful
	th.doubtful = false
	mask, err := th.SigMask()
	if err != nil {
		return err
	}
	th.checks++
	if mask == 0 && !doubtful && !g.eager && th.checks > guardFirst && th.checks%guardEvery != 0 {
		return nil
	}
	lost, err := p.trapLost()
	switch {
	case err != nil:
		return nil // unreadable: the process is gone
	case lost && p.ownDefault(th):
		return nil
	case lost:
		blocked := g.act.Handler != 1 && (g.likelyBlocked(mask) || !doubtful && p.onlyOne(th))
		if blocked {
			g.learn(mask)
		}
		return th.repairTrap(blocked)
	case doubtful && g.likelyBlocked(mask):
		return th.SetSigMask(mask | sigBit(syscall.SIGTRAP))
	}
	return nil
}

// deliverTrap delivers to the program the SIGTRAP that stopped th. The kernel looks at the
// action once th has left its stop. Until th is in the handler, no other thread may run that
// would reset the action. So the others are stopped, the action is checked, and th runs to its
// handler's first instruction.
func (t *Tracer) deliverTrap(th *Thread) error {
	p := th.p
	switch {
	case th.gone || !th.stopped:
		return nil // the handler detached the process
	case p.shares != nil || !p.trap.armed || th.requeued || len(th.held)+len(th.owed) > 0:
		return t.obey(th, Deliver)
	case len(p.threads) == 1:
		if err := p.beforeTrap(th); err != nil {
			return err
		}
		return t.obey(th, Deliver)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	si := th.si
	err := p.stopAll(ctx)
	if late := (*NotStoppedError)(nil); err == nil || errors.As(err, &late) {
		if err = p.beforeTrap(th); err == nil {
			err = th.enterHandler(si)
		}
	}
	err = errors.Join(err, p.resumeAll())
	t.release(th) // its event is being handled: resumeAll leaves it stopped
	return err
}

// enterHandler lets the thread, alone, take the SIGTRAP that stopped it, and leaves it stopped
// after that: at its handler's first instruction, if there is a handler. A thread that has
// ended is no error.
func (t *Thread) enterHandler(si Siginfo) error {
	if !t.inDelivery() {
		// A call was injected: a stand-in has to bring it to another such stop.
		if unix.Tgkill(t.p.pid, t.tid, syscall.SIGTRAP) != nil {
			return nil
		}
		t.owed = append(t.owed, si)
		if err := t.lead(0); err != nil {
			return err
		}
		if err := t.request(unix.PTRACE_CONT, 0); err != nil {
			return err
		}
		t.ran()
		if !t.p.tr.pollFor(t, stopPatience) || !t.Stopped() {
			return nil
		}
		if t.status>>16 != 0 || t.status.StopSignal() != syscall.SIGTRAP || t.readSiginfo() != nil || !t.isStandIn(&t.si) {
			return nil // another signal is first: the stand-in is swapped when it comes
		}
		t.owed = t.owed[:len(t.owed)-1]
	}
	if e := setSiginfo(t.tid, &si); e != 0 {
		return t.failed("setsiginfo", e)
	}
	if err := t.lead(syscall.SIGTRAP); err != nil {
		return err
	}
	if err := t.request(unix.PTRACE_SINGLESTEP, uintptr(syscall.SIGTRAP)); err != nil {
		return err
	}
	t.ran()
	if !t.p.tr.pollFor(t, stopPatience) || !t.Stopped() {
		return nil
	}
	if t.status>>16 == 0 && t.status.StopSignal() == syscall.SIGTRAP && t.readSiginfo() == nil &&
		(t.si.Code() == int(syscall.SIGTRAP) || t.strayStep()) {
		t.status, t.deferred, t.haveSi = stopStatus, false, false // of the step
	}
	return nil
}

// beforeTrap makes sure that the program has its action when a SIGTRAP of its own is about to
// be delivered to th. If th hits an int3 of the program's own with the signal blocked, it dies,
// as without a tracer.
func (p *Process) beforeTrap(th *Thread) error {
	lost, err := p.trapLost()
	if err != nil || !lost {
		return nil // unreadable: the process is gone
	}
	if th.si.Code() == siKernel && p.noneTrapped(th) {
		return nil
	}
	if p.ownDefault(th) {
		return nil
	}
	return th.repairTrap(false)
}

// ownDefault reports whether the program itself set the action to SIG_DFL, and gives the guard
// up then. The kernel's reset leaves the flags, the restorer and the mask of a handler, and no
// handler is without a restorer. If the program may have set another handler since, the origin
// of SIG_DFL isn't known. Then the action is set once, and SIG_DFL is the program's own if the
// same signal meets it again.
func (p *Process) ownDefault(th *Thread) bool {
	g := &p.trap
	now, err := p.Sigaction(context.Background(), th, syscall.SIGTRAP)
	if err != nil || now.Handler != 0 || g.act.Handler == 1 {
		return false
	}
	forced := g.act
	forced.Handler = 0
	switch {
	case now == forced:
		return false
	case now.Flags&saRestorer == 0:
	case g.unclear != now || g.unclearSi != th.si:
		g.unclear, g.unclearSi = now, th.si
		return false
	}
	g.armed = false
	return true
}

// saRestorer is SA_RESTORER of x86-64.
const saRestorer = 0x04000000

// repairTrap is RepairForced for SIGTRAP. After it every other thread is doubtful until its
// next stop.
func (t *Thread) repairTrap(blocked bool) error {
	if err := t.RepairForced(syscall.SIGTRAP, t.p.trap.act, blocked); err != nil {
		return err
	}
	for _, o := range t.p.threads {
		o.doubtful = o != t
	}
	return nil
}

// onlyOne reports whether only th can have lost the action: no other thread has hit an int3
// that hasn't been looked at. The others are stopped for this, since one may be between the
// exception and its stop.
func (p *Process) onlyOne(th *Thread) bool {
	if len(p.threads) == 1 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	one := true
	// Threads that do not stop are in the kernel, and at no int3.
	_ = p.withStopped(ctx, func(stopped []*Thread) error {
		one = p.noneTrapped(th)
		return nil
	})
	return one
}

// noneTrapped reports whether no thread except th has hit an int3 that hasn't been looked at.
// All must be stopped.
func (p *Process) noneTrapped(th *Thread) bool {
	for _, o := range p.threads {
		if o != th && o.Stopped() && o.AtTrap() {
			return false
		}
	}
	return true
}

// closeGuard restores the program's action if it is lost, and the masks of the threads that
// have lost it. All threads must be stopped, about to be left.
func (p *Process) closeGuard(ctx context.Context) {
	g := &p.trap
	if !g.armed || p.shares != nil {
		return
	}
	lost, err := p.trapLost()
	lost = lost && err == nil
	for _, th := range p.threads {
		if !th.Stopped() || !th.AtTrap() {
			continue
		}
		mask, err := th.SigMask()
		if err == nil && (g.likelyBlocked(mask) || lost && g.act.Handler != 1 && !th.doubtful && p.noneTrapped(th)) {
			_ = th.SetSigMask(mask | sigBit(syscall.SIGTRAP)) // fails only if it is gone
		}
	}
	if lost {
		// Without a thread that is fit there is none that runs.
		_ = p.SetSigaction(ctx, nil, syscall.SIGTRAP, g.act)
	}
}

// likelyBlocked reports whether a thread, whose given mask lacks SIGTRAP, probably blocked it
// when it hit an int3: either others with that mask did, or the thread blocks everything except
// what can't be blocked, or what the C library keeps to itself (32 to 34).
func (g *trapGuard) likelyBlocked(mask uint64) bool {
	const never = 1<<(syscall.SIGKILL-1) | 1<<(syscall.SIGSTOP-1) | 7<<(32-1)
	return mask != 0 && g.blocked[mask] || mask|never|1<<(syscall.SIGTRAP-1) == ^uint64(0)
}

// learn notes the mask of a thread that blocked SIGTRAP.
func (g *trapGuard) learn(mask uint64) {
	if mask == 0 {
		g.eager = true
	}
	if g.blocked == nil || len(g.blocked) > 64 {
		g.blocked = map[uint64]bool{}
	}
	g.blocked[mask] = true
}

// trapLost reports whether the process's action for SIGTRAP is SIG_DFL although it was another.
func (p *Process) trapLost() (bool, error) {
	g := &p.trap
	if g.stat == 0 {
		// The leader's own file: that of the process adds up all threads. It can be read as long as
		// the process exists, even if the leader has ended.
		fd, err := unix.Open(procfs.Thread(p.pid, p.pid).Path("stat"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return false, ErrGone
		}
		g.stat = fd
	}
	var b [procfs.StatSize]byte
	n, err := unix.Pread(g.stat, b[:], 0)
	if err != nil {
		return false, ErrGone
	}
	field := procfs.FieldSigCatch
	if g.act.Handler == 1 {
		field = procfs.FieldSigIgn
	}
	st, _ := procfs.ParseStat(b[:n])
	set, ok := st.Uint(field)
	if !ok {
		return false, ErrGone
	}
	return set&sigBit(syscall.SIGTRAP) == 0, nil
}
