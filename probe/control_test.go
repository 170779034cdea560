package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/ring"
)

func (s *subject) says(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		s.t.Fatalf("%v; the program has ended: %v", err, s.cmd.Wait())
	}
	s.expect("done")
}

// jumps fails the test if one of the events isn't a jump where it can be one.
func jumps(t *testing.T, l *live, o Options, events ...string) {
	t.Helper()
	if !o.NoOptimize {
		tactics(t, l, events...)
	}
}

func triggersOf(t *testing.T, texts ...string) (out []*fetch.Trigger) {
	t.Helper()
	for _, text := range texts {
		x, err := fetch.ParseTrigger(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out = append(out, x)
	}
	return out
}

// controlWays are the ways in which hits are taken: in sequences and by locked
// instructions, in a program of musl, by breakpoints.
func controlWays(t *testing.T, each func(t *testing.T, prog string, o Options)) {
	glibc := fixture.Build(t, "trigger_calls.c", "-O1", "-pthread")
	t.Run("sequences", func(t *testing.T) { each(t, glibc, Options{}) })
	t.Run("locked", func(t *testing.T) {
		t.Setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
		each(t, glibc, Options{})
	})
	t.Run("musl", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "musl")
		src := filepath.Join(fixture.Root(), "testdata", "trigger_calls.c")
		if text, err := exec.Command(fixture.NeedTool(t, "musl-gcc"), "-static", "-O1", "-pthread", "-o", out, src).CombinedOutput(); err != nil {
			t.Fatalf("musl-gcc: %v\n%s", err, text)
		}
		each(t, out, Options{})
	})
	t.Run("breakpoints", func(t *testing.T) { each(t, glibc, Options{NoOptimize: true}) })
}

// What triggers switch is switched, for entries and returns, by every way in which hits
// are taken; the hit that does it is recorded.
func TestTriggersSwitch(t *testing.T) {
	controlWays(t, func(t *testing.T, prog string, o Options) {
		o.Triggers = triggersOf(t, "m:traceoff if k == 1", "m:traceon if k == 2", "m:disable_event:a if k == 3 || k == 9", "m:enable_event:a if k == 4", "r:traceoff:1 if v == 777", "s:traceoff if s ~ \"stop*\"")
		sub := startSubject(t, prog, "4")
		l, _ := engage(t, sub.pid(), o, "p:a hit n=$arg1", "r:r back v=$retval:u64", "p:m mark k=$arg1", "p:s named s=+0($arg1):string if s != \"unseen\"")
		jumps(t, l, o, "a", "r", "m", "s")
		a, r, m, s := uint64(0), uint64(0), uint64(0), uint64(0)
		check := func(step string) {
			t.Helper()
			for name, want := range map[string]uint64{"a": a, "r": r, "m": m, "s": s} {
				if st := l.stat(name); st.Hits-st.Filtered != want {
					t.Errorf("%s: %s has %d hits, want %d", step, name, st.Hits-st.Filtered, want)
				}
			}
		}
		pass := func(step string, hits, returns bool) {
			t.Helper()
			sub.says("go 50")
			if hits {
				a += 200
			}
			if returns {
				r += 200
			}
			check(step)
		}
		pass("at first", true, true)
		sub.says("mark 1")
		m++
		pass("traceoff", false, false)
		sub.says("mark 7")
		pass("a hit without recording", false, false)
		sub.says("mark 2")
		m++
		pass("traceon", true, true)
		sub.says("mark 3")
		m++
		pass("disable_event", false, true)
		sub.says("mark 4")
		m++
		pass("enable_event", true, true)
		sub.says("ret 777")
		r++
		pass("traceoff at a return", false, false)
		sub.says("mark 2")
		m++
		sub.says("ret 777")
		r++
		pass("a trigger that may do nothing any more", true, true)
		sub.says("name unseen-stop")
		s++
		sub.says("name unseen")
		sub.says("name stop-here")
		s++
		pass("traceoff by a text", false, false)
		sub.says("name unseen")
		if st := l.stat("s"); st.Filtered != 1 {
			t.Errorf("%d hits of s were filtered, want 1: what the filter refuses while nothing is recorded isn't counted", st.Filtered)
		}
		sum := l.finish(sub.pid())
		for _, st := range sum.Stats {
			if st.Lost > 0 || st.Limited > 0 {
				t.Errorf("%s: %d lost, %d limited", st.Event.Name, st.Lost, st.Limited)
			}
		}
		sub.end()
	})
}

