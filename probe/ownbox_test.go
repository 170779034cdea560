package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/ring"
)

// foreignSubject is a program of another user than kprobe's.
func foreignSubject(t *testing.T) (pid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		fixture.Missing(t, "only root can start another user's program")
	}
	b, err := os.ReadFile(fixture.Build(t, "probe_calls.c", "-O1", "-pthread"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "kprobe-foreign")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	prog := filepath.Join(dir, "prog")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(prog, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(prog, "work", "1000")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	_, out := fixture.Start(t, cmd)
	if _, err := out.Read(make([]byte, 64)); err != nil { // it is ready
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestOwnMailbox: a session of several processes of another user does what a kprobe
// asks for that may change the session itself, and nothing that one of the processes
// may ask for.
func TestOwnMailbox(t *testing.T) {
	pids := []int{foreignSubject(t), foreignSubject(t)}
	s, err := Attach(t.Context(), pids, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.Arm(t.Context(), parseDefs(t, "p:first work")); err != nil {
		t.Fatal(err)
	}
	l := collecting(t, s)
	l.run()
	running(t, s)
	from := openedLive(t, pids[1])
	if err := from.Add(t.Context(), parseDefs(t, "p:web/x work n=$arg1")); err != nil {
		t.Error(err)
	}
	if n := len(s.Events()); n != 2 {
		t.Errorf("%d events", n)
	}
	if err := from.Delete(t.Context(), parseDefs(t, "-:web/x")); err != nil {
		t.Error(err)
	}
	r := &ring.Request{ID: rand.Uint64() | 1, Body: []byte(`{"op":"remove","events":["kprobes/first"]}`)}
	if err := r.Post(from.file(), from.snap.Layout); err != nil {
		t.Fatal(err)
	}
	var answer []byte
	if !waitUntil(func() (done bool) {
		answer, _, done, err = ring.ReadAnswer(from.file(), from.snap.Layout, r.ID)
		return done || err != nil
	}) {
		t.Fatal("no answer")
	}
	_, refused := errorClasses.ReadAnswer(answer, nil)
	if err := errors.Join(err, refused); err == nil || !strings.Contains(err.Error(), "takes no requests") {
		t.Errorf("one of the processes asked, and was answered: %v", err)
	}
	if n := len(s.Events()); n != 1 {
		t.Errorf("%d events", n)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSessionsAreUnmapped: what kprobe maps for a session goes with it.
func TestSessionsAreUnmapped(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_calls.c", "-O1", "-pthread"), "work", "10")
	mappings := func() int {
		b, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "/memfd:kprobe")
	}
	settled := func(most int) bool {
		return waitUntil(func() bool { runtime.GC(); return mappings() <= most })
	}
	settled(0) // of tests before; some may hold theirs
	before := mappings()
	for range 5 {
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Arm(t.Context(), parseDefs(t, "p:w work", "r:x work")); err != nil {
			t.Fatal(err)
		}
		if mappings() <= before {
			t.Fatal("a session without memory: the test sees nothing")
		}
		stats := s.Stats()
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := s.Stats(); len(after) != len(stats) {
			t.Errorf("%d events after the session's end, %d before", len(after), len(stats))
		}
	}
	if !settled(before) {
		t.Errorf("%d mappings of sessions that have ended, %d before", mappings(), before)
	}
	sub.work()
	sub.end()
}
