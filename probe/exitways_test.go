package probe

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// ways is a sink that adds up what probe_exits does: how often each function
// returned, and a sum over its arguments and values.
type ways struct {
	n, sum map[string]int64
	vals   []fetch.Value
	bad    []string
}

func newWays() *ways { return &ways{n: map[string]int64{}, sum: map[string]int64{}} }

// Hit implements Sink.
func (w *ways) Hit(h *Hit) error {
	var err error
	if w.vals, err = h.Program.Decode(h.Data, w.vals); err != nil {
		return err
	}
	v, a := int64(w.vals[0].Int), int64(w.vals[1].Int)
	w.n[h.Event.Name]++
	w.sum[h.Event.Name] += v ^ a*7
	if name, _, _, _, _ := h.Space.Symbolize(h.RetIP); name == "" {
		w.bad = append(w.bad, fmt.Sprintf("%s returns to %v", h.Event.Name, h.RetIP))
	}
	return nil
}

// numbersOf parses what a program prints: for each name two numbers.
func numbersOf(t *testing.T, line string) (first, second map[string]int64) {
	t.Helper()
	first, second = map[string]int64{}, map[string]int64{}
	f := strings.Fields(line)
	for i := 1; i+2 < len(f); i += 3 {
		k, err := strconv.ParseInt(f[i+1], 10, 64)
		s, err2 := strconv.ParseInt(f[i+2], 10, 64)
		if err != nil || err2 != nil {
			t.Fatalf("the program printed %q", line)
		}
		first[f[i]], second[f[i]] = k, s
	}
	return first, second
}

var exitWays = []string{"sw", "coldy", "ta", "tb", "tc", "thr", "nest", "deep", "hsig", "raiser", "leaver", "co", "bt", "forker", "ended"}

func exitDefs(with string) (defs []string) {
	for _, f := range exitWays {
		defs = append(defs, fmt.Sprintf("r100:%s %s v=$retval n=$arg1%s", f, f, with))
	}
	return defs
}

// TestExitWays: functions that are left by returns at many places, by their cold
// parts, by jumps to each other, by exceptions, siglongjmp also out of signal
// handlers, the end of their threads, on stacks of their own, and in two
// processes: each return is seen once, with its value and its call's argument,
// and the program doesn't notice, its backtraces neither.
func TestExitWays(t *testing.T) {
	prog := fixture.Build(t, "probe_exits.cc", "-O2", "-pthread")
	for _, threads := range []string{"1", "8"} {
		want := plain(t, prog, "120", threads)
		for _, o := range []Options{{}, {NoOptimize: true}} {
			t.Run(fmt.Sprintf("%s threads, optimize %v", threads, !o.NoOptimize), func(t *testing.T) {
				sub := startSubject(t, prog, "120", threads)
				sink := newWays()
				l := engageInto(t, sub.pid(), o, sink, exitDefs("")...)
				for _, f := range exitWays {
					if n, why := optimizedOf(l, f); (n == 1) == o.NoOptimize {
						t.Errorf("%s: %d places by a jump: %s", f, n, why)
					}
				}
				got := sub.work()
				if got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				l.finish(sub.pid())
				sub.end()
				n, sum := numbersOf(t, got)
				for _, f := range exitWays {
					if st := l.stat(f); sink.n[f] != n[f] || sink.sum[f] != sum[f] || st.Missed != 0 || st.Hits != uint64(n[f]) {
						t.Errorf("%s: %d returns seen, sum %d, %d missed; want %d, %d, 0", f, sink.n[f], sink.sum[f], st.Missed, n[f], sum[f])
					}
				}
				for _, b := range sink.bad {
					t.Error(b)
				}
			})
		}
	}
}