// A trigger that may act N times does so exactly N times, however many threads hit it at
// once.
func TestTriggersCountExactly(t *testing.T) {
	const most = 5000
	controlWays(t, func(t *testing.T, prog string, o Options) {
		n, times := uint64(most), 50_000
		if o.NoOptimize {
			n, times = 20, 200
		}
		o.Triggers = triggersOf(t, fmt.Sprintf("u:enable_event:a:%d", n), fmt.Sprintf("d:disable_event:a:%d", n), "r:traceoff:3", "m:traceon")
		sub := startSubject(t, prog, "4")
		l, _ := engage(t, sub.pid(), o, "p:a hit", "p:u up", "p:d down", "r:r back", "p:m mark")
		jumps(t, l, o, "a", "u", "d", "r", "m")
		left := func(k int) (n uint64) {
			_ = l.s.engine.Tracer.Do(func() error {
				f := l.s.engine.Targets[sub.pid()].Area.File
				n = f.Load64(f.Layout.Trigger(k))
				return nil
			})
			return n
		}
		for i := 0; left(0)+left(1) > 0; i++ {
			before := [2]uint64{left(0), left(1)}
			sub.says("turn %d", times)
			for k := range before {
				if now := left(k); now > before[k] {
					t.Fatalf("trigger %d: %d left of %d", k, now, before[k])
				}
			}
			if d := int64(left(1)) - int64(left(0)); d < 0 || d > 1 || i > 10_000 {
				t.Fatalf("it was switched on with %d left, and off with %d", left(0), left(1))
			}
		}
		sub.says("go 10")
		if st := l.stat("a"); st.Hits != 0 || !st.Disabled {
			t.Errorf("as often off as on: %d hits, switched off: %v", st.Hits, st.Disabled)
		}
		for want := uint64(3); want > 0; want-- { // a return has just shut it
			if got := left(2); got != want-1 {
				t.Fatalf("traceoff may act %d times more, want %d", got, want-1)
			}
			sub.says("mark 1")
			sub.says("go 100")
		}
		before := l.stat("r").Hits
		sub.says("go 100")
		if got := l.stat("r").Hits - before; got != 400 || left(2) != 0 {
			t.Errorf("traceoff, which may not act any more: %d hits of 400", got)
		}
		l.finish(sub.pid())
		sub.end()
	})
}

// Of each second so many hits of an event are recorded, of all its places and threads
// together, and the others are counted.
func TestLimit(t *testing.T) {
	const most = 500
	controlWays(t, func(t *testing.T, prog string, o Options) {
		o.Limit = most
		times := uint64(20_000)
		if o.NoOptimize {
			times = 1000
		}
		sub := startSubject(t, prog, "4")
		l, c := engage(t, sub.pid(), o, "p:a hit", "p:a up", "r:r back", "p:f down n=$arg1 if n & 1")
		jumps(t, l, o, "r", "f")
		begun := time.Now()
		sub.says("go %d", times)
		sub.says("turn %d", times)
		seconds := uint64(time.Since(begun)/time.Second) + 2
		l.finish(sub.pid())
		calls := 4 * times
		for name, want := range map[string]uint64{"a": 2 * calls, "r": calls, "f": calls} {
			st := l.stat(name)
			if st.Hits != want || st.Lost > 0 || st.Missed > 0 {
				t.Errorf("%s: %d hits of %d calls, %d lost, %d missed", name, st.Hits, want, st.Lost, st.Missed)
			}
			if st.Recorded < most || st.Recorded > seconds*most {
				t.Errorf("%s: %d hits recorded in %d seconds", name, st.Recorded, seconds)
			}
			if name == "f" && st.Filtered != calls/2 {
				t.Errorf("%d of %d hits filtered", st.Filtered, calls)
			}
		}
		if n := c.hits.Load(); n != l.stat("a").Recorded+l.stat("r").Recorded+l.stat("f").Recorded {
			t.Errorf("%d hits came out", n)
		}
		sub.end()
	})
}

