package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/memory"
	"kprobe/symbols"
)

// snapshotsBy lists what a recorder's snapshot has and what came behind it, a line a hit.
func snapshotsBy(t *testing.T, r *Recorder) (snapshot, live []string, h Held) {
	t.Helper()
	defer r.Close()
	var vals []fetch.Value
	into := func(list *[]string) Sink {
		last := uint64(0)
		return sinkOf(func(h *Hit) (err error) {
			if vals, err = h.Program.Decode(h.Data, vals); err != nil || h.Time < last {
				return fmt.Errorf("%s at %d behind one at %d: %w", h.Event.Name, h.Time, last, err)
			}
			last = h.Time
			line := h.Event.Name
			for _, v := range vals {
				line += fmt.Sprint(" ", v.Int)
			}
			*list = append(*list, line) // its time is told anew each time, by the clocks of now
			return nil
		})
	}
	if err := r.Snapshot(t.Context(), 0, into(&snapshot)); err != nil {
		t.Fatal(err)
	}
	if err := r.Live(t.Context(), 0, into(&live)); err != nil {
		t.Fatal(err)
	}
	var err error
	if h, err = r.Held(); err != nil {
		t.Fatal(err)
	}
	for _, st := range h.Stats {
		if st.Hits != st.Recorded+st.Filtered+st.Lost+st.Limited {
			t.Errorf("%s: %+v aren't conserved", st.Event.Name, st)
		}
	}
	if h.Odd > 0 {
		t.Errorf("%d records are not what the book says", h.Odd)
	}
	return snapshot, live, h
}

func snapshotsIn(t *testing.T, pid int) (snapshot, live []string, h Held) {
	t.Helper()
	r, err := OpenRecorder(pid)
	if err != nil {
		t.Fatal(err)
	}
	return snapshotsBy(t, r)
}

// A snapshot has the hits up to the one that took it, back to the snapshot before, and
// stays until the next: in the process, and in the file that outlives it. What comes behind
// is recorded elsewhere. Children that the process forks take none.
func TestSnapshotTrigger(t *testing.T) {
	controlWays(t, func(t *testing.T, prog string, o Options) {
		if o.NoOptimize {
			return // nothing is left that records by itself
		}
		name := shmFile(t)
		o.Detach, o.Keep, o.RingSize = true, name, MinRing
		o.Triggers = triggersOf(t, "m:snapshot if k == 1", "s:snapshot:1 if s ~ \"stop*\"", "r:snapshot if v == 5000000000")
		sub := startSubject(t, prog, "4")
		leaveIn(t, sub.pid(), o, "p:a hit n=$arg1", "p:m mark k=$arg1", "r:r back v=$retval:u64", "p:s named s=+0($arg1):string", "p:m2 mark k=$arg1")
		var kept []string
		taken, in, since := uint64(0), 0, 0
		check := func(step string) {
			t.Helper()
			snapshot, live, h := snapshotsIn(t, sub.pid())
			if taken == 0 {
				in = since
			}
			if h.Taken != taken || len(snapshot) != in || len(live) != since || !h.Takes {
				t.Fatalf("%s: %d snapshots, %d hits in the last and %d since, want %d, %d, %d", step, h.Taken, len(snapshot), len(live), taken, in, since)
			}
			if (taken > 0) != (h.TakenAt > 0) {
				t.Errorf("%s: %d snapshots, the last at %d", step, taken, h.TakenAt)
			}
			if taken > 0 && kept != nil && !slices.Equal(kept, snapshot) {
				t.Errorf("%s: the snapshot has changed", step)
			}
			kept = snapshot
		}
		swapped := func(step string, behind int) {
			t.Helper()
			taken, in, since, kept = taken+1, since+1, behind, nil
			check(step)
		}
		sub.says("go 10")
		since += 80 // each call is a hit, and a return
		check("at first")
		sub.says("mark 1")
		// The second probe of the place comes behind the first's trigger.
		swapped("the first", 1)
		sub.says("fork 1")
		sub.says("mark 7")
		sub.says("go 5")
		since += 2 + 40
		check("others")
		sub.says("mark 1")
		swapped("the second", 1)
		sub.says("ret 5000000000")
		swapped("at a return", 0)
		sub.says("go 3")
		sub.says("name other")
		since += 25
		check("a text that isn't it")
		sub.says("name stop-here")
		swapped("by a text", 0)
		sub.says("name stop-again")
		since++
		check("a trigger that may do nothing any more")
		sub.says("go 300000") // many times round
		snapshot, live, h := snapshotsIn(t, sub.pid())
		if !slices.Equal(kept, snapshot) || h.Taken != taken || len(live) == 0 {
			t.Errorf("while the other buffers came round: %d hits of %d, %d since", len(snapshot), len(kept), len(live))
		}
		if err := sub.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = sub.cmd.Wait()
		r, _, err := OpenBlackBox(name)
		if err != nil {
			t.Fatal(err)
		}
		dead, liveDead, h := snapshotsBy(t, r)
		if !slices.Equal(kept, dead) || !slices.Equal(live, liveDead) || h.Taken != taken || !h.Gone {
			t.Errorf("behind its end: %d hits of %d, %d since of %d, %d snapshots", len(dead), len(kept), len(liveDead), len(live), h.Taken)
		}
	})
}

