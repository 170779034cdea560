//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// Debug registers
//
// Each thread has debug registers of its own. The kernel keeps them after the tracer's death,
// gives none to a new thread, and clears them at exec. So the set of watched memory belongs to
// a process, and every thread gets it before it leaves a stop (cont): a new thread before its
// first instruction, and one that could not be stopped when it does stop.
//
// The trap comes after the accessing instruction, as a SIGTRAP that the kernel forces on the
// thread, like that of an int3. Accesses that the kernel makes for the thread, in a system
// call, raise no signal.

// Watchpoint is memory that a debug register of each thread watches. The zero value watches
// nothing.
type Watchpoint struct {
	Addr  symbols.Addr // divisible by Len
	Len   int          // 1, 2, 4 or 8 bytes
	Reads bool         // reads, too, not writes alone
}

// WatchSet is what the debug registers of a thread watch, by register number.
type WatchSet [4]Watchpoint

// ErrNoDebugRegisters says that the kernel, or the machine under it, provides no debug register
// of this kind.
var ErrNoDebugRegisters = errors.New("memory can't be watched, because no debug register is to be had here")

// ErrDebugRegistersTaken says that another user has the thread's debug registers:
// perf_event_open(2), called by the program or by a profiler.
var ErrDebugRegistersTaken = errors.New("the debug registers are taken, by a user of perf_event_open(2)")

// Watcher is a Handler that is told of accesses to memory that is watched.
type Watcher interface {
	Handler
	// Watched is called when a thread has executed an instruction that accessed watched
	// memory. hits are the numbers of the debug registers. The thread's registers are those
	// after the instruction. If sure is false, the processor has not said which registers
	// saw the access, and hits are all that may have.
	Watched(t *Thread, hits uint8, sure bool)
	// Unwatched is called if a thread's debug registers can't be set. The thread runs on,
	// and its accesses are not seen.
	Unwatched(t *Thread, err error)
}

// Watch makes every thread of the process watch set, also threads to come; nil is nothing.
// Threads are stopped for it. Errors are ErrNoDebugRegisters, ErrDebugRegistersTaken and those
// of stopping. After an error all threads watch what they did before; a *NotStoppedError names
// threads that will watch it before they run on.
func (p *Process) Watch(ctx context.Context, set *WatchSet) error {
	return p.tr.Do(func() error { return p.watch(ctx, set) })
}

func (p *Process) watch(ctx context.Context, set *WatchSet) error {
	was := p.watches
	return p.withStopped(ctx, func(stopped []*Thread) error {
		for _, t := range stopped {
			// The numbers of registers will mean other memory.
			if t.waitsWatched() {
				p.tr.tellWatched(t)
			}
		}
		p.watches = set
		for _, t := range stopped {
			if err := t.debug(); err != nil && !errors.Is(err, ErrGone) {
				p.watches = was
				for _, o := range stopped {
					_ = o.debug() // can't fail: it had them before
				}
				return err
			}
		}
		return nil
	})
}

// debug gives the stopped thread the debug registers that its process wants.
func (t *Thread) debug() error { return t.setDebug(t.p.watches) }

// debugOrTell is debug for a thread that is about to run.
func (t *Thread) debugOrTell() {
	if t.watches == t.p.watches {
		return
	}
	set := t.p.watches
	if err := t.setDebug(set); err != nil && !errors.Is(err, ErrGone) {
		t.watches = set // so that it isn't tried again at each stop
		if w, ok := t.p.tr.handler.(Watcher); ok {
			w.Unwatched(t, err)
		}
	}
}

// ClearWatches makes the stopped thread's process watch nothing, and clears the thread's debug
// registers, whoever set them.
func (t *Thread) ClearWatches() error {
	t.p.watches = nil
	dr7, err := t.debugRegister(debugControl)
	if err != nil {
		return err
	}
	if dr7&debugEnabled != 0 {
		t.watches = &WatchSet{}
	}
	return t.setDebug(nil)
}

// Numbers of registers, and bits of DR6 and DR7 (Intel SDM vol. 3, 19.2).
const (
	debugStatus    = 6
	debugControl   = 7
	debugEnabled   = 0xff
	debugHits      = 0xf
	debugWrite     = 1
	debugReadWrite = 3
	debugKinds     = 16 // 4 bits each
)

// debugOffset is where struct user has u_debugreg (arch/x86/include/asm/user_64.h).
const debugOffset = 848

func (s *WatchSet) control() (dr7 uint64) {
	lengths := map[int]uint64{1: 0, 2: 1, 4: 3, 8: 2}
	for i, w := range s {
		if w.Len == 0 {
			continue
		}
		kind := uint64(debugWrite)
		if w.Reads {
			kind = debugReadWrite
		}
		dr7 |= 1<<(2*i) | (kind|lengths[w.Len]<<2)<<(debugKinds+4*i)
	}
	return dr7
}