// expire has the end of a process's probes be over.
func expire(s *Session, pid int) {
	_ = s.engine.Tracer.Do(func() error {
		f := s.engine.Targets[pid].Area.File
		f.Store64(f.Layout.Control.Off+ring.ControlEnd, 1)
		return nil
	})
}

// Behind the end nothing is recorded or counted, and the probes are off.
func TestExpire(t *testing.T) {
	controlWays(t, func(t *testing.T, prog string, o Options) {
		o.Expire = time.Hour
		sub := startSubject(t, prog, "4")
		l, c := engage(t, sub.pid(), o, "p:a hit n=$arg1", "r:r back v=$retval", "p:s named s=+0($arg1):string", "p:f up n=$arg1 if n > 1000000")
		jumps(t, l, o, "a", "r", "s", "f")
		sub.says("go 100")
		sub.says("name x")
		sub.says("turn 10")
		before := map[string]uint64{"a": 400, "r": 400, "s": 1, "f": 40}
		for _, step := range []string{"name y", "turn 10", "go 100", "ret 5"} {
			for name, want := range before {
				if st := l.stat(name); st.Hits != want || st.Disabled {
					t.Errorf("before %s: %s has %d hits, want %d; off: %v", step, name, st.Hits, want, st.Disabled)
				}
			}
			expire(l.s, sub.pid())
			sub.says(step)
			for name, want := range before {
				if st := l.stat(name); st.Hits != want || !st.Disabled {
					t.Errorf("%s: %s has %d hits, want %d; off: %v", step, name, st.Hits, want, st.Disabled)
				}
			}
			// Whoever switches one on again has it switch itself off at its next hit.
			if err := l.s.Enable(true, l.s.Events()...); err != nil {
				t.Fatal(err)
			}
		}
		l.finish(sub.pid())
		if n := c.hits.Load(); n != 801 {
			t.Errorf("%d hits came out, want 801", n)
		}
		sub.end()
	})
}

// An event that is to be switched on first begins off, and so does recording.
func TestTriggersBeginOff(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	o := Options{Triggers: triggersOf(t, "m:traceon if k == 1", "m:traceoff if k == 2", "m:enable_event:kprobes:a:1 if k == 3", "m:disable_event:kprobes/a if k == 4")}
	l, _ := engage(t, sub.pid(), o, "p:a hit", "p:m mark k=$arg1", "r:r back")
	want := func(step string, a, r, m uint64) {
		t.Helper()
		if got := [3]uint64{l.stat("a").Hits, l.stat("r").Hits, l.stat("m").Hits}; got != [3]uint64{a, r, m} {
			t.Errorf("%s: %v hits of a, r, m, want %d, %d, %d", step, got, a, r, m)
		}
	}
	sub.says("go 10")
	sub.says("mark 3")
	want("off", 0, 0, 0)
	sub.says("mark 1")
	sub.says("go 10")
	want("on, and a too", 20, 20, 1)
	sub.says("mark 4")
	sub.says("mark 3")
	sub.says("go 10")
	want("a is off for good", 20, 40, 3)
	l.finish(sub.pid())
	sub.end()
}

