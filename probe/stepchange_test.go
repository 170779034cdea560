package probe

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalsWhileProbesChange sends signals to threads that hit breakpoints and
// are stepped out of the copies, while jumps are written
// over the same instructions and taken out: wherever a step has led a thread, the
// program counts right.
func TestSignalsWhileProbesChange(t *testing.T) {
	sub := startStorm(t, "4")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:always f3")
	sub.line()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", sub.pid()))
			for _, task := range tasks[min(3, len(tasks)):] { // the first are left for injected calls
				select {
				case <-end:
					return
				default:
				}
				tid, _ := strconv.Atoi(task.Name())
				// Ignored by the program, and seen by its tracer.
				_ = unix.Tgkill(sub.pid(), tid, unix.SIGWINCH)
			}
		}
	}()
	stop := sync.OnceFunc(func() { close(end); <-ended })
	defer stop()
	hits := 0
	for range full(20, 3000) {
		var inner, outer []Probe
		see := func(*Kprobe, *Regs) bool { hits++; return false }
		for _, at := range []struct {
			fn  string
			off uint64
		}{{"f0", 1}, {"f0", 2}, {"f2", 2}, {"f5", 1}} {
			inner = append(inner, &Kprobe{Symbol: at.fn, Offset: at.off, PreHandler: see, PostHandler: func(*Kprobe, *Regs) {}})
		}
		for _, f := range []string{"f0", "f2", "f5"} {
			outer = append(outer, &Kprobe{Symbol: f})
		}
		for _, err := range []error{
			l.s.RegisterAll(t.Context(), inner...), l.s.UnregisterAll(t.Context(), inner...),
			l.s.RegisterAll(t.Context(), outer...), l.s.UnregisterAll(t.Context(), outer...),
			l.s.RegisterAll(t.Context(), append(inner, outer...)...), l.s.UnregisterAll(t.Context(), inner...),
			l.s.UnregisterAll(t.Context(), outer...),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	if st := l.stat("always"); st.Hits != sub.calls[3] || hits == 0 {
		t.Errorf("%d hits of %d calls; the handlers had %d", st.Hits, sub.calls[3], hits)
	}
}
