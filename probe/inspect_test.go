package probe

import (
	"testing"

	"kprobe/probe/engine"
	"kprobe/symbols"
)

// TestInspectLikeArmed wants a listing to promise what arming does, instruction
// by instruction: a jump where it says so, a breakpoint elsewhere.
func TestInspectLikeArmed(t *testing.T) {
	path := callsFixture(t)
	for _, fn := range []string{"work", "main"} {
		lists := inspectFile(t, path, fn)
		for _, in := range lists[0].Lines {
			if in.Probe == KindRefused {
				continue
			}
			sub := startSubject(t, path, "pair", "3")
			place := fn
			if in.Offset > 0 {
				place += "+" + symbols.Off(in.Offset).String()
			}
			l := attach(t, sub.pid(), Options{}, "p:x "+place)
			var got *engine.Placed
			for _, tg := range l.s.engine.Targets {
				got = tg.Feed.Ids[0]
			}
			if got.Optimized != in.Tactic.Jump() {
				t.Errorf("%s (%s): optimized %v by %v (%s), but listed as %v, %v", place, in.Text, got.Optimized, got.Tactic, got.Why, in.Probe, in.Tactic)
			}
			l.finish(sub.pid())
			_ = sub.cmd.Process.Kill()
			if testing.Short() && in.Offset > 32 {
				break
			}
		}
	}
}
