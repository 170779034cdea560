//go:build linux

package starts

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// sleeper is a program of its own file, for tests that run at the same time.
func sleeper(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(fixture.NeedFile(t, "/bin/sleep"))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "sleeper")
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func runs(t *testing.T, file string) func(int) bool {
	want, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return func(pid int) bool {
		is, err := os.Stat(procfs.Process(pid).Path("exe"))
		return err == nil && os.SameFile(want, is)
	}
}

// log is what a watch has told.
type log struct {
	mu    sync.Mutex
	held  []int
	began []int
}

func (l *log) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		ok := is()
		l.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: held %v, began %v", what, l.held, l.began)
		}
	}
}

func start(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	c := exec.Command(name, "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

func needGate(t *testing.T, w *Watch) {
	t.Helper()
	if files, _ := w.Means(); files != Gate {
		w.Close()
		fixture.Missing(t, "fanotify with permissions, which takes CAP_SYS_ADMIN")
	}
}

// TestGate: a process waits in execve, before it runs the file, until it is let go.
func TestGate(t *testing.T) {
	file := sleeper(t)
	is := runs(t, file)
	var l log
	var waits []*Held
	w := Begin(Want{Files: []string{file}, Hold: time.Minute, Is: is, Began: func(int) {}, Held: func(list []*Held) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, h := range list {
			l.held = append(l.held, h.PID)
			waits = append(waits, h)
		}
	}})
	defer w.Close()
	needGate(t, w)
	started := make(chan *exec.Cmd, 1)
	go func() {
		c := exec.Command(file, "1000")
		if err := c.Start(); err != nil { // returns when execve has
			t.Error(err)
		}
		started <- c
	}()
	l.await(t, "a process that starts", func() bool { return len(l.held) == 1 })
	if !waits[0].Waits() || is(l.held[0]) {
		t.Errorf("process %d runs the file", l.held[0])
	}
	waits[0].Let()
	waits[0].Let()
	c := <-started
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	if c.Process.Pid != l.held[0] || waits[0].Waits() || w.Released() != 0 {
		t.Errorf("process %d, held were %v, released %d", c.Process.Pid, l.held, w.Released())
	}
}

// TestHazardP46Clock: who is told and does nothing holds nobody for long.
func TestHazardP46Clock(t *testing.T) {
	file := sleeper(t)
	const hold = 200 * time.Millisecond
	w := Begin(Want{Files: []string{file}, Hold: hold, Is: runs(t, file), Began: func(int) {}, Held: func([]*Held) { time.Sleep(2 * hold) }})
	defer w.Close()
	needGate(t, w)
	for range 2 {
		start(t, file)
	}
	if n := w.Released(); n != 2 {
		t.Errorf("%d were released by the clock", n)
	}
}

// TestHazardP46Close: when the watch ends, nobody waits any more.
func TestHazardP46Close(t *testing.T) {
	file := sleeper(t)
	var l log
	w := Begin(Want{Files: []string{file}, Is: runs(t, file), Began: func(int) {}, Held: func(list []*Held) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held = append(l.held, list[0].PID)
	}})
	needGate(t, w)
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		c := exec.Command(file, "0")
		done <- c.Run()
	}()
	l.await(t, "a process that starts", func() bool { return len(l.held) == 1 })
	w.Close()
	if err := <-done; err != nil {
		t.Error(err, time.Since(began))
	}
}

// holder is this test as a process that holds starts of a file until it is killed.
const holder = "KPROBE_STARTS_HOLDER"

