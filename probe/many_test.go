package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/plan"
)

// manyFunctions is how many testdata/many_functions.c has.
const manyFunctions = 70_000

// More probes than 16 bits count are in one process: each call is counted once, whatever
// the number of its probe.
func TestManyProbes(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "many_functions.c", "-O2"))
	want := sub.work()
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:all many_functions:f_*", "r:back many_functions:f_699*", "p:last f_69999 a=$arg1:u64 if a == 69999")
	jumps, last := 0, uint32(0)
	if err := l.s.engine.Tracer.Do(func() error {
		for id, p := range l.s.engine.Feeds[0].Ids {
			if p.Tactic == plan.Breakpoint && p.Ev.Name == "all" {
				t.Logf("%s is a breakpoint: %s", p.Where.Name(), p.Why)
			} else {
				jumps++
			}
			last = uint32(id) + 1
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if jumps < manyFunctions || last <= 1<<16 {
		t.Errorf("%d jumps, the last with the number %d", jumps, last)
	}
	for range 3 {
		if got := sub.work(); got != want {
			t.Errorf("it prints %q, want %q", got, want)
		}
	}
	l.finish(sub.pid())
	sub.quit()
	for name, n := range map[string]uint64{"all": 3 * manyFunctions, "back": 3 * 111, "last": 3} {
		if st := l.stat(name); st.Hits != n || st.Missed != 0 {
			t.Errorf("%s: %+v, want %d hits", name, st, n)
		}
	}
}

// Jumps that are written in portions are taken out again if one of the portions fails.
func TestPortionsFail(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "many_functions.c", "-O2"))
	want := sub.work()
	arm := func(nth int) (made int, err error) {
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{CountOnly: true, Log: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if cerr := s.Close(context.Background()); cerr != nil {
				t.Error(cerr)
			}
		}()
		n := failing(s.engine.Tracer, nth, false)
		err = s.Arm(t.Context(), parseDefs(t, "p:some many_functions:f_69*"))
		_ = s.engine.Tracer.Do(func() error { s.engine.Tracer.FailWith(nil); return nil }) // fails only when it is closed
		return *n, err
	}
	all, err := arm(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, back := range []int{4, 11, 31, 47} {
		if _, err := arm(all - back); errors.Is(err, errTest) {
			failed++
		} else if err != nil {
			t.Errorf("request %d of %d: %v", all-back, all, err)
		}
		checkClean(t, sub.pid())
		if got := sub.work(); got != want {
			t.Errorf("it prints %q, want %q", got, want)
		}
	}
	if failed == 0 {
		t.Error("nothing has failed")
	}
	sub.quit()
}

// Functions of several shapes are probed, in full form a million of them: each call is counted once, whatever
// the number of its probe.
func TestMillion(t *testing.T) {
	n := 20_000
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		n = 1_000_000
	}
	sub := startSubject(t, fixture.Many(t, n))
	want := sub.work()
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:all big:f_*", fmt.Sprintf("p:last f_%d a=$arg1:u32 if a == %[1]d", n-1))
	if got := sub.work(); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	l.finish(sub.pid())
	if got := sub.work(); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	sub.quit()
	// One function in eight calls another one, and one jumps to another one.
	for name, n := range map[string]uint64{"all": uint64(n + n/8*2), "last": 1} {
		if st := l.stat(name); st.Hits != n {
			t.Errorf("%s: %+v, want %d hits", name, st, n)
		}
	}
}

