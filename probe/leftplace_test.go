package probe

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// TestLeftPlaceAgain removes single events of detached probes, and leaves new ones at their places: by the same
// command's kprobe and by another, as entries and as returns. Each call is a hit of what is there then, the others'
// counters go on, and nothing stays in the end.
func TestLeftPlaceAgain(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:one hit n=$arg1", "r:two back", "p:three up", "r:four down")
	l := openedLive(t, sub.pid())
	rounds := uint64(0)
	work := func() {
		t.Helper()
		rounds++
		sub.says("go 10")
		sub.says("turn 10")
		if err := l.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(event string, n uint64) {
		t.Helper()
		if got := hitsOf(t, l.Stats(), event); got != n {
			t.Errorf("%s has %d hits, want %d", event, got, n)
		}
	}
	work()
	for _, name := range []string{"one", "two", "three"} {
		want(name, 20)
	}
	at := map[string]string{"one": "hit", "two": "back", "four": "down"}
	for i, name := range []string{"one", "two", "four", "one", "two"} {
		if err := l.Remove(t.Context(), []string{"kprobes/" + name}); err != nil {
			t.Fatal(err)
		}
		work() // what is gone counts nothing, and the program goes on
		def := fmt.Sprintf("%c:%s %s", "pr"[i&1], name, at[name])
		if i < 3 {
			if err := l.Add(t.Context(), parseDefs(t, def)); err != nil {
				t.Fatalf("%s: %v", def, err)
			}
		} else {
			leaveIn(t, sub.pid(), Options{Detach: true}, def)
		}
		work()
		want(name, 20)
		work()
		want(name, 40)
		want("three", 20*rounds)
	}
	if got := sub.takenOut(); got != 4 {
		t.Errorf("%d events were there, want 4", got)
	}
	sub.end()
}

// TestLeftPlaceUnderLoad does so while threads run through the probes, interrupted by signals, and while the program
// forks and spawns: children have copies of the jumps.
func TestLeftPlaceUnderLoad(t *testing.T) {
	for _, how := range []string{"paced", "storm", "jumps"} {
		t.Run(how, func(t *testing.T) {
			s := startRecorded(t, 3, how)
			s.left(Options{}, recordedHit, "p:rec/two hit2 n=$arg1:u64")
			l := openedLive(t, s.pid())
			for i := range full(6, 60) {
				name, def := "rec/hit", recordedHit
				if i%2 == 1 {
					name, def = "rec/two", "p:rec/two hit2 n=$arg1:u64"
				}
				if err := l.Remove(t.Context(), []string{name}); err != nil {
					t.Fatal(err)
				}
				// A thread that waits for the child of posix_spawn can't be stopped, and one that gets no
				// processor stays where it is.
				var err error
				if !waitUntil(func() bool {
					err = l.Add(t.Context(), parseDefs(t, def))
					return err == nil || !slices.ContainsFunc([]string{"could not be stopped", "waits in the kernel", "try again"}, func(later string) bool { return strings.Contains(err.Error(), later) })
				}) || err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
				before := s.begun()
				if !waitUntil(func() bool { return s.begun() > before+100 }) {
					t.Fatalf("the program makes no calls any more: %s", endOf(s.pid()))
				}
			}
			s.work()
			s.removed()
			checkStaying(t, s.pid(), 2)
			s.end()
		})
	}
}

// TestLeftPlaceForked gives back a place of which a forked child has a copy: the child gets its own text there, too. While
// somebody traces the child, the place isn't given back, and whoever wants it is told so.
func TestLeftPlaceForked(t *testing.T) {
	s := startSubject(t, fixture.Build(t, "left_children.c", "-O1"))
	leaveIn(t, s.pid(), Options{Detach: true}, "p:c/work work", "p:c/other libc:getppid")
	s.line()
	var kid int
	if _, err := fmt.Sscanf(s.expect("child"), "child %d", &kid); err != nil {
		t.Fatal(err)
	}
	l := openedLive(t, s.pid())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := attachRaw(kid); err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(t.Context(), []string{"c/work"}); err != nil {
		t.Error(err)
	}
	if got := strings.Join(l.Pending(), "; "); !strings.Contains(got, fmt.Sprintf("process %d has a copy of them", kid)) {
		t.Errorf("the place is not free, because %q", got)
	}
	if got := len(l.Stats()); got != 1 {
		t.Errorf("%d events are listed, want 1", got)
	}
	again := parseDefs(t, "p:c/again work")
	if err := l.Add(t.Context(), again); err == nil || !strings.Contains(err.Error(), "another process have a copy of it") {
		t.Errorf("a child with a copy is traced: %v", err)
	}
	if err := unix.PtraceDetach(kid); err != nil {
		t.Fatal(err)
	}
	if err := l.Add(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(t.Context(), []string{"c/again"}); err != nil || len(l.Pending()) > 0 {
		t.Errorf("removed again: %v, the place is not free, because %q", err, l.Pending())
	}
	maps, err := symbols.ReadMaps(kid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Exec && m.IsFile() && strings.Contains(m.Path, "left_children") {
			compareText(t, kid, m)
		}
	}
	s.takenOut()
	checkClean(t, kid)
	for _, pid := range []int{s.pid(), kid} {
		st, err := procfs.Process(pid).Status()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Trim(st.Field("SigCgt"), "0"); got != "" {
			t.Errorf("process %d catches signals: %s", pid, got)
		}
	}
	s.end()
}

// TestLeftSecondForked removes two commands' probes one command after the other: a forked child, which has copies of both
// commands' memory, keeps nothing of either, whichever goes first.
func TestLeftSecondForked(t *testing.T) {
	for _, order := range [][]string{{"c/host", "c/guest"}, {"c/guest", "c/host"}} {
		s := startSubject(t, fixture.Build(t, "left_children.c", "-O1"))
		leaveIn(t, s.pid(), Options{Detach: true}, "p:c/host work")
		leaveIn(t, s.pid(), Options{Detach: true}, "p:c/guest libc:getppid")
		s.line()
		var kid int
		if _, err := fmt.Sscanf(s.expect("child"), "child %d", &kid); err != nil {
			t.Fatal(err)
		}
		for _, name := range order {
			if err := openedLive(t, s.pid()).Remove(t.Context(), []string{name}); err != nil {
				t.Fatalf("%q, %s: %v", order, name, err)
			}
		}
		checkClean(t, s.pid())
		checkClean(t, kid)
		s.end()
	}
}
