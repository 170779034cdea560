package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Records that a signal handler has jumped out of
//
// While a process is let go of, a signal handler may interrupt a detour and leave it by
// siglongjmp. The record that the detour has reserved then stays unfinished, and blocks the ring
// behind it. The reader asks about such a record after a second. Then the threads are stopped. The
// record is abandoned if nothing leads its thread to it: the thread is in no detour that writes
// it, and in no handler that will return to one. The thread may well be in a detour: one that is
// called all the time is hardly ever found elsewhere.

// leftRecords says which unfinished records threads have abandoned.
type leftRecords struct {
	mu      sync.Mutex
	looking bool                            // lookForLeft is running
	next    time.Time                       // it isn't called again before
	asked   map[recordPlace]ring.Unfinished // since it began
	left    map[recordPlace]bool            // that it last found
}

// recordPlace is where a record is. A ring's positions never come again.
type recordPlace struct {
	ring int
	at   uint64
}

// mostAsked bounds how many records lookForLeft compares with the threads' registers.
const mostAsked = 1 << 10

// lookAgain is how long after a look the next one comes at the earliest: a handler may stay for long in
// a detour that it has interrupted, and each look stops all threads.
const lookAgain = 100 * time.Millisecond

// jumpedOut reports whether a living thread has abandoned an unfinished record. If that isn't known,
// it returns false and finds out in another goroutine; the caller asks again.
func (t *Feed) jumpedOut(u ring.Unfinished) bool {
	x, at := &t.left, recordPlace{u.Ring, u.At}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.left[at] {
		delete(x.left, at)
		return true
	}
	if x.asked == nil {
		x.asked = map[recordPlace]ring.Unfinished{}
	}
	if len(x.asked) < mostAsked {
		x.asked[at] = u
	}
	if !x.looking && !time.Now().Before(x.next) {
		x.looking = true
		go t.lookForLeft()
	}
	return false
}

// lookForLeft stops the target's threads and notes which of the records that were asked about are
// abandoned.
func (t *Feed) lookForLeft() {
	var left map[recordPlace]bool
	_ = t.engine.Tracer.Do(func() error { // fails only once the session is closed
		tg := t.engine.Targets[t.Pid]
		if tg == nil || tg.Feed != t || tg.Area == nil || t.engine.Closed {
			return nil
		}
		ctx := context.WithoutCancel(t.engine.Run)
		if tg.unattended.letGo {
			if err := tg.seizeAgain(ctx); err != nil {
				t.engine.Logf("whether records are unfinished for good: %v", err)
				return nil
			}
			tg.postponeLetGo()
		}
		tg.takeForked(ctx)
		t.left.mu.Lock()
		asked := t.left.asked
		t.left.asked = nil
		t.left.mu.Unlock()
		err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			left = tg.leftOf(asked, stopped)
			return nil
		})
		return tracee.IgnoreLate(err)
	})
	t.left.mu.Lock()
	defer t.left.mu.Unlock()
	t.left.left, t.left.looking, t.left.next = left, false, time.Now().Add(lookAgain)
}

// leftOf returns which of the asked records, which are those of the target's threads, are certainly
// abandoned: their threads are stopped, and no thread goes on with one. A child of vfork has the
// number of its parent's thread, so all must be stopped if there is one.
func (tg *Target) leftOf(asked map[recordPlace]ring.Unfinished, stopped []*tracee.Thread) map[recordPlace]bool {
	all, alone := tg.allStopped(stopped), len(tg.main.Proc.Sharers()) == 0
	here := map[uint32]bool{}
	var kept []keptWords
	for _, th := range stopped {
		words, err := tg.keptBy(th)
		if err != nil {
			all = false // gone
			continue
		}
		kept = append(kept, words...)
		here[tg.Feed.Numbers.Inside(th.TID())] = true
	}
	left := map[recordPlace]bool{}
	for at, u := range asked {
		known := u.TID == 0 && all || here[u.TID] && (alone || all)
		left[at] = known && !slices.ContainsFunc(kept, func(k keptWords) bool {
			return slices.ContainsFunc(k.words[:], func(v uint64) bool { return u.Keeps(v, k.reserving) })
		})
	}
	return left
}

// keptWords are the registers with which a thread goes on in a detour, or code that detours share.
type keptWords struct {
	words     [16]uint64
	reserving bool // room for a record may just have been reserved (detour.MayReserve)
}

// keptBy returns the registers of all detours with which a stopped thread goes on: it is in one, or a
// signal handler will return there. The error is that of tracee.Thread.Regs.
func (tg *Target) keptBy(th *tracee.Thread) (list []keptWords, err error) {
	err = th.Contexts(func(r *unix.PtraceRegs) {
		pc := symbols.Addr(r.Rip)
		if !tg.Area.IsCode(pc) && !tg.Area.Fallbacks.Holds(pc) {
			return
		}
		var regs fetch.Regs
		tracee.FetchRegs(r, &regs)
		k := keptWords{words: regs.GPR, reserving: true}
		if st := tg.Patches.StageAt(pc); !st.None() {
			d := st.Detour()
			k.reserving = d.MayReserve(r.Rip)
		}
		list = append(list, k)
	})
	return list, err
}
