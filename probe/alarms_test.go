package probe

import (
	"fmt"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
)

// alarmed are ways of probing a program that has many signals. steps bounds for how many instructions a thread is stepped
// for each, on average. There would be 10 to 40 if each signal waited until its thread has left the detour by steps.
var alarmed = []struct {
	name  string
	opts  Options
	defs  []string
	steps float64
}{
	{"counted", Options{CountOnly: true}, []string{"p:leaf leaf", "p:in inner", "p:tail tail", "p:w work"}, 3},
	{"recorded", Options{}, []string{"p:leaf leaf a=$arg1", "p:in inner a=$arg1", "p:tail tail", "p:w work"}, 8},
	{"returns counted", Options{CountOnly: true}, []string{"r:leaf leaf", "r:in inner", "r:w work"}, 8},
	{"all returns counted", Options{CountOnly: true}, []string{"r:leaf leaf", "r:in inner", "r:tail tail", "r:w work"}, 16},
	{"returns", Options{}, []string{"r:leaf leaf v=$retval", "r:in inner v=$retval", "r:w work a=$arg1"}, 13},
	{"both", Options{CountOnly: true}, []string{"p:leaf leaf", "r:back leaf", "p:w work", "r:wback work"}, 10},
}

// TestAlarms has signals come to threads that are nearly always in detours: each handler sees the program's own code,
// each hit is counted once, and threads are stepped rarely.
func TestAlarms(t *testing.T) {
	prog := fixture.Build(t, "probe_alarms.c", "-O2", "-pthread", "-lrt")
	for _, m := range alarmed {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s in %d threads", m.name, threads), func(t *testing.T) {
				sub := startSubject(t, prog, fmt.Sprint(int(syscall.SIGUSR1)), "2000", fmt.Sprint(threads), fmt.Sprint(full(200, 20_000)))
				l := attach(t, sub.pid(), m.opts, m.defs...)
				var calls, signals, wrong, steps int
				if line := sub.work(); !scannedAlarms(line, &calls, &signals, &wrong) || wrong != 0 {
					t.Errorf("the program printed %q, want nothing wrong", line)
				}
				onTracer(t, l, func(tg *engine.Target) error {
					steps = tg.Steps
					return nil
				})
				st := l.stat("leaf")
				l.finish(sub.pid())
				if st.Hits != uint64(calls) || st.Missed != 0 {
					t.Errorf("%d hits and %d missed, want %d and 0", st.Hits, st.Missed, calls)
				}
				if n := float64(steps) / float64(max(signals, 1)); n > m.steps {
					t.Errorf("%d steps for %d signals: %.1f for each, want at most %.1f", steps, signals, n, m.steps)
				} else {
					t.Logf("%d signals, %.2f steps for each", signals, n)
				}
				sub.end()
			})
		}
	}
}

// TestAlarmsJump does it with handlers that leave by siglongjmp, and with signals that queue.
func TestAlarmsJump(t *testing.T) {
	prog := fixture.Build(t, "probe_alarms.c", "-O2", "-pthread", "-lrt")
	for _, m := range alarmed {
		t.Run(m.name, func(t *testing.T) {
			const sigRTMin = 34 // the C library's
			sub := startSubject(t, prog, fmt.Sprint(sigRTMin), "1000", "2", fmt.Sprint(full(200, 20_000)), "jump")
			l := attach(t, sub.pid(), m.opts, m.defs...)
			var calls, signals, wrong int
			if line := sub.work(); !scannedAlarms(line, &calls, &signals, &wrong) || wrong != 0 {
				t.Errorf("the program printed %q, want nothing wrong", line)
			}
			l.finish(sub.pid())
			sub.end()
		})
	}
}

func scannedAlarms(line string, calls, signals, wrong *int) bool {
	n, _ := fmt.Sscanf(line, "done %d calls %d signals %d wrong", calls, signals, wrong)
	return n == 3
}