// However many threads hit the trigger at once, as many snapshots are taken as counts are
// spent, and none of them is of nothing: who finds its hit in another's takes none.
func TestSnapshotTriggersAtOnce(t *testing.T) {
	controlWays(t, func(t *testing.T, prog string, o Options) {
		if o.NoOptimize {
			return // nothing is left that records by itself
		}
		const most = 2000
		o.Detach, o.RingSize = true, MinRing
		o.Triggers = triggersOf(t, fmt.Sprintf("u:snapshot:%d", most))
		sub := startSubject(t, prog, "4")
		leaveIn(t, sub.pid(), o, "p:u up n=$arg1", "p:d down n=$arg1")
		calls := 0
		for i := 0; ; i++ {
			sub.says("turn 500")
			calls += 4 * 500
			snapshot, live, h := snapshotsIn(t, sub.pid())
			if len(snapshot) == 0 {
				t.Fatalf("%d snapshots, the last is of nothing; %d hits since", h.Taken, len(live))
			}
			for _, st := range h.Stats {
				if st.Hits != uint64(calls) || st.Lost > 0 {
					t.Fatalf("%s: %d hits of %d calls, %d lost", st.Event.Name, st.Hits, calls, st.Lost)
				}
			}
			if h.Taken == most {
				break
			}
			if h.Taken > most || i > 1000 {
				t.Fatalf("%d snapshots", h.Taken)
			}
		}
		sub.takenOut()
		sub.end()
	})
}

// Who follows the hits of such probes has all of them, whatever snapshots are taken
// meanwhile, from what came behind the last one on; and a hit's CPU is one that there is.
func TestSnapshotFollowed(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	o := Options{Detach: true, Triggers: triggersOf(t, "m:snapshot")}
	cpus := memory.PossibleCPUs()
	leaveIn(t, sub.pid(), o, "p:a hit n=$arg1 cpu=$cpu", "p:m mark k=$arg1", fmt.Sprintf("p:cpus up n=$arg1 if cpu < %d", cpus))
	sub.says("go 10")
	sub.says("mark 1")
	r, err := OpenRecorder(sub.pid())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var hits, marks atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		var vals []fetch.Value
		done <- r.Follow(ctx, sinkOf(func(h *Hit) (err error) {
			if vals, err = h.Program.Decode(h.Data, vals); err != nil {
				return err
			}
			switch {
			case h.CPU >= cpus, h.Event.Name == "a" && vals[1].Int >= uint64(cpus):
				return fmt.Errorf("a hit on CPU %d, which says %d", h.CPU, vals[1].Int)
			case h.Event.Name == "m":
				marks.Add(1)
			case h.Event.Name == "a":
				hits.Add(1)
			}
			return nil
		}))
	}()
	sub.says("go 1")
	if !waitUntil(func() bool { return hits.Load() == 2 || len(done) > 0 }) {
		t.Fatalf("%d hits behind the snapshot were followed, want 2", hits.Load())
	}
	const rounds = 20
	for i := range rounds {
		sub.says("go %d", 100*(i+1))
		sub.says("turn 10")
		sub.says("mark %d", i)
	}
	if !waitUntil(func() bool { return marks.Load() == rounds || len(done) > 0 }) {
		t.Errorf("%d of %d marks were followed", marks.Load(), rounds)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := uint64(2 + 2*100*rounds*(rounds+1)/2); hits.Load() != want {
		t.Errorf("%d hits were followed, want %d", hits.Load(), want)
	}
	_, _, h := snapshotsIn(t, sub.pid())
	for _, st := range h.Stats {
		if st.Filtered > 0 {
			t.Errorf("%d hits of %s were on a CPU that there isn't", st.Filtered, st.Event.Name)
		}
	}
	sub.end()
}

// TestSnapshotTakenOut: what goes while its hits are read is an error that says so.
func TestSnapshotTakenOut(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	for _, c := range []struct {
		want error
		goes func()
	}{
		{ErrTakenOut, func() { sub.takenOut() }},
		{symbols.ErrGone, func() {
			if err := errors.Join(sub.cmd.Process.Kill(), func() error { _, err := sub.cmd.Process.Wait(); return err }()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		leaveIn(t, sub.pid(), Options{Detach: true}, "p:a hit n=$arg1")
		sub.says("go 10")
		r, err := OpenRecorder(sub.pid())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		c.goes()
		nothing := sinkOf(func(*Hit) error { return nil })
		if err := r.Snapshot(t.Context(), 0, nothing); !errors.Is(err, c.want) {
			t.Errorf("the error of a snapshot is %v, want %v", err, c.want)
		}
		if err := r.Live(t.Context(), 0, nothing); !errors.Is(err, c.want) {
			t.Errorf("the error without a snapshot is %v, want %v", err, c.want)
		}
		if _, err := r.Held(); !errors.Is(err, c.want) {
			t.Errorf("the error of what it holds is %v, want %v", err, c.want)
		}
	}
}