// TestExitStorm attaches and leaves again and again while threads are in calls
// of all kinds: the program computes the same.
func TestExitStorm(t *testing.T) {
	prog := fixture.Build(t, "probe_exits.cc", "-O2", "-pthread")
	args := []string{"3000", "4"}
	want := plain(t, prog, args...)
	for cycles := 0; cycles < full(15, 2000); {
		sub := startSubject(t, prog, args...)
		sub.line()
		done := make(chan string, 1)
		go func() { done <- sub.expect("done") }()
		n, got := 0, ""
		for ; got == ""; n++ {
			sink := newWays()
			l := engageInto(t, sub.pid(), Options{}, sink, exitDefs("")...)
			time.Sleep(time.Duration(n%4) * time.Millisecond)
			if n%3 == 1 {
				if err := l.s.Enable(false, l.s.Events()...); err != nil {
					t.Error(err)
				}
			}
			l.finish(sub.pid())
			if len(sink.bad) > 0 {
				t.Error(sink.bad[0])
			}
			select {
			case got = <-done:
			default:
			}
		}
		if got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		sub.end()
		if cycles += n; t.Failed() {
			break
		}
	}
}

// TestExitGivesWay places other probes at the returns while calls are under way,
// and makes jumps breakpoints: no return is missed or seen twice.
func TestExitGivesWay(t *testing.T) {
	prog := fixture.Build(t, "probe_exits.cc", "-O2", "-pthread")
	args := []string{"600", "4"}
	done := plain(t, prog, args...)
	for _, how := range []string{"probes", "breakpoints"} {
		t.Run(how, func(t *testing.T) {
			sub := startSubject(t, prog, args...)
			sink := newWays()
			l := engageInto(t, sub.pid(), Options{}, sink, exitDefs("")...)
			places := exitPlaces(t, l)
			if len(places) < len(exitWays) {
				t.Fatalf("returns at %v only", places)
			}
			sub.line()
			for i, place := range places {
				if how == "probes" {
					if err := l.s.Arm(t.Context(), parseDefs(t, fmt.Sprintf("p:at%d %s v=%%ax n=%%di", i, place))); err != nil {
						t.Error(err)
					}
					continue
				}
				err := l.s.engine.Tracer.Do(func() error {
					for _, tg := range l.s.engine.Targets {
						for _, p := range jumpsIn(tg) {
							if ofExits(p, place) {
								return tg.Unoptimize(t.Context(), p)
							}
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
			got := sub.expect("done")
			if got != done {
				t.Errorf("probed, the program printed %q, otherwise %q", got, done)
			}
			l.finish(sub.pid())
			sub.end()
			n, sum := numbersOf(t, got)
			for _, f := range exitWays {
				if st := l.stat(f); sink.n[f] != n[f] || sink.sum[f] != sum[f] || st.Missed != 0 {
					t.Errorf("%s: %d returns seen, sum %d, %d missed; want %d, %d, 0", f, sink.n[f], sink.sum[f], st.Missed, n[f], sum[f])
				}
			}
		})
	}
}

// TestExitKilled kills kprobe, both its processes, while calls of all kinds are
// under way: the program runs on over what is left, computes the same, and a
// later kprobe finds all of it.
func TestExitKilled(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "probe_exits.cc", "-O2", "-pthread")
	args := []string{"1200", "4"}
	want := plain(t, prog, args...)
	for round := range full(4, 100) {
		sub := startSubject(t, prog, args...)
		c := startKprobe(t, bin, append([]string{"trace", "-q", "-o", "/dev/null", "-p", strconv.Itoa(sub.pid())}, exitDefs("")...)...)
		armed := func() bool {
			l, err := OpenLive(sub.pid())
			if err != nil {
				return false
			}
			defer l.Close()
			n := 0
			for _, p := range l.Probes() {
				if p.Optimized {
					n++
				}
			}
			return n == len(exitWays)
		}
		if !waitUntil(armed) {
			t.Fatalf("the probes are not armed: %s", c.stderr.String())
		}
		sub.line()
		time.Sleep(time.Duration(round%4) * 3 * time.Millisecond)
		c.kill(killBoth)
		<-c.done
		if round%2 == 0 {
			if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) != 1 {
				t.Errorf("recovered %v: %v", pids, err)
			}
			checkClean(t, sub.pid())
		}
		if got := sub.expect("done"); got != want {
			t.Errorf("after the kill the program printed %q, otherwise %q", got, want)
		}
		if round%2 != 0 {
			if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) != 1 {
				t.Errorf("recovered %v: %v", pids, err)
			}
			checkClean(t, sub.pid())
		}
		sub.end()
	}
}
