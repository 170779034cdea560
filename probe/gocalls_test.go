package probe

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/engine"
)

// goReturns are definitions that keep the entry's argument, and that check by
// themselves: the functions return what is told by it.
var goReturns = []string{"r1024:walk main.walk n=$arg1:s64", "r512:grow main.grow n=$arg1:s64 v=$retval:s64", "r512:caught main.caught p=$arg1 v=$retval:s64", "r512:handle main.handle r=$arg2"}

// checkGoReturns compares what was seen with what the program does. left says that
// the probes came while it was at work.
func checkGoReturns(t *testing.T, l *live) {
	t.Helper()
	got := map[string]int{}
	for _, line := range l.sink.all() {
		got[strings.SplitN(line, " (", 2)[0]]++
	}
	for _, name := range []string{"walk", "grow", "caught", "handle"} {
		if st := l.stat(name); st.Hits != goCalls[name] || st.Missed != 0 {
			t.Errorf("%s: %d returns, %d missed, of %d calls", name, st.Hits, st.Missed, goCalls[name])
		}
	}
	for n := range 101 {
		if k := got[fmt.Sprintf("walk n=%d", n)]; k != 8*12 {
			t.Errorf("walk(%d) returned %d times, want %d", n, k, 8*12)
		}
	}
	// grow(n, &i) is (n+1)*i, for i from 0 to 11.
	for n := range 6 {
		for i := range 12 {
			if k := got[fmt.Sprintf("grow n=%d v=%d", n, (n+1)*i)]; k != 8 {
				t.Errorf("grow(%d) returned %d %d times, want 8", n, (n+1)*i, k)
			}
		}
	}
	if k := got["caught p=0x0 v=-1"]; k != 8*12 {
		t.Errorf("caught(nil) returned -1 %d times, want %d", k, 8*12)
	}
}

// finishGoReturns waits until the program's work is done, ends both, and compares what the program printed, and what
// was seen, with what the program does.
func finishGoReturns(t *testing.T, sub *subject, l *live, want string) {
	t.Helper()
	if got := sub.expect("done"); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	checkGoReturns(t, l)
}

// TestGoEntryValues: returns of Go functions with values of the entry, on stacks
// that grow in the call, across panics, in goroutines that come and go.
func TestGoEntryValues(t *testing.T) {
	prog := fixture.Build(t, "probe_go.go")
	want := plain(t, prog)
	for _, o := range []Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprintf("optimize %v", !o.NoOptimize), func(t *testing.T) {
			sub := startSubject(t, prog)
			l := attach(t, sub.pid(), o, append(slices.Clone(goReturns), "p:in main.walk n=$arg1")...)
			for _, name := range []string{"walk", "grow", "caught", "handle"} {
				if n, why := optimizedOf(l, name); (n == 1) == o.NoOptimize {
					t.Errorf("%s: %d by a jump: %s", name, n, why)
				}
			}
			sub.line()
			finishGoReturns(t, sub, l, want)
		})
	}
}

// TestGoGivesWay makes the jumps breakpoints while calls are under way: no return
// is missed or seen twice.
func TestGoGivesWay(t *testing.T) {
	prog := fixture.Build(t, "probe_go.go")
	want := plain(t, prog)
	sub := startSubject(t, prog)
	l := attach(t, sub.pid(), Options{}, goReturns...)
	sub.line()
	for range 4 {
		time.Sleep(20 * time.Millisecond) // anywhere in its work
		onTracer(t, l, func(tg *engine.Target) error {
			if list := jumpsIn(tg); len(list) > 0 {
				return tg.Unoptimize(t.Context(), list[0])
			}
			return nil
		})
	}
	for _, name := range []string{"walk", "grow", "caught", "handle"} {
		if n, _ := optimizedOf(l, name); n != 0 {
			t.Errorf("%s is a jump still", name)
		}
	}
	finishGoReturns(t, sub, l, want)
}

// TestGoGivesWayAmongSteps: threads with signals are stepped through detours while the jumps become breakpoints. If one
// is about to note a call, or to record its return, the call is neither lost nor another's.
func TestGoGivesWayAmongSteps(t *testing.T) {
	prog := fixture.Build(t, "probe_go.go")
	want := plain(t, prog)
	for range full(4, 80) {
		sub := startSubject(t, prog)
		l := attach(t, sub.pid(), Options{}, goReturns...)
		sub.line()
		over, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-over:
					return
				default:
				}
				tids, _ := procfs.Process(sub.pid()).Threads()
				for _, tid := range tids {
					_ = unix.Tgkill(sub.pid(), tid, syscall.SIGURG) // it may be gone
				}
			}
		}()
		time.Sleep(20 * time.Millisecond) // anywhere in its work
		onTracer(t, l, func(tg *engine.Target) error {
			i := slices.IndexFunc(jumpsIn(tg), func(p *engine.Patch) bool { return p.Probes()[0].Ev.Name == "walk" })
			if i < 0 {
				t.Error("walk has no jump")
				return nil
			}
			return tg.Unoptimize(t.Context(), jumpsIn(tg)[i])
		})
		close(over)
		<-done
		finishGoReturns(t, sub, l, want)
	}
}

// TestGoPanics: calls that are left by panics and by runtime.Goexit are no returns,
// and their instances come back, though their goroutines are gone.
func TestGoPanics(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "go_panics.go"))
	l := attach(t, sub.pid(), Options{}, "r6:dive main.dive n=$arg1:s64 v=$retval:s64")
	if n, why := optimizedOf(l, "dive"); n != 1 {
		t.Fatalf("no jump: %s", why)
	}
	tell := func(how string) (calls, returns uint64) {
		t.Helper()
		if _, err := fmt.Fprintln(sub.in, how); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(sub.expect("done"), "done %d %d", &calls, &returns); err != nil {
			t.Fatal(err)
		}
		return calls, returns
	}
	for _, how := range []string{"panic", "goexit"} {
		before := l.stat("dive")
		calls, returns := tell(how)
		if st := l.stat("dive"); returns != 0 || st.Hits != before.Hits || st.Missed-before.Missed > calls {
			t.Errorf("%s: %d hits, %d missed, of %d calls that didn't return", how, st.Hits-before.Hits, st.Missed-before.Missed, calls)
		}
		all := waitUntil(func() bool {
			before := l.stat("dive")
			calls, returns := tell("return")
			st := l.stat("dive")
			if st.Hits-before.Hits+st.Missed-before.Missed != calls || returns != calls {
				t.Fatalf("after %s: %d hits and %d missed of %d calls", how, st.Hits-before.Hits, st.Missed-before.Missed, calls)
			}
			return st.Missed == before.Missed
		})
		if !all {
			t.Errorf("calls are missed long after %s", how)
		}
	}
	for _, line := range l.sink.all() {
		var n, v int64
		if _, err := fmt.Sscanf(line, "dive n=%d v=%d", &n, &v); err != nil || n != v {
			t.Errorf("%s: %v", line, err)
		}
	}
	l.finish(sub.pid())
	endOfInput(t, sub)
}
