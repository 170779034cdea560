package probe

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// waitSession runs a session that waits for processes of a file of its own, and gives
// the file. Each hit of early is given to hit.
func waitSession(t *testing.T, hit func(pid int, n uint64)) (file string, end func() Summary) {
	t.Helper()
	b, err := os.ReadFile(fixture.Build(t, "starting.c", "-O1"))
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "starting")
	if err := os.WriteFile(file, b, 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan StartMeans, 1)
	d, err := fetch.Parse("p:e early n=$arg1:u32")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Attach(t.Context(), nil, Options{Log: testLog(t), Expect: []*fetch.Def{d}, Wait: &Wait{
		Files: []string{file},
		Hold:  time.Minute,
		Is: func(pid int) bool {
			exe, err := os.Stat(procfs.Process(pid).Path("exe"))
			return err == nil && os.SameFile(info, exe)
		},
		Begun: func(files, _ StartMeans) { begun <- files },
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(t.Context(), []*fetch.Def{d}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Summary, 1)
	go func() {
		sum, err := s.Run(ctx, sinkOf(func(h *Hit) error {
			vals, err := h.Program.Decode(h.Data, nil)
			if err == nil {
				hit(h.PID, vals[0].Int)
			}
			return err
		}))
		if err != nil {
			t.Error(err)
		}
		done <- sum
	}()
	if means := <-begun; means != StartGate {
		cancel()
		<-done
		_ = s.Close(context.WithoutCancel(ctx))
		fixture.Missing(t, "fanotify with permissions, which takes CAP_SYS_ADMIN")
	}
	return file, func() Summary {
		cancel()
		sum := <-done
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		return sum
	}
}

type sinkOf func(*Hit) error

func (f sinkOf) Hit(h *Hit) error { return f(h) }

// TestWaitTakesAll: of many short-lived processes each is there with its first hit, in one
// order of time, and what is kept of them afterwards is little.
func TestWaitTakesAll(t *testing.T) {
	var hits, firsts atomic.Int64
	file, end := waitSession(t, func(_ int, n uint64) {
		hits.Add(1)
		if n == 0 {
			firsts.Add(1)
		}
	})
	const rounds, each = 5, 6
	for range rounds {
		script := ""
		for range each {
			script += file + " 2 & "
		}
		if out, err := exec.Command("/bin/sh", "-c", script+"wait").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	sum := end()
	if firsts.Load() != rounds*each || hits.Load() != 3*rounds*each || sum.Stats[0].Hits != 3*rounds*each || sum.Stats[0].Lost != 0 {
		t.Errorf("%d hits, %d of them first ones, counted %+v; want %d processes", hits.Load(), firsts.Load(), sum.Stats[0], rounds*each)
	}
}

// TestWaitFailedExec: a process whose execve fails behind the gate goes on untraced, and
// one that is killed in it is no trouble.
func TestWaitFailedExec(t *testing.T) {
	var hits atomic.Int64
	file, end := waitSession(t, func(int, uint64) { hits.Add(1) })
	defer end()
	// An argument list that is too long fails behind the opening of the file.
	long := strings.Repeat("x", 100<<10)
	sh := exec.Command("/bin/sh", "-c", `for i in 1 2 3; do "$0" "$@" "$@" "$@" "$@"; done; echo failed: $?; exec sleep 1000`, file)
	for range 10 {
		sh.Args = append(sh.Args, long)
	}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sh.Process.Kill()
		_ = sh.Wait()
	}()
	untraced := func() bool {
		comm, _ := procfs.Process(sh.Process.Pid).Comm()
		st, err := procfs.Process(sh.Process.Pid).Status()
		return err == nil && st.Int("TracerPid") == 0 && comm == "sleep"
	}
	for until := time.Now().Add(time.Minute); !untraced(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it is traced for ever")
		}
	}
	out, err := exec.Command("/bin/sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10; do "$0" 1 & kill -9 $!; done; wait; echo done`, file).Output()
	if err != nil || string(out) != "done\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestHazardP46Interpreter: scripts whose interpreter is waited for go on. Their processes
// hold the lock that the tracer needs to seize them while the kernel asks whether they may.
func TestHazardP46Interpreter(t *testing.T) {
	file, end := waitSession(t, func(int, uint64) {})
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!"+file+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		out, err := exec.Command("/bin/sh", "-c", `"$0"; echo $?`, script).CombinedOutput()
		runtime.GC() // waits for every thread that the scheduler believes to be running
		if err != nil || string(out) != "0\n" {
			t.Fatalf("%q, %v", out, err)
		}
	}
	end()
}
