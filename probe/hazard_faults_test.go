package probe

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/area"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// TestHazardP48: kprobe leaves while threads are in its fallback handler for faults of the
// program's own, and read the table that goes. Nothing of it stays.
func TestHazardP48(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "fault_storm.c", "-O2", "-pthread"))
	for range 25 {
		s := sub.attached(Options{})
		if err := s.Arm(t.Context(), parseDefs(t, "p:w work")); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkClean(t, sub.pid())
	}
	runsOn(t, sub.pid())
	sub.end()
}

// Fallback handlers that stayed, and that a kprobe has made use of when it is killed, are used again
// by the next one after recovery: there are never two pairs of pages.
func TestHazardP48Killed(t *testing.T) {
	bin := buildKprobe(t)
	t.Setenv("KPROBE_EVENTS", filepath.Join(t.TempDir(), "events"))
	sub := startSubject(t, fixture.Build(t, "sets_again.c", "-O1"))
	leave := func() {
		t.Helper()
		l, _ := engage(t, sub.pid(), Options{NoOptimize: true}, "p:w work")
		l.fallbacks = l.s.engine.Targets[sub.pid()].Area.Fallbacks
		if err := l.s.engine.Tracer.Do(func() error { l.fallbacks.Look(l.fallbacks.Code()); return nil }); err != nil { // as if a thread were in it
			t.Fatal(err)
		}
		l.finish(sub.pid()) // of which one page is left
	}
	leave()
	for range 3 {
		c := startKprobe(t, bin, "profile", "-q", "--no-optimize", "-p", strconv.Itoa(sub.pid()), "p:w work")
		if !waitUntil(func() bool { // its text is changed: the handlers have been in use before that
			m, err := area.FindMemfile(sub.pid())
			if err != nil || m == nil {
				return false
			}
			h, err := headerIn(sub.pid(), m)
			return err == nil && h.Sites > 0
		}) {
			t.Fatal("kprobe doesn't arm")
		}
		c.kill(killBoth)
		<-c.done
		if !waitUntil(func() bool { return !traced(sub.pid()) }) {
			t.Fatal("the program is traced still")
		}
		if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
			t.Fatal(err)
		}
		checkLeft(t, sub.pid(), true)
	}
	leave()
	sub.in.Close()
	if err := sub.cmd.Wait(); sub.cmd.ProcessState.ExitCode() != 7 {
		t.Error(err)
	}
}

// headerIn reads the header of a memory file that a process has mapped.
func headerIn(pid int, m *symbols.Mapping) (*ring.Header, error) {
	mem, err := os.Open(procfs.Image(pid).Path("mem"))
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	h, _, err := ring.ReadHeader(io.NewSectionReader(mem, int64(m.Start), int64(m.End-m.Start)), memory.PossibleCPUs())
	return h, err
}

// Of the fallback handlers that stay, as the program may call them, a later session makes
// use again.
func TestHazardP48Again(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "sets_again.c", "-O1"))
	for range 5 {
		l, _ := engage(t, sub.pid(), Options{NoOptimize: true}, "p:w work")
		sub.line()
		if got := sub.expect("set"); got != "set 0" {
			t.Error(got)
		}
		if err := l.s.engine.Tracer.Do(func() error { l.s.engine.Targets[sub.pid()].LayFallbacksAgain(nil); return nil }); err != nil {
			t.Fatal(err)
		}
		l.fallbacks = l.s.engine.Targets[sub.pid()].Area.Fallbacks
		l.finish(sub.pid()) // of which one page is left
	}
	sub.in.Close()
	if err := sub.cmd.Wait(); sub.cmd.ProcessState.ExitCode() != 7 {
		t.Error(err)
	}
}
