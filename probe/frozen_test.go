package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// hierarchies are where a cgroup can be made that freezes, with the file, and what freezes and thaws.
var hierarchies = []struct{ top, file, freeze, thaw string }{
	{"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
	{"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
	{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
}

// A process that a cgroup has frozen is left as it is, with an error that says so, and can be probed once it is
// thawed.
func TestFrozen(t *testing.T) {
	tried := 0
	for _, h := range hierarchies {
		dir := filepath.Join(h.top, fmt.Sprintf("kprobetest%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		defer os.Remove(dir)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			continue // no hierarchy of cgroups
		}
		put := func(file, text string) bool { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) == nil }
		s := startRecorded(t, 2, "paced")
		if !put("cgroup.procs", fmt.Sprint(s.pid())) || !put(h.file, h.thaw) {
			continue
		}
		tried++
		s.left(Options{}, recordedHit)
		if !put(h.file, h.freeze) {
			t.Fatal("it can't be frozen")
		}
		begun := time.Now()
		isFrozen := func(what string, err error) {
			t.Helper()
			var frozen *FrozenError
			if !errors.As(err, &frozen) || frozen.Cgroup != dir || frozen.PID != s.pid() {
				t.Errorf("%s: %s: %v", h.top, what, err)
			}
		}
		_, err := Attach(t.Context(), []int{s.pid()}, Options{})
		isFrozen("attach", err)
		l := openedLive(t, s.pid())
		isFrozen("add", l.Add(t.Context(), []*fetch.Def{parsed(t, "p:rec/two hit2")}))
		isFrozen("remove", l.Remove(t.Context(), []string{"rec/hit"}))
		if took := time.Since(begun); took > patient/2 {
			t.Errorf("it took %v", took)
		}
		put(h.file, h.thaw)
		if !waitUntil(func() bool { return procfs.Frozen(s.pid()) == "" }) {
			t.Fatal("it stays frozen")
		}
		if n := s.takenOut(); n != 1 {
			t.Errorf("there are %d events", n)
		}

		said := make(chan string, 8)
		traced, err := Attach(t.Context(), []int{s.pid()}, Options{Log: logTo(slog.LevelWarn, func(text string) { said <- text })})
		if err != nil {
			t.Fatal(err)
		}
		if err := traced.Arm(t.Context(), parseDefs(t, recordedHit)); err != nil {
			t.Fatal(err)
		}
		put(h.file, h.freeze)
		closed := make(chan error, 1)
		go func() { closed <- traced.Close(context.Background()) }()
		select {
		case text := <-said:
			if !strings.Contains(text, "frozen by the cgroup "+dir) {
				t.Errorf("%s: it says %q", h.top, text)
			}
		case <-time.After(patient):
			t.Errorf("%s: it doesn't say that the process is frozen", h.top)
		}
		put(h.file, h.thaw)
		if err := <-closed; err != nil {
			t.Errorf("%s: %v", h.top, err)
		}
		checkClean(t, s.pid())
		s.work()
		s.end()
	}
	if tried == 0 {
		fixture.Missing(t, "a cgroup hierarchy in which a cgroup can be made")
	}
}