// setDebug sets the debug registers of the stopped thread. After an error it has none.
func (t *Thread) setDebug(set *WatchSet) error {
	if t.watches == set {
		return nil
	}
	if t.watches != nil {
		// The kernel may refuse a change of an enabled register, so all are disabled first.
		if err := t.setDebugRegister(debugControl, 0); err != nil {
			return err
		}
	}
	t.watches = nil
	if set == nil {
		return nil
	}
	for i, w := range set {
		if w.Len == 0 {
			continue
		}
		if err := t.setDebugRegister(i, uint64(w.Addr)); err != nil {
			return err
		}
	}
	if err := t.setDebugRegister(debugControl, set.control()); err != nil {
		return err
	}
	t.watches = set
	return nil
}

func (t *Thread) setDebugRegister(n int, v uint64) error {
	e := ptrace(unix.PTRACE_POKEUSR, t.tid, debugOffset+8*uintptr(n), uintptr(v))
	switch e {
	case 0:
		return nil
	case syscall.ENOSPC, syscall.EBUSY:
		return fmt.Errorf("thread %d: %w", t.tid, ErrDebugRegistersTaken)
	case syscall.EINVAL, syscall.EIO, syscall.EOPNOTSUPP, syscall.ENODEV:
		return fmt.Errorf("thread %d: %w (%v)", t.tid, ErrNoDebugRegisters, e)
	}
	return t.failed("pokeusr", e)
}

func (t *Thread) debugRegister(n int) (uint64, error) {
	v, e := peekUser(t.tid, debugOffset+8*uintptr(n))
	if e != 0 {
		return 0, t.failed("peekusr", e)
	}
	return v, nil
}

// noteWatched notes, at a stop that may be an access to watched memory, which registers saw it.
// An injected call would change that.
func (t *Thread) noteWatched() {
	t.hits, t.watching, t.told = 0, t.watches, false
	if t.watches == nil || t.status>>16 != 0 || t.status.StopSignal() != syscall.SIGTRAP {
		return
	}
	if v, err := t.debugRegister(debugStatus); err == nil {
		t.hits = uint8(v & debugHits)
	}
}

// wasWatched reports whether the present stop, whose siginfo has been read, follows an access
// to watched memory. alone reports that it has no other cause.
func (t *Thread) wasWatched() (hit, alone bool) {
	if t.si.Signal() != syscall.SIGTRAP || t.watching == nil && !t.p.strayWatches {
		return false, false
	}
	switch t.si.Code() {
	case trapHwbkpt:
		return true, true
	case trapTrace:
		return t.hits != 0, false
	case trapBrkpt:
		untold := !t.behindSyscall() && !t.behindIcebp()
		return untold, untold && !t.stepsItself()
	}
	return false, false
}

// behindIcebp reports whether the instruction before the thread's next one is an int1. Its trap
// looks the same as that of a debug register whose number is missing: virtual machines lose the
// number now and then, and the status register is zero.
func (t *Thread) behindIcebp() bool {
	return t.behind("\xf1")
}

// watched handles a stop that has no cause but an access to watched memory.
func (t *Tracer) watched(th *Thread) error {
	t.place.hit(th.tid, th.CPU)
	t.tellWatched(th)
	if th.gone || !th.stopped {
		return nil // the handler detached the process
	}
	if err := th.p.checkForced(th); err != nil {
		return err
	}
	if th.stepping {
		return t.obey(th, Step)
	}
	return t.obey(th, Resume)
}

// tellWatched tells the handler, once, of the access that the thread has just made.
func (t *Tracer) tellWatched(th *Thread) {
	w, ok := t.handler.(Watcher)
	if !ok || th.told || th.watching == nil {
		return
	}
	th.told = true
	if th.hits != 0 {
		w.Watched(th, th.hits, true)
		return
	}
	hits := uint8(0)
	for i, p := range th.watching {
		if p.Len != 0 {
			hits |= 1 << i
		}
	}
	w.Watched(th, hits, false)
}

// waitsWatched reports whether a stopped thread whose event isn't handled yet has just accessed
// watched memory.
func (t *Thread) waitsWatched() bool {
	if t.watching == nil && !t.p.strayWatches || !t.deferred || t.status>>16 != 0 ||
		t.status.StopSignal() != syscall.SIGTRAP || t.readSiginfo() != nil {
		return false
	}
	hit, _ := t.wasWatched()
	return hit
}

// isWatched reports whether the present stop, whose siginfo has been read, has no cause but an
// access to watched memory.
func (t *Thread) isWatched() bool {
	_, alone := t.wasWatched()
	return alone
}

// MayWatch reports whether a thread that could not be stopped may have debug registers set: by
// this tracer, or, as nobody can know, by one that was killed.
func (t *Thread) MayWatch() bool { return t.watches != nil || t.p.strayWatches }
