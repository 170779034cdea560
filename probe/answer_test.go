package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/sayer"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// startStill starts the program that must not be kept waiting.
func startStill(t *testing.T, args ...string) *subject {
	t.Helper()
	return startSubject(t, fixture.Build(t, "stand_still.c", "-O1"), args...)
}

// attached attaches to the program and does no more.
func (s *subject) attached(o Options) *Session {
	s.t.Helper()
	o.Log = testLog(s.t)
	k, err := Attach(context.Background(), []int{s.pid()}, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// signal sends the program a signal that it answers, with "signal".
func (s *subject) signal() {
	s.t.Helper()
	if err := syscall.Kill(s.pid(), syscall.SIGUSR1); err != nil {
		s.t.Fatal(err)
	}
}

func (s *subject) answers() {
	s.t.Helper()
	s.signal()
	s.expect("signal")
}

// TestAnswersBetween: a signal to the program is answered before Run, between two
// runs, and after the last, with breakpoints in and without; and so are hits.
func TestAnswersBetween(t *testing.T) {
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startStill(t)
		s := sub.attached(o)
		sub.answers()
		if err := s.Arm(context.Background(), parseDefs(t, "p:work work n=$arg1")); err != nil {
			t.Fatal(err)
		}
		sub.answers()
		sub.work() // its hits are in the ring
		l := collecting(t, s)
		l.run()
		sub.work()
		if !waitUntil(func() bool { return len(l.sink.all()) == 2000 }) {
			t.Errorf("%d hits, want 2000", len(l.sink.all()))
		}
		l.stop()
		<-l.done
		sub.answers()
		sub.work() // nobody's
		l.done = make(chan struct{})
		l.run()
		if !waitUntil(func() (on bool) {
			_ = s.engine.Tracer.Do(func() error { on = s.engine.Running; return nil })
			return on
		}) {
			t.Error("the second run has not begun")
		}
		sub.work()
		if !waitUntil(func() bool { return len(l.sink.all()) == 3000 }) {
			t.Errorf("%d hits of two runs, want 3000", len(l.sink.all()))
		}
		sub.answers()
		l.finish(sub.pid())
		sub.quit()
	}
}

// whilePlanning has f run once on the tracer's thread, in the midst of the next plan.
func whilePlanning(t *testing.T, s *Session, f func(tg *engine.Target)) (ran *atomic.Bool) {
	t.Helper()
	ran = new(atomic.Bool)
	err := s.engine.Tracer.Do(func() error {
		s.engine.Answers.Asked = func() {
			for _, tg := range s.engine.Targets {
				// Behind the looking up: what is planned has a number by now.
				if tg.Feed != nil && len(tg.Feed.Ids) > 0 && s.engine.Answers.Haste != nil && ran.CompareAndSwap(false, true) {
					f(tg)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ran
}

// TestAnswersWhilePlanning: signals and hits are answered while probes are planned,
// before Run, while it runs, and while others are taken out. The planner here goes on
// only when the program has answered.
func TestAnswersWhilePlanning(t *testing.T) {
	sub := startStill(t)
	s := sub.attached(Options{})
	l := collecting(t, s)
	planned := func(what string, change func() error) {
		t.Helper()
		said := make(chan bool, 1)
		ran := whilePlanning(t, s, func(*engine.Target) {
			sub.signal()
			go func() { sub.expect("signal"); said <- true }()
			for end := time.Now().Add(time.Minute); ; {
				select {
				case <-said:
					return
				default:
				}
				if time.Now().After(end) {
					t.Errorf("%s: the program's signal was not answered", what)
					return
				}
				s.engine.Answers.Last = time.Time{}
				asked := s.engine.Answers.Asked
				s.engine.Answers.Asked = nil
				if err := s.engine.Answer(); err != nil {
					t.Error(err)
				}
				s.engine.Answers.Asked = asked
			}
		})
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !ran.Load() {
			t.Errorf("%s: nothing was planned", what)
		}
	}
	ctx := context.Background()
	var second *Link
	planned("the first", func() error { return s.Arm(ctx, parseDefs(t, "p:work work", "r:back work")) })
	l.run()
	planned("one more", func() (err error) {
		second, err = s.Add(ctx, parseDefs(t, "p:more work+4"))
		return err
	})
	sub.work()
	for _, name := range []string{"work", "back", "more"} {
		if st := l.stat(name); st.Hits != 1000 {
			t.Errorf("%s: %d hits, want 1000", name, st.Hits)
		}
	}
	planned("one less", func() error { return second.Close(ctx) })
	sub.work()
	l.finish(sub.pid())
	if st := l.stat("work"); st.Hits != 2000 {
		t.Errorf("%d hits, want 2000", st.Hits)
	}
	sub.quit()
}

// TestPlanIsMadeAgain: a breakpoint that comes while a jump over it is planned is
// no jump's, and both take every hit.
func TestPlanIsMadeAgain(t *testing.T) {
	sub := startStill(t)
	s := sub.attached(Options{})
	hooked := 0
	ran := whilePlanning(t, s, func(tg *engine.Target) {
		places, err := tg.Space.Resolve(symbols.Place{Symbol: "work", Offset: 1})
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := tg.HookAt(context.Background(), places[0].Addr, func(*tracee.Thread) { hooked++ }); err != nil {
			t.Error(err)
		}
	})
	if err := s.Arm(context.Background(), parseDefs(t, "p:work work")); err != nil {
		t.Fatal(err)
	}
	l := collecting(t, s)
	l.run()
	sub.work()
	l.finish(sub.pid())
	if st := l.stat("work"); st.Hits != 1000 || hooked != 1000 || !ran.Load() {
		t.Errorf("%d hits and %d of what came meanwhile, want 1000", st.Hits, hooked)
	}
	sub.quit()
}

// TestPlanGivesWay: a plan is given up when its context is done, nothing is left of
// it, and it can be made again.
func TestPlanGivesWay(t *testing.T) {
	sub := startStill(t)
	s := sub.attached(Options{})
	l := collecting(t, s)
	l.run()
	ctx, cancel := context.WithCancel(context.Background())
	whilePlanning(t, s, func(*engine.Target) {
		cancel()
		s.engine.Answers.Last = time.Time{}
	})
	if err := s.Arm(ctx, parseDefs(t, "p:work work", "r:back work")); !errors.Is(err, context.Canceled) {
		t.Errorf("the plan went on: %v", err)
	}
	if list := s.Events(); len(list) != 0 {
		t.Errorf("%d events are left", len(list))
	}
	sub.work()
	if err := s.Arm(context.Background(), parseDefs(t, "p:work work", "r:back work")); err != nil {
		t.Fatal(err)
	}
	sub.work()
	l.finish(sub.pid())
	for _, name := range []string{"work", "back"} {
		if st := l.stat(name); st.Hits != 1000 {
			t.Errorf("%s: %d hits, want 1000", name, st.Hits)
		}
	}
	sub.quit()
}

// stuck is a Sink whose reader doesn't read.
type stuck struct {
	collector
	held chan struct{} // Hit returns when it is closed
}

func (s *stuck) Hit(h *Hit) error {
	<-s.held
	return s.collector.Hit(h)
}

// TestStuckReader: a sink that takes no hit doesn't hold the program up. What finds
// no room is counted as lost, with breakpoints as with jumps.
func TestStuckReader(t *testing.T) {
	for _, noOptimize := range []bool{false, true} {
		sub := startStill(t, "20000")
		sink := &stuck{held: make(chan struct{})}
		l := engageInto(t, sub.pid(), Options{NoOptimize: noOptimize, RingSize: 1 << 16}, sink, "p:work work n=$arg1")
		start := time.Now()
		sub.work()
		sub.answers()
		t.Logf("20000 hits in %v", time.Since(start))
		close(sink.held)
		l.finish(sub.pid())
		if st := l.stat("work"); st.Hits != 20000 || st.Lost == 0 || int(st.Recorded) != len(sink.all()) {
			t.Errorf("%+v, %d were given, want 20000 hits and some lost", st, len(sink.all()))
		}
		sub.quit()
	}
}

// TestStuckEnd: a run that is to end leaves the program, though nobody reads; what
// was recorded goes to the sink when it takes hits again.
func TestStuckEnd(t *testing.T) {
	for _, noOptimize := range []bool{false, true} {
		sub := startStill(t)
		sink := &stuck{held: make(chan struct{})}
		l := engageInto(t, sub.pid(), Options{NoOptimize: noOptimize}, sink, "p:work work n=$arg1")
		sub.work()
		l.stop()
		free := func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", sub.pid()))
			return err == nil && strings.Contains(string(b), "TracerPid:\t0\n")
		}
		if !waitUntil(free) {
			t.Error("the program is traced as long as nobody reads")
		}
		checkClean(t, sub.pid())
		sub.answers()
		sub.work() // nobody's
		close(sink.held)
		l.finish(sub.pid())
		if st := l.stat("work"); st.Hits != 1000 || len(sink.all()) != 1000 {
			t.Errorf("%+v, %d were given, want 1000", st, len(sink.all()))
		}
		sub.quit()
	}
}

// TestStuckTerminal: a terminal that takes no messages doesn't hold the program up.
func TestStuckTerminal(t *testing.T) {
	sub := startStill(t)
	held := make(chan struct{})
	var said atomic.Int32
	o := Options{NoOptimize: true, Log: logTo(slog.LevelInfo, func(string) {
		<-held
		said.Add(1)
	})}
	s, err := Attach(context.Background(), []int{sub.pid()}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	l := collecting(t, s)
	if err := s.Arm(context.Background(), parseDefs(t, "p:work work", "r:back work")); err != nil {
		t.Fatal(err)
	}
	l.run()
	for range sayer.Most + 10 {
		s.engine.Logf("more than is kept")
	}
	sub.work()
	sub.answers()
	close(held)
	l.finish(sub.pid())
	if n := said.Load(); n < sayer.Most {
		t.Errorf("%d messages were said", n)
	}
	if st := l.stat("work"); st.Hits != 1000 {
		t.Errorf("%d hits, want 1000", st.Hits)
	}
	sub.quit()
}

// TestEndsWhilePlanned: a program that ends while probes are planned, whenever that
// is, is an error, and so is one that ends while more of them come.
func TestEndsWhilePlanned(t *testing.T) {
	for _, running := range []bool{false, true} {
		for at := 0; ; at++ {
			sub := startStill(t)
			s := sub.attached(Options{})
			l := collecting(t, s)
			if running {
				if err := s.Arm(context.Background(), parseDefs(t, "p:first work+4")); err != nil {
					t.Fatal(err)
				}
				l.run()
			}
			ended := endAtAnswer(t, s, sub, at)
			err := s.Arm(context.Background(), parseDefs(t, "p:work work n=$arg1", "r:back work", "p:all wor*", "r:main main"))
			if !ended.Load() {
				if err != nil {
					t.Fatal(err)
				}
				if at < 5 {
					t.Fatalf("it was asked %d times", at)
				}
				l.end(running, sub)
				sub.quit()
				break
			}
			// At last the probes are in, and only what waits for libraries is not.
			if !errors.Is(err, tracee.ErrGone) && (err != nil || at < 5) {
				t.Fatalf("running %v, killed at answer %d: %v", running, at, err)
			}
			if running {
				<-l.done
			}
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (l *live) end(running bool, sub *subject) {
	if running {
		l.finish(sub.pid())
	} else if err := l.s.Close(context.Background()); err != nil {
		l.t.Error(err)
	}
}

// endAtAnswer kills the program at the n-th answer from now on, and has that answer
// see its end.
func endAtAnswer(t *testing.T, s *Session, sub *subject, n int) *atomic.Bool {
	t.Helper()
	ended := new(atomic.Bool)
	err := s.engine.Tracer.Do(func() error {
		s.engine.Answers.Asked = func() {
			if n--; n >= 0 || !ended.CompareAndSwap(false, true) {
				return
			}
			if err := syscall.Kill(sub.pid(), syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(time.Minute); len(s.engine.Targets) > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Error("its end was not answered")
					return
				}
				s.engine.Answers.Last = time.Time{}
				if err := s.engine.Answer(); err != nil {
					t.Error(err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ended
}
