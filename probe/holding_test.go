package probe

import (
	"context"
	"errors"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestMapsAlways: a program that maps memory all the time has its probes planned once. What the
// plan needs is mapped before the functions are planned, however long that takes, and is gone if
// the plan is dropped.
func TestMapsAlways(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		sub := startSubject(t, fixture.Build(t, "maps_always.c", "-O2", "-pthread"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		plans := 0
		s, err := Attach(ctx, []int{sub.pid()}, Options{CountOnly: true, Log: testLog(t), Progress: func(step string, n, _ int) {
			if step == "planning jumps" && n == 0 {
				plans++
				// Meanwhile the program takes what is free. A second plan is told of as well, because Progress
				// was last called long ago.
				time.Sleep(300 * time.Millisecond)
				if dropped {
					cancel()
				}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Arm(ctx, parseDefs(t, "r:each maps_always:mapper_*"))
		switch {
		case dropped && !errors.Is(err, context.Canceled):
			t.Errorf("a plan was not dropped: %v", err)
		case !dropped && err != nil:
			t.Fatal(err)
		}
		if plans != 1 {
			t.Errorf("planned %d times", plans)
		}
		const calls = 5
		for range calls {
			sub.work()
		}
		if !dropped {
			for _, st := range s.Stats() {
				if st.Hits != 64*calls {
					t.Errorf("%d hits, want %d", st.Hits, 64*calls)
				}
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		checkClean(t, sub.pid())
		sub.quit()
	}
}
