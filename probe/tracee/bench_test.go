//go:build linux && amd64

package tracee

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// BenchmarkBreakpoint is the cost of an int3 that the program sees, beside
// that of the least a tracer in C can do (floor-ns), in the same run.
func BenchmarkBreakpoint(b *testing.B) {
	exe := fixture.Build(b, "tracee_floor.c", "-O2")
	floor := 0.0
	for range 3 {
		out, err := exec.Command(exe).Output()
		if err != nil {
			b.Fatal(err)
		}
		ls := strings.Fields(string(out))
		n, err := strconv.ParseFloat(ls[len(ls)-1], 64)
		if err != nil {
			b.Fatal(err)
		}
		if floor == 0 || n < floor {
			floor = n
		}
	}
	// The best of three runs, which more hits make no better.
	n := min(max(b.N, 100), 20000)
	g := spawn(b, exe, strconv.Itoa(n))
	tr := newTracer(b)
	attach(b, tr, g.pid)
	h := &recorder{t: b, brk: func(th *Thread) Verdict {
		r, err := th.Regs()
		if err != nil {
			return Resume
		}
		r.Rax++
		return Resume
	}}
	stop := running(b, tr, h)
	best := 0.0
	b.ResetTimer()
	for range 3 {
		if _, err := g.in.Write([]byte{'\n'}); err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseFloat(g.line(), 64)
		if err != nil {
			b.Fatal(err)
		}
		if best == 0 || ns < best {
			best = ns
		}
	}
	b.StopTimer()
	b.ReportMetric(best, "stop-ns")
	b.ReportMetric(floor, "floor-ns")
	b.ReportMetric(best/floor, "x-floor")
	if _, status := g.rest(); status != 0 {
		b.Errorf("status %d", status)
	}
	if err := stop(); err != nil {
		b.Fatal(err)
	}
}