// A session isn't armed without the events of its triggers (probe/triggers has the other
// errors).
func TestTriggerErrors(t *testing.T) {
	defs := parseDefs(t, "p:a hit n=$arg1", "p:one/b up", "p:two/b down")
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	s, err := Attach(context.Background(), []int{sub.pid()}, Options{Triggers: triggersOf(t, "a:traceoff", "z:traceoff")})
	if err != nil {
		t.Fatal(err)
	}
	var te *TriggerError
	if err := s.Arm(context.Background(), defs); !errors.As(err, &te) || te.Trigger.Event != "z" {
		t.Errorf("armed with a trigger of no event: %v", err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	sub.end()
}

// Probes that were left alone do what triggers, limits and ends say, and children that
// the process forks switch nothing. What led to the hit stays when the process is killed.
func TestControlsLeft(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "4")
	o := Options{Detach: true, Limit: 1000, Expire: time.Hour, Triggers: triggersOf(t, "m:traceoff if k == 1", "m:traceon if k == 2", "m:disable_event:a:1 if k == 3", "m:enable_event:a if k == 4")}
	leaveIn(t, sub.pid(), o, "p:a hit n=$arg1", "p:m mark k=$arg1", "r:r back v=$retval")
	held := func() (h Held, stats map[string]Stats, printed map[string]uint64) {
		t.Helper()
		r, err := OpenRecorder(sub.pid())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		printed = map[string]uint64{}
		if err := r.Snapshot(t.Context(), 0, sinkOf(func(h *Hit) error { printed[h.Event.Name]++; return nil })); err != nil {
			t.Fatal(err)
		}
		if h, err = r.Held(); err != nil {
			t.Fatal(err)
		}
		stats = map[string]Stats{}
		for _, st := range h.Stats {
			stats[st.Event.Name] = st
			if st.Hits != st.Recorded+st.Filtered+st.Lost+st.Limited {
				t.Errorf("%s: %+v aren't conserved", st.Event.Name, st)
			}
		}
		return h, stats, printed
	}
	want := func(step string, a, r, m uint64, off bool) {
		t.Helper()
		h, stats, printed := held()
		if got := [3]uint64{stats["a"].Hits, stats["r"].Hits, stats["m"].Hits}; got != [3]uint64{a, r, m} || h.Off != off || h.Expired {
			t.Errorf("%s: %v hits of a, r, m, want %d, %d, %d; off %v, expired %v", step, got, a, r, m, h.Off, h.Expired)
		}
		for name, st := range stats {
			if printed[name] != st.Recorded {
				t.Errorf("%s: %d hits of %s printed, %d recorded", step, printed[name], name, st.Recorded)
			}
		}
	}
	sub.says("go 10")
	want("at first", 40, 40, 0, false)
	sub.says("fork 1")
	want("a child's traceoff", 40, 40, 0, false)
	sub.says("mark 1")
	sub.says("go 10")
	want("traceoff", 40, 40, 1, true)
	sub.says("fork 2")
	sub.says("go 10")
	want("a child's traceon", 40, 40, 1, true)
	sub.says("mark 2")
	sub.says("mark 3")
	sub.says("go 10")
	want("disable_event", 40, 80, 3, false)
	sub.says("mark 4")
	sub.says("mark 3") // which it may not any more
	sub.says("go 10")
	want("enable_event", 80, 120, 5, false)
	begun := time.Now()
	sub.says("go 5000")
	_, stats, _ := held()
	a, seconds := stats["a"], uint64(time.Since(begun)/time.Second)+3
	if a.Hits != 20_080 || a.Limited == 0 || a.Recorded > seconds*1000 {
		t.Errorf("%d hits of a, %d of them limited, %d recorded in %d seconds", a.Hits, a.Limited, a.Recorded, seconds)
	}
	sub.says("mark 1")
	h, _, printed := held()
	if !h.Off || printed["m"] != 6 {
		t.Errorf("off %v, %d hits of m", h.Off, printed["m"])
	}
	l := openedLive(t, sub.pid())
	if err := l.Remove(t.Context(), []string{"kprobes/a", "kprobes/m", "kprobes/r"}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	checkClean(t, sub.pid())
	sub.end()
}

// A trigger that needs a tracer isn't left alone without one.
func TestTriggersNotLeft(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Detach: true, NoOptimize: true, Triggers: triggersOf(t, "a:disable_event:b")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(t.Context(), parseDefs(t, "p:a hit", "p:b up")); err != nil {
		t.Fatal(err)
	}
	var te *TriggerError
	if _, err := s.Detach(t.Context()); !errors.As(err, &te) || te.Trigger.Event != "a" {
		t.Errorf("left alone: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	sub.end()
}

// A watchpoint watches a field of an object from its constructor's return until its
// destructor, in all threads, and nothing before and behind.
func TestTriggersMoveWatchpoint(t *testing.T) {
	if unwatchable(t) {
		return
	}
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	o := Options{Triggers: triggersOf(t, "make:set_wprobe:field:o+8:5", "kill:clear_wprobe:field:o+8 if o != 0", "kill:clear_wprobe:other:o", "make:set_wprobe:odd:o+1", "make:set_wprobe:two:o+8", "kill:clear_wprobe:two:o+8")}
	l := attach(t, sub.pid(), o, "r:make make_obj o=$retval:x64", "p:kill kill_obj o=$arg1:x64", "w:field w@-1:8 v=$value:u64", "w:other w@-1:8", "w:odd w@-1:8", "w:two w@-1:8 v=$value:u64", "w:two w@-1:4 v=$value:u64")
	sub.says("obj 8")
	l.finish(sub.pid())
	sub.end()
	var got []string
	for _, line := range l.sink.all() {
		if strings.HasSuffix(line, "v=77") || strings.HasSuffix(line, "v=99") {
			t.Errorf("seen of an object that isn't there: %s", line)
		}
		if strings.Contains(line, "field") {
			got = append(got, line[strings.LastIndex(line, " ")+1:])
		}
	}
	want := strings.TrimSpace(strings.Repeat("v=1 v=2 ", 5))
	if s := strings.Join(got, " "); s != want {
		t.Errorf("written: %s, want %s", s, want)
	}
	for name, want := range map[string]uint64{"make": 8, "kill": 8, "field": 10, "other": 0, "odd": 0, "two": 32} {
		if st := l.stat(name); st.Hits != want {
			t.Errorf("%s: %d hits, want %d", name, st.Hits, want)
		}
	}
	err := CheckTriggers(triggersOf(t, "a:set_wprobe:b:n"), parseDefs(t, "p:a hit n=$arg1", "p:b up"))
	if err == nil || !strings.Contains(err.Error(), "watchpoint") {
		t.Errorf("set_wprobe of what isn't one: %v", err)
	}
}

// The hits that a trigger gives their stack have it, as often as it may, and the others
// have none; what else is recorded is the same.
func TestTriggersStacktrace(t *testing.T) {
	controlWays(t, func(t *testing.T, prog string, o Options) {
		o.Triggers = triggersOf(t, "a:stacktrace:70 if n & 1", "r:stacktrace if v == 5", "s:stacktrace if s == \"deep\"", "none:stacktrace")
		sub := startSubject(t, prog, "4")
		stacks, hits, wrong := map[string]int{}, map[string]int{}, 0
		var vals []fetch.Value
		sink := sinkOf(func(h *Hit) error {
			name := h.Event.Name
			hits[name]++
			var err error
			if vals, err = h.Program.Decode(h.Data, vals); err != nil {
				return err
			}
			if name == "s" && string(vals[1].Bytes) != "deep" && string(vals[1].Bytes) != "flat" || name == "a" && (vals[0].Int < 1 || vals[0].Int > 50) {
				wrong++
			}
			if len(h.Stack) == 0 {
				return nil
			}
			stacks[name]++
			if at, _, _, _, _ := h.Space.Symbolize(h.Stack[min(1, len(h.Stack)-1)].Addr); len(h.Stack) < 2 || name == "a" && (at != "run" || vals[0].Int&1 == 0) {
				wrong++
				t.Errorf("%s has a stack of %d frames, called by %s", name, len(h.Stack), at)
			}
			return nil
		})
		l := engageInto(t, sub.pid(), o, sink, "p:a hit n=$arg1", "r:r back v=$retval:u64", "p:s named p=$arg1 s=+0($arg1):string t=+0($arg1):string", "p:none mark")
		sub.says("go 50")
		sub.says("name deep")
		sub.says("name flat")
		sub.says("mark 5")
		l.finish(sub.pid())
		sub.end()
		if want := (map[string]int{"a": 70, "r": 4, "s": 1, "none": 1}); !maps.Equal(stacks, want) {
			t.Errorf("hits with stacks: %v, want %v", stacks, want)
		}
		if want := (map[string]int{"a": 200, "r": 200, "s": 2, "none": 1}); !maps.Equal(hits, want) || wrong > 0 {
			t.Errorf("hits: %v, want %v; %d are wrong", hits, want, wrong)
		}
	})
}

// Behind the end nothing is counted, either, where nobody empties a full ring, but for the
// hit of each thread that finds it over.
func TestExpireFullRing(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "4")
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{RingSize: MinRing, Expire: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(t.Context(), parseDefs(t, "p:a hit n=$arg1")); err != nil {
		t.Fatal(err)
	}
	sub.says("go 20000")
	before := s.Stats()[0]
	if before.Hits != 80_000 || before.Lost == 0 {
		t.Errorf("%+v of 80000 calls", before.Counts())
	}
	expire(s, sub.pid())
	sub.says("go 100")
	if st := s.Stats()[0]; st.Hits > before.Hits+4 || !st.Disabled {
		t.Errorf("%d hits more, off: %v", st.Hits-before.Hits, st.Disabled)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	sub.end()
}
