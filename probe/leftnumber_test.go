package probe

import (
	"errors"
	"strings"
	"testing"

	"kprobe/probe/area"
	"kprobe/symbols"
)

// TestLeftNumber asks for changes of a process with detached probes that has ended, as far as kprobe knows, and
// whose number another one has got: nothing is changed in that one, whose memory file may even be mapped at the
// same place.
func TestLeftNumber(t *testing.T) {
	s := startRecorded(t, 2, "paced")
	s.left(Options{}, recordedHit)
	l := openedLive(t, s.pid())
	more := parseDefs(t, "p:rec/more hit2 n=$arg1:u64")
	files := map[symbols.Addr]bool{l.base: true}
	l.start--
	for what, err := range map[string]error{
		"refresh": l.Refresh(), "add": l.Add(t.Context(), more), "remove": l.Remove(t.Context(), []string{"rec/hit"}),
		"add, looked at before": l.leaveMore(t.Context(), more),
	} {
		if !errors.Is(err, symbols.ErrGone) {
			t.Errorf("%s: %v, want ErrGone", what, err)
		}
	}
	if _, err := l.Space(); !errors.Is(err, symbols.ErrGone) {
		t.Errorf("symbols: %v, want ErrGone", err)
	}
	if _, err := area.RecoverAll(t.Context(), []int{s.pid()}, &area.Chosen{Start: l.start, Files: files}); err != nil {
		t.Errorf("removal, looked at before: %v", err)
	}
	if there, err := s.looksWhole(); err != nil || !there {
		t.Errorf("the other process has its probes: %v, %v", there, err)
	}
	if n := len(openedLive(t, s.pid()).Probes()); n != 1 {
		t.Errorf("the other process has %d probes, want 1", n)
	}
	l.start++
	if err := l.Remove(t.Context(), []string{"rec/hit"}); err != nil {
		t.Error(err)
	}
	checkLeft(t, s.pid(), true)
	if got := s.work(); !strings.HasPrefix(got, "done ") {
		t.Errorf("the program printed %q", got)
	}
	s.end()
}
