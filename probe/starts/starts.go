//go:build linux

// Package starts notices processes as they begin to run a program.
//
// It has three means, and uses the best one that its rights allow:
//
//   - a gate (fanotify, CAP_SYS_ADMIN): the kernel asks before a file is executed, and the
//     process waits in execve for the answer. Only the files themselves are marked, so no other
//     program on the machine ever waits. Each answer is given within a bounded time, whatever
//     the caller does. When the descriptor is closed, also by the end of this process, the
//     kernel answers by itself.
//   - news (the proc connector, CAP_NET_ADMIN in the initial namespaces): the kernel reports
//     each execve once it is done.
//   - looks at /proc, at intervals.
package starts

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"kprobe/internal/procfs"
)

// Want says which processes are wanted, and who is told. Its functions are called by
// several goroutines.
type Want struct {
	// Files are gated: regular files, by their paths.
	Files []string
	// Learn says that other files may be executed by processes that are wanted: those
	// that are seen are gated from then on.
	Learn bool
	// Hold is how long a process is held at most; 0 is HoldTime.
	Hold time.Duration
	// Is reports whether a process runs what is wanted.
	Is func(pid int) bool
	// Held is told of processes that wait in execve, of one of the files, until they are let
	// go. It is called by one goroutine, with all that have come.
	Held func(list []*Held)
	// Began is told of a process that Is wanted and that wasn't held, once for each execve
	// that is seen. It is called by one goroutine.
	Began func(pid int)
}

// Means is how starts are seen.
type Means uint8

// The means, from the worst to the best.
const (
	Looks Means = iota // at /proc, every LookEvery
	News               // by the kernel, after execve
	Gate               // by the kernel, before execve is done
)

// How often /proc is looked at: where nothing else tells of starts, and where it is only for
// what was missed.
const (
	LookEvery = 20 * time.Millisecond
	lookSlow  = 500 * time.Millisecond
)

// Watch is under way until Close.
type Watch struct {
	want  Want
	gate  *gate // nil: none
	news  *news // nil: none
	began chan int
	end   context.CancelFunc
	all   sync.WaitGroup
	// released counts the processes that were let go by the clock.
	released atomic.Int64

	mu   sync.Mutex
	seen map[int]uint64 // guarded by mu: processes that Began was told of, or that were held, by their start
	// since is when processes were first seen in /proc.
	since map[int]time.Time // guarded by mu; replaced by each look
}

// Begin begins to watch. Processes that run already and are wanted are told of by Began.
// It never fails: without rights it looks at /proc.
func Begin(want Want) *Watch {
	var g *gate
	var n *news
	if len(want.Files) > 0 || want.Learn {
		g, _ = openGate(want.Files) // without rights there is none
	}
	if g == nil || want.Learn {
		n, _ = openNews()
	}
	return begin(want, g, n)
}

func begin(want Want, g *gate, n *news) *Watch {
	ctx, end := context.WithCancel(context.Background())
	w := &Watch{want: want, gate: g, news: n, began: make(chan int, 1024), end: end, seen: map[int]uint64{}}
	if w.gate != nil {
		w.all.Go(func() { w.gate.ask(w) })
		w.all.Go(func() { w.gate.tell(w) })
	}
	if w.news != nil {
		w.all.Go(func() { w.news.read(w.executed, func() { w.look(time.Now(), true) }) })
	}
	w.all.Go(func() { w.looks(ctx) })
	w.all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case pid := <-w.began:
				want.Began(pid)
			}
		}
	})
	return w
}

// Means gives how the starts of the Files are seen, and how those of others.
func (w *Watch) Means() (files, others Means) {
	others = Looks
	if w.news != nil {
		others = News
	}
	files = others
	if w.gate != nil && len(w.want.Files) > 0 {
		files = Gate
	}
	return files, others
}

// hold is how long a process is held at most.
func (w *Watch) hold() time.Duration { return cmp.Or(w.want.Hold, HoldTime) }

// Released is how many processes were let go by the clock, before who held them did it.
func (w *Watch) Released() int { return int(w.released.Load()) }

// Close ends it, and lets go whoever is held. Nobody is told of anything afterwards.
func (w *Watch) Close() {
	w.end()
	if w.gate != nil {
		w.gate.close()
	}
	if w.news != nil {
		w.news.close()
	}
	w.all.Wait()
}

// looks looks at /proc until ctx is done.
func (w *Watch) looks(ctx context.Context) {
	every := lookSlow
	if w.news == nil && (w.gate == nil || w.want.Learn) {
		every = LookEvery
	}
	t := time.NewTicker(every)
	defer t.Stop()
	var whole time.Time
	for {
		now := time.Now()
		all := now.Sub(whole) >= lookSlow
		if all {
			whole = now
			if w.gate != nil {
				w.gate.renew()
			}
		}
		w.look(now, all)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// young is how old a process is believed to be about to execute a program.
const young = time.Second

// look tells of processes that are wanted and that nobody was told of: of all, or of those
// that were not there long ago.
func (w *Watch) look(now time.Time, all bool) {
	pids, err := procfs.Processes()
	if err != nil {
		return
	}
	w.mu.Lock()
	old := w.since
	w.since = make(map[int]time.Time, len(pids))
	for _, pid := range pids {
		at, ok := old[pid]
		if !ok {
			at = now
		}
		w.since[pid] = at
	}
	for pid := range w.seen {
		if _, ok := w.since[pid]; !ok {
			delete(w.seen, pid)
		}
	}
	since := w.since
	w.mu.Unlock()
	for _, pid := range pids {
		if all || now.Sub(since[pid]) < young {
			w.found(pid)
		}
	}
}

// found tells of a process that was looked at, if it is wanted and nobody was told.
func (w *Watch) found(pid int) {
	if w.want.Is(pid) && w.first(pid) {
		w.tell(pid)
	}
}

// executed tells of a process that has executed a program, if it is wanted.
func (w *Watch) executed(pid int) {
	if w.want.Is(pid) {
		w.first(pid)
		w.tell(pid)
	}
}

func (w *Watch) tell(pid int) {
	if w.want.Learn && w.gate != nil {
		_ = w.gate.add(procfs.Process(pid).Path("exe")) // what can't be marked is told of late again
	}
	select {
	case w.began <- pid:
	default: // a thousand wait: the next look comes
		w.Again(pid)
	}
}

// first notes a process, and reports whether it is new.
func (w *Watch) first(pid int) bool {
	at := procfs.StartTime(pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, ok := w.seen[pid]; ok && was == at {
		return false
	}
	w.seen[pid] = at
	return true
}

// Again has a process be told of once more, when /proc is looked at next: it was told of, or
// held, and nothing came of it.
func (w *Watch) Again(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, pid)
}

// errNone says that there is no such means here.
var errNone = errors.New("not available")