// TestHazardP46Killed: a process that is killed while it holds others leaves none of them
// waiting. It never answers, and has a watchdog that barks too late.
func TestHazardP46Killed(t *testing.T) {
	if file := os.Getenv(holder); file != "" {
		g, err := openGate([]string{file})
		if err != nil {
			os.Stdout.WriteString("none\n")
			os.Exit(0)
		}
		os.Stdout.WriteString("ready\n")
		b := make([]byte, metadataSize)
		_, _ = g.f.Read(b)
		os.Stdout.WriteString("holds\n")
		for {
			time.Sleep(time.Hour)
			_ = g.f.Fd() // keeps it open
		}
	}
	file := sleeper(t)
	c := exec.Command("/proc/self/exe", "-test.run=^TestHazardP46Killed$")
	c.Env = append(os.Environ(), holder+"="+file)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	n, _ := out.Read(b)
	if string(b[:n]) == "none\n" {
		_ = c.Wait()
		fixture.Missing(t, "fanotify with permissions, which takes CAP_SYS_ADMIN")
	}
	done := make(chan error, 1)
	go func() { done <- exec.Command(file, "0").Run() }()
	if n, _ = out.Read(b); string(b[:n]) != "holds\n" {
		t.Fatalf("%q", b[:n])
	}
	select {
	case err := <-done:
		t.Fatal("it wasn't held", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil { // the test's deadline is the limit
		t.Error(err)
	}
	_ = c.Wait()
}

// TestNewsAndLooks: processes that are not gated are told of, each once, as are those that
// were there before.
func TestNewsAndLooks(t *testing.T) {
	for _, how := range []string{"news", "looks"} {
		t.Run(how, func(t *testing.T) {
			file := sleeper(t)
			before := start(t, file)
			is := runs(t, file)
			var l log
			var w *Watch
			want := Want{Is: is, Began: func(pid int) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.began = append(l.began, pid)
			}}
			if how == "news" {
				w = Begin(want)
				if _, others := w.Means(); others != News {
					w.Close()
					fixture.Missing(t, "the proc connector, in the first namespaces of processes")
				}
			} else {
				w = begin(want, nil, nil)
			}
			defer w.Close()
			l.await(t, "a process that was there", func() bool { return slices.Contains(l.began, before.Process.Pid) })
			var pids []int
			for range 5 {
				pids = append(pids, start(t, file).Process.Pid)
			}
			// A shell that becomes the program later.
			sh := exec.Command("/bin/sh", "-c", "sleep 0.2; exec "+file+" 1000")
			if err := sh.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = sh.Process.Kill()
				_ = sh.Wait()
			})
			pids = append(pids, sh.Process.Pid)
			l.await(t, "six processes", func() bool {
				return !slices.ContainsFunc(pids, func(pid int) bool { return !slices.Contains(l.began, pid) })
			})
		})
	}
}

// TestLearn: a file that is seen to be run by who is wanted is gated from then on.
func TestLearn(t *testing.T) {
	file := sleeper(t)
	is := runs(t, file)
	var l log
	w := Begin(Want{Learn: true, Is: is, Began: func(pid int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.began = append(l.began, pid)
	}, Held: func(list []*Held) {
		for _, h := range list {
			l.mu.Lock()
			l.held = append(l.held, h.PID)
			l.mu.Unlock()
			h.Let()
		}
	}})
	defer w.Close()
	if w.gate == nil {
		fixture.Missing(t, "fanotify with permissions, which takes CAP_SYS_ADMIN")
	}
	first := start(t, file)
	l.await(t, "the first", func() bool { return slices.Contains(l.began, first.Process.Pid) })
	second := start(t, file)
	l.await(t, "the second", func() bool { return slices.Contains(l.held, second.Process.Pid) })
}

// TestManyStarts: hundreds that start at once are all let go, whether anybody looks at them
// or not.
func TestManyStarts(t *testing.T) {
	file := sleeper(t)
	w := Begin(Want{Files: []string{file}, Is: runs(t, file), Began: func(int) {}, Held: func(list []*Held) {
		time.Sleep(20 * time.Millisecond)
		for _, h := range list {
			h.Let()
		}
	}})
	defer w.Close()
	needGate(t, w)
	script := "for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5 6 7 8 9 10; do " + file + " 0 & done; wait) & done; wait; echo done"
	out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "done\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestGateRenewed: where another file has taken the place of one that is gated, as of a
// program that is upgraded, processes that run it are held, too.
func TestGateRenewed(t *testing.T) {
	file, other := sleeper(t), sleeper(t)
	var l log
	w := Begin(Want{Files: []string{file}, Is: func(int) bool { return false }, Began: func(int) {}, Held: func(list []*Held) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, h := range list {
			l.held = append(l.held, h.PID)
			h.Let()
		}
	}})
	defer w.Close()
	needGate(t, w)
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.held)
	}
	start(t, file)
	if count() != 1 {
		t.Fatalf("%d processes were held", count())
	}
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); count() < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("who runs the new file isn't held")
		}
		start(t, file)
	}
}
