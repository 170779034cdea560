package tracee

import (
	"context"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestStepOutOfSteps: a thread that verdicts step is stepped on while all are stopped, at whatever point of a step
// that finds it. The traps of its steps are not the program's.
func TestStepOutOfSteps(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "flags")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	steps := 0
	stop := running(t, tr, stepper(t, &steps))
	for range 200 {
		if err := stepForever(tr, p); err != nil {
			t.Fatal(err)
		}
		before := counted(t, tr, &steps)
		eventually(t, "20 steps", func() bool { return counted(t, tr, &steps) >= before+20 })
		do(t, tr, func() error {
			return p.WithStopped(context.Background(), func([]*Thread) error {
				n := 0
				if !p.Thread(g.pid).StepOut(func(symbols.Addr) bool { n++; return n < 10 }, 20) {
					t.Errorf("after %d instructions it can't be stepped", n)
				}
				return nil
			})
		})
	}
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