// Jumps that are being written in portions are taken out again at once if the change is interrupted.
func TestPortionsInterrupted(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "many_functions.c", "-O2"))
	want := sub.work()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := false
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{CountOnly: true, Log: testLog(t), Progress: func(step string, _, _ int) {
		if step == "writing jumps" {
			began = true
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(ctx, parseDefs(t, "p:some many_functions:f_*")); !errors.Is(err, context.Canceled) || !began {
		t.Errorf("writing began: %v; %v", began, err)
	}
	if got := sub.work(); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	if got := sub.work(); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	sub.quit()
}

// A plan that is interrupted leaves nothing: no probe has a number, and when the same places are probed next, each call is
// counted once.
func TestPlanInterrupted(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "many_functions.c", "-O2"))
	want := sub.work()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{CountOnly: true, Log: testLog(t), Progress: func(step string, _, _ int) {
		if step == "planning jumps" {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(ctx, parseDefs(t, "p:some many_functions:f_6*")); !errors.Is(err, context.Canceled) {
		t.Errorf("it wasn't interrupted: %v", err)
	}
	if err := s.engine.Tracer.Do(func() error {
		for _, f := range s.engine.Feeds {
			if len(f.Ids) < 10_000 || len(f.Spare) != len(f.Ids) {
				t.Errorf("%d of %d numbers are free again", len(f.Spare), len(f.Ids))
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := sub.work(); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	if err := s.Arm(t.Context(), parseDefs(t, "p:next many_functions:f_6*")); err != nil {
		t.Fatal(err)
	}
	if got := sub.work(); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for _, st := range s.Stats() {
		if n := st.Hits; st.Event.Name == "some" && n != 0 || st.Event.Name == "next" && n != 11111 {
			t.Errorf("%s has %d hits", st.Event.Name, n)
		}
	}
	checkClean(t, sub.pid())
	sub.quit()
}

// A plan of thousands of functions is the same whatever the CPUs do that work ahead of the
// planner.
func TestPlanOnAnyCPUs(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "many_functions.c", "-O2"))
	want := sub.work()
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:some many_functions:f_6*", "r:back many_functions:f_66*")
	var plans [][]string
	if err := l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			for _, cpus := range []int{1, 2, 7} {
				was := runtime.GOMAXPROCS(cpus)
				p, err := tg.SeePlan()
				runtime.GOMAXPROCS(was)
				if err != nil {
					return err
				}
				plans = append(plans, p)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, p := range plans {
		if len(p) < 5000 { // enough to be worked out ahead of the planner
			t.Errorf("plan %d is of %d patches", i, len(p))
		}
		for k := range p {
			if k >= len(plans[0]) || p[k] != plans[0][k] {
				t.Fatalf("plan %d differs in\n%s", i, p[k])
			}
		}
		if len(p) != len(plans[0]) {
			t.Errorf("plan %d is of %d patches, the first of %d", i, len(p), len(plans[0]))
		}
	}
	if got := sub.work(); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	l.finish(sub.pid())
	sub.quit()
}

// When kprobe leaves, thousands of jumps are taken out in portions, while the program calls their
// functions. What the portions leave, because a request has failed, goes in the last stop.
func TestLeaveInPortions(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "many_functions.c", "-O2"))
	want := sub.work()
	leave := func(nth int) (made int, log []string) {
		keep := slog.New(logOf{slog.LevelInfo, func(text string) { log = append(log, text) }})
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{CountOnly: true, Log: keep})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Arm(t.Context(), parseDefs(t, "p:some many_functions:f_69*", "r:back many_functions:f_698*")); err != nil {
			t.Fatal(err)
		}
		got := make(chan string)
		go func() {
			all := want
			for range 20 {
				if now := sub.work(); now != want {
					all = now
				}
			}
			got <- all
		}()
		n := failing(s.engine.Tracer, nth, false)
		if err := s.Close(context.Background()); err != nil && !errors.Is(err, errTest) {
			t.Error(err)
		}
		if now := <-got; now != want {
			t.Errorf("it prints %q, want %q", now, want)
		}
		return *n, log
	}
	all, log := leave(1 << 30)
	checkClean(t, sub.pid())
	if !slices.ContainsFunc(log, func(s string) bool { return strings.Contains(s, "jumps were taken out in") }) {
		t.Errorf("jumps were not taken out in portions: %q", log)
	}
	inOne := 0
	for _, nth := range []int{1, 40, all / 4, all / 2} {
		_, log := leave(nth)
		if slices.ContainsFunc(log, func(s string) bool { return strings.Contains(s, "in one stop") }) {
			inOne++
		}
		if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
			t.Error(err)
		}
		checkClean(t, sub.pid())
	}
	if inOne == 0 {
		t.Error("no portion has failed")
	}
	if got := sub.work(); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	sub.quit()
}
