package probe

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestLeftGDB attaches gdb to a process with probes that nobody traces, left alone or of a session
// that has let go, sets a breakpoint of gdb's own elsewhere, runs into it, takes it out and leaves.
// Hits go on meanwhile and afterwards, and the probes can be changed and taken out.
func TestLeftGDB(t *testing.T) {
	gdb := fixture.NeedTool(t, "gdb")
	attached := func(s *recorderSubject, hits func() uint64) {
		t.Helper()
		first := hits()
		cmd := exec.Command(gdb, "-nx", "-q", "-batch", "-p", strconv.Itoa(s.pid()),
			"-ex", "break usleep", "-ex", "continue", "-ex", "backtrace 3",
			"-ex", "continue", "-ex", "continue 20", "-ex", "delete", "-ex", "detach")
		out, err := cmd.CombinedOutput()
		stops := strings.Count(string(out), "hit Breakpoint 1,")
		if err != nil || stops < 3 || !strings.Contains(string(out), "detached]") {
			t.Fatalf("gdb: %v; %d stops: %s", err, stops, out)
		}
		after := hits()
		if after <= first {
			t.Errorf("%d hits before gdb, %d when it has gone", first, after)
		}
		if !waitUntil(func() bool { return hits() > after+100 }) {
			t.Errorf("since gdb has gone, %d hits are not followed by others", after)
		}
	}
	t.Run("detached", func(t *testing.T) {
		s := startRecorded(t, 2, "paced")
		s.line()
		leaveIn(t, s.pid(), Options{Detach: true}, recordedHit)
		l := openedLive(t, s.pid())
		attached(s, func() uint64 { return liveHits(t, l, "hit") })
		if err := l.Add(t.Context(), parseDefs(t, "p:rec/more hit2")); err != nil {
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
	})
	t.Run("letgo", func(t *testing.T) {
		s := startRecorded(t, 2, "paced")
		s.line()
		l := engageInto(t, s.pid(), Options{LetGo: true}, nil, recordedHit)
		l.untraced(s.pid())
		attached(s, func() uint64 { return l.stat("hit").Hits })
		l.untraced(s.pid())
		if _, err := l.s.Add(t.Context(), parseDefs(t, "p:rec/more hit2")); err != nil {
			t.Error(err)
		}
		l.finish(s.pid())
		checkLeft(t, s.pid(), true)
		if got := s.work(); !strings.HasPrefix(got, "done ") {
			t.Errorf("the program printed %q", got)
		}
		s.end()
	})
}

// liveHits gives how many hits an event of a process's probes that were left alone has.
func liveHits(t *testing.T, l *Live, name string) (n uint64) {
	t.Helper()
	if err := l.Refresh(); err != nil {
		t.Fatal(fmt.Errorf("look at the probes: %w", err))
	}
	for _, st := range l.Stats() {
		if st.Event.Name == name {
			n += st.Hits
		}
	}
	return n
}
