package probe

import (
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestLeftFollowed has a session that is to leave its probes run for a while before it does. A return
// probe that is a breakpoint is left out then, and nothing that might follow its calls stays: no
// breakpoint where a function returned to that jumps on to another, and no return trampoline in the
// slot of a call that waits. The other probe is left, and sees all calls from then on.
func TestLeftFollowed(t *testing.T) {
	prog := fixture.Build(t, "recorder_passes.c", "-O2", "-pthread")
	for _, args := range [][]string{nil, {"made"}} {
		t.Run(strings.Join(append(args, "calls"), " "), func(t *testing.T) {
			want := startSubject(t, prog, args...)
			want.line()
			want.expect("waits")
			result := want.work()
			want.end()

			s := startSubject(t, prog, args...)
			session := s.attached(Options{Detach: true})
			defer session.Close(t.Context())
			const slow = `r:rec/slow passes f=$arg1:symstr if f != "none"`
			if err := session.Arm(t.Context(), parseDefs(t, slow, "r:rec/hit works v=$retval")); err != nil {
				t.Fatal(err)
			}
			stop := traceMeanwhile(t, session)
			s.line()
			s.expect("waits")
			stop()
			out, err := session.Detach(t.Context())
			if err != nil || len(out) != 1 || !strings.Contains(out[0].Why, "breakpoint") {
				t.Fatalf("%+v, %v", out, err)
			}
			if got := s.work(); got != result {
				t.Errorf("the program printed %q, otherwise %q", got, result)
			}
			// Each return of works is a hit by itself, also that of the call that waited.
			if st := openedLive(t, s.pid()).Stats(); len(st) != 1 || st[0].Hits != 1001 || st[0].Missed != 0 {
				t.Errorf("%+v, want 1001 hits", st)
			}
			s.takenOut()
			s.end()
		})
	}
}
