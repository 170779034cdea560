package probe

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestHitsLocked asks of programs in which probes were left which way their hits go: where
// they take locked instructions the reason is said that the session had.
func TestHitsLocked(t *testing.T) {
	s := startRecorded(t, 2, "paced")
	s.left(Options{}, recordedHit)
	l := openedLive(t, s.pid())
	if got := l.HitsLocked(); !slices.Equal(got, []string{""}) {
		t.Errorf("left: %q", got)
	}
	leaveIn(t, s.pid(), Options{Detach: true, Triggers: triggersOf(t, "more:snapshot")}, "p:rec/more hit2 n=$arg1:u64")
	l = openedLive(t, s.pid())
	if got := l.HitsLocked(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"", "a trigger takes snapshots"}) {
		t.Errorf("with a second recorder that takes snapshots: %q", got)
	}
	// What is there already is kprobe's own, and not somebody else's.
	other, err := Attach(t.Context(), []int{s.pid()}, Options{Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Arm(t.Context(), parseDefs(t, recordedHit)); err == nil || !strings.Contains(err.Error(), "detached probes are there") {
		t.Errorf("armed again: %v", err)
	}
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Remove(t.Context(), []string{"rec/hit", "rec/more"}); err != nil {
		t.Error(err)
	}
	checkLeft(t, s.pid(), true)
	if got := s.work(); !strings.HasPrefix(got, "done ") {
		t.Errorf("the program printed %q", got)
	}
	s.end()

	counts := filepath.Join(t.TempDir(), "counts")
	g := startSubject(t, fixture.Build(t, filepath.Join("goroutines", "recorder_goroutines.go")), "1", counts)
	leaveIn(t, g.pid(), Options{Detach: true}, "p:rec/hit main.hit n=%ax:u64")
	l = openedLive(t, g.pid())
	if got := l.HitsLocked(); len(got) != 1 || got[0] == "" {
		t.Errorf("a Go program: %q", got)
	} else {
		t.Logf("a Go program: %s", got[0])
	}
	if err := l.Remove(t.Context(), []string{"rec/hit"}); err != nil {
		t.Error(err)
	}
}
