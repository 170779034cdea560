package probe

import (
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/plan"
)

// TestLeftShortJumpsOfGo leaves probes of every instruction of Go functions alone: of the
// jumps none is made of two, between which a goroutine could be preempted.
func TestLeftShortJumpsOfGo(t *testing.T) {
	prog := fixture.Build(t, "probe_go.go")
	want := plain(t, prog)
	sub := startSubject(t, prog)
	funcs := functionsIn(t, sub.pid(), "main.leaf", "main.walk", "main.chain", "main.link", "runtime.findObject", "runtime.casgstatus")
	var defs []string
	for _, list := range instructionsOf(t, sub.pid(), funcs) {
		defs = append(defs, list...)
	}
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if err := s.Arm(t.Context(), parseDefs(t, defs...)); err != nil {
		t.Fatal(err)
	}
	short := 0
	for _, st := range openedLive(t, sub.pid()).Probes() {
		if st.Tactic == plan.ShortJump {
			short++
		}
	}
	out, err := s.Detach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, o := range out {
		if strings.Contains(o.Why, "short jump") {
			said++
		}
	}
	left := 0
	for _, st := range openedLive(t, sub.pid()).Probes() {
		if left++; st.Tactic == plan.ShortJump {
			t.Errorf("a short jump stays at %v", st.Addr)
		}
	}
	if short == 0 || said < short || left == 0 {
		t.Errorf("%d short jumps, %d probes left out for them, %d left: the fixture is wrong", short, said, left)
	}
	if got := sub.work(); got != want {
		t.Errorf("the program printed %q, otherwise %q", got, want)
	}
	sub.takenOut()
	sub.end()
}
