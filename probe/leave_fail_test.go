package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/area"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

var errTest = errors.New("the test has this fail")

// failing makes the nth request of a tracer fail, or that and all after it. It gives
// how many were made.
func failing(tr *tracee.Tracer, nth int, all bool) (made *int) {
	made = new(int)
	_ = tr.Do(func() error { // fails only when the tracer is closed
		tr.FailWith(func(tracee.Request) error {
			*made++
			if *made-1 == nth || all && *made > nth {
				return errTest
			}
			return nil
		})
		return nil
	})
	return made
}

var failDefs = []string{"r:one on_usr1", "r:two on_usr2", "p:in work a=$arg1", "r:out work v=$retval", "r:down down v=$retval", "p:mid work+4"}

// begun is a session that has run for a moment.
func begun(t *testing.T, pid int, o Options) *Session {
	t.Helper()
	o.Log = testLog(t)
	s, err := Attach(t.Context(), []int{pid}, o)
	if err != nil {
		t.Fatalf("%v; the program: %s", err, endOf(pid))
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.Arm(t.Context(), parseDefs(t, failDefs...)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, &collector{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// step is how far the tests of failing requests go at a time where there are many.
func step(n int) int {
	if full(0, 1) == 1 || n < 4 {
		return 1
	}
	return 2 + n/8
}

var failModes = map[string]Options{"jumps": {}, "breakpoints": {NoOptimize: true}}

// inEachMode runs fn as eachFailure does, over a program that must have done its work
// at the end, with jumps and with breakpoints.
func inEachMode(t *testing.T, fn func(t *testing.T, sub *subject, o Options, nth int, all bool) (over bool)) {
	prog := fixture.Build(t, "leave_signals.c", "-O2", "-lpthread")
	for name, o := range failModes {
		t.Run(name, func(t *testing.T) {
			sub := startSubject(t, prog, "nested", "alt", "deep")
			eachFailure(t, func(t *testing.T, nth int, all bool) bool { return fn(t, sub, o, nth, all) })
			if got := sub.work(); got != "done 0" {
				t.Errorf("the program printed %q, want done 0", got)
			}
			sub.end()
		})
	}
}

// eachFailure calls fn for each of the requests, and for each and all behind it, until
// fn reports that no request was left to fail.
func eachFailure(t *testing.T, fn func(t *testing.T, nth int, all bool) (over bool)) {
	t.Helper()
	for _, all := range []bool{false, true} {
		for nth := 0; ; nth += step(nth) {
			over := fn(t, nth, all)
			if t.Failed() {
				t.Fatalf("request %d, and all behind it: %v", nth, all)
			}
			if over {
				t.Logf("%d requests", nth)
				break
			}
		}
	}
}

// lives checks that a program runs on, without a tracer, over what was left in it.
func lives(t *testing.T, pid int) {
	t.Helper()
	time.Sleep(2 * time.Millisecond)
	if s := endOf(pid); strings.HasPrefix(s, "Z") {
		t.Fatalf("the program has ended: %s", s)
	}
	if traced(pid) {
		t.Error("the program is still traced")
	}
}

// recovered has a later kprobe finish what was left.
func recovered(t *testing.T, pid int) {
	t.Helper()
	if _, err := Recover(t.Context(), []int{pid}); err != nil {
		t.Errorf("recover: %v", err)
	}
	if s := leftBehind(pid); s != "" {
		t.Errorf("after recovery %s", s)
	}
	checkClean(t, pid)
}

// TestLeaveFails has each request fail that kprobe makes when it leaves a program: the
// program lives, what could not be undone is there and known, and the next kprobe
// finishes it.
func TestLeaveFails(t *testing.T) {
	inEachMode(t, func(t *testing.T, sub *subject, o Options, nth int, all bool) bool {
		s := begun(t, sub.pid(), o)
		made := failing(s.engine.Tracer, nth, all)
		err := s.Close(t.Context())
		lives(t, sub.pid())
		over := *made <= nth
		if (err == nil) && leftBehind(sub.pid()) != "" || over && err != nil {
			t.Errorf("close: %v, but %s", err, leftBehind(sub.pid()))
		}
		recovered(t, sub.pid())
		return over
	})
}

// TestRecoveryFails has each request fail by which a later kprobe takes out what was
// left; the one after that finishes it.
func TestRecoveryFails(t *testing.T) {
	inEachMode(t, func(t *testing.T, sub *subject, o Options, nth int, all bool) bool {
		s := begun(t, sub.pid(), o)
		failing(s.engine.Tracer, 0, true)
		if err := s.Close(t.Context()); !errors.Is(err, errTest) {
			t.Fatalf("close: %v", err)
		}
		lives(t, sub.pid())
		tr, err := tracee.New()
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		made := failing(tr, nth, all)
		_, err = area.RecoverWith(t.Context(), tr, []int{sub.pid()}, nil)
		lives(t, sub.pid())
		if err == nil && *made > nth && leftBehind(sub.pid()) != "" {
			t.Errorf("no error, but %s", leftBehind(sub.pid()))
		}
		recovered(t, sub.pid())
		return *made <= nth
	})
}

// TestDeletionFails has each request fail, and all behind it, by which probes that were left
// alone are taken out: they are there, or a later kprobe takes out the rest.
func TestDeletionFails(t *testing.T) {
	sub := startRecorded(t, 2)
	sub.line()
	for nth := 0; ; nth += step(nth) {
		leaveIn(t, sub.pid(), Options{Detach: true}, recordedHit)
		m, err := area.FindMemfile(sub.pid())
		if err != nil || m == nil {
			t.Fatalf("no memory file: %v", err)
		}
		changed := changedText(t, sub.pid())
		made, err := deletedUpTo(t, sub.pid(), m, nth)
		lives(t, sub.pid())
		if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
			t.Errorf("recover: %v", err)
		}
		if now := changedText(t, sub.pid()); leftBehind(sub.pid()) != "" && now != changed {
			t.Errorf("%d bytes of the text were changed, %d are, and %s", changed, now, leftBehind(sub.pid()))
		}
		if made <= nth && err != nil {
			t.Errorf("no request failed, but %v", err)
		}
		if _, err := deletedUpTo(t, sub.pid(), m, -1); err != nil {
			t.Errorf("a further deletion: %v", err)
		}
		checkLeft(t, sub.pid(), true)
		if t.Failed() {
			t.Fatalf("request %d", nth)
		}
		if made <= nth {
			t.Logf("%d requests", nth)
			break
		}
	}
	if got := sub.work(); !strings.HasPrefix(got, "done ") {
		t.Errorf("the program printed %q", got)
	}
	sub.end()
}

// deletedUpTo takes out what a memory file tells of, probes that are to stay, too, and has
// the nth request and all behind it fail; -1: none. It gives how many were made.
func deletedUpTo(t *testing.T, pid int, m *symbols.Mapping, nth int) (made int, err error) {
	t.Helper()
	tr, err := tracee.New()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	n := failing(tr, nth, nth >= 0)
	_, err = area.RecoverWith(t.Context(), tr, []int{pid}, &area.Chosen{Files: map[symbols.Addr]bool{m.Start: true}})
	return *n, err
}

// tellsJumps checks that other kprobes are told of the jumps that the text has. A breakpoint's byte may as well be
// the guard of a jump before it.
func tellsJumps(t *testing.T, pid int) {
	t.Helper()
	l := openedLive(t, pid)
	for _, p := range l.Probes() {
		var b [1]byte
		if _, err := l.mem.ReadAt(b[:], int64(p.Addr)); err != nil {
			t.Error(err)
		}
		if (b[0] == 0xe9 || b[0] == area.JmpRel8) && !p.Optimized {
			t.Errorf("%s at %v is a jump and told to be a breakpoint", p.Event, p.Addr)
		}
	}
}

// TestChangeFails has each request fail by which probes come and go while the program
// runs: what was there goes on, the same change succeeds afterwards, and kprobe leaves
// nothing behind.
func TestChangeFails(t *testing.T) {
	inEachMode(t, func(t *testing.T, sub *subject, o Options, nth int, all bool) bool {
		l := attach(t, sub.pid(), o, "p:in work a=$arg1", "r:two on_usr2")
		more := func() (*Link, error) {
			return l.s.Add(t.Context(), parseDefs(t, "r:one on_usr1", "p:mid work+4", "r:out work v=$retval", "r:down down v=$retval"))
		}
		change := func() error {
			link, err := more()
			if err != nil {
				return fmt.Errorf("add: %w", err)
			}
			if err := link.Close(t.Context()); err != nil {
				// It has not succeeded: they are there.
				return errors.Join(err, link.Close(context.WithoutCancel(t.Context())))
			}
			return nil
		}
		made := failing(l.s.engine.Tracer, nth, all)
		_ = change()
		over := *made <= nth
		failing(l.s.engine.Tracer, -1, false)
		tellsJumps(t, sub.pid())
		for _, ev := range l.s.Events() {
			if ev.Name != "in" && ev.Name != "two" {
				if err := l.s.Remove(t.Context(), ev); err != nil {
					t.Errorf("remove what could not be removed: %v", err)
				}
			}
		}
		if err := change(); err != nil {
			t.Errorf("the change fails for good: %v", err)
		}
		had := l.stat("in").Hits
		if !waitUntil(func() bool { return l.stat("in").Hits > had }) {
			t.Error("what was there has no hits any more")
		}
		l.finish(sub.pid())
		lives(t, sub.pid())
		return over
	})
}

// TestArmFails has each request fail by which the first probes of a session come: the
// program lives, the same session can arm them after, and what could not be undone the
// next kprobe finds.
func TestArmFails(t *testing.T) {
	inEachMode(t, func(t *testing.T, sub *subject, o Options, nth int, all bool) bool {
		o.Log = testLog(t)
		s, err := Attach(t.Context(), []int{sub.pid()}, o)
		if err != nil {
			t.Fatalf("%v; the program: %s", err, endOf(sub.pid()))
		}
		defer s.Close(context.Background())
		made := failing(s.engine.Tracer, nth, all)
		err = s.Arm(t.Context(), parseDefs(t, failDefs...))
		over := *made <= nth
		failing(s.engine.Tracer, -1, false)
		if err != nil {
			if err := s.Arm(t.Context(), parseDefs(t, failDefs...)); err != nil {
				t.Errorf("armed anew: %v", err)
			}
		}
		l := collecting(t, s)
		l.run()
		if !waitUntil(func() bool { return l.stat("in").Hits > 0 }) {
			t.Error("no hits")
		}
		l.stop()
		<-l.done
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		lives(t, sub.pid())
		recovered(t, sub.pid())
		return over
	})
}
