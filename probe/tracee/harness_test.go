//go:build linux && amd64

package tracee

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv("TRACEE_TEST_INJECTOR") != "" {
		injectorMain()
	}
	if os.Getenv("TRACEE_TEST_FILTER") != "" {
		filterMain()
	}
	if os.Getenv("TRACEE_TEST_CALLER") != "" {
		callerMain()
		os.Exit(0)
	}
	if os.Getenv("TRACEE_TEST_STEPPER") != "" {
		stepperMain()
	}
	if os.Getenv("TRACEE_TEST_HOLDER") != "" {
		holderMain()
	}
	if os.Getenv("TRACEE_TEST_LEADER") != "" {
		leaderMain()
	}
	before := len(openFiles())
	code := m.Run()
	if code == 0 {
		code = leaks(before)
	}
	os.Exit(code)
}

// openFiles gives what each open descriptor is, but for those of the runtime's
// poller, which come when it is first needed and stay.
func openFiles() []string {
	const dir = "/proc/self/fd"
	names, _ := os.ReadDir(dir)
	var files []string
	for _, n := range names {
		to, err := os.Readlink(filepath.Join(dir, n.Name()))
		if err != nil || to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]" {
			continue // the first was ReadDir's own
		}
		files = append(files, n.Name()+" "+to)
	}
	return files
}

// leaks reports descriptors and children that tests left. What a tracer that was
// closed has yet to close it closes soon.
func leaks(before int) int {
	for end := time.Now().Add(patient); ; time.Sleep(20 * time.Millisecond) {
		files := openFiles()
		var st unix.WaitStatus
		child, err := unix.Wait4(-1, &st, unix.WNOHANG|unix.WALL, nil)
		switch {
		case len(files) <= before && err == unix.ECHILD:
			return 0
		case time.Now().Before(end):
			continue
		case err != unix.ECHILD:
			fmt.Fprintf(os.Stderr, "a child is left: %d\n", child)
		}
		if len(files) > before {
			fmt.Fprintf(os.Stderr, "%d descriptors were open before, and now there are\n%s\n", before, strings.Join(files, "\n"))
		}
		return 99
	}
}

// target is a program under test. A shell is its parent, as in life: its end
// must reach that parent, not the tracer.
type target struct {
	t    testing.TB
	pid  int
	in   io.WriteCloser
	out  *bufio.Reader
	cmd  *exec.Cmd
	done bool
}

// spawn starts a program that prints its process id first.
func spawn(t testing.TB, path string, args ...string) *target {
	t.Helper()
	return spawnAs(t, nil, path, args...)
}

// spawnAs is spawn with attributes for the shell.
func spawnAs(t testing.TB, attr *syscall.SysProcAttr, path string, args ...string) *target {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `"$@"; echo "status $?"`, "sh", path}, args...)...)
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &target{t: t, in: in, out: bufio.NewReader(out), cmd: cmd}
	t.Cleanup(func() {
		if !g.done {
			syscall.Kill(g.pid, syscall.SIGKILL)
			in.Close()
			io.Copy(io.Discard, g.out)
			cmd.Wait()
		}
	})
	if g.pid, err = strconv.Atoi(g.line()); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *target) line() string {
	g.t.Helper()
	s, err := g.out.ReadString('\n')
	if err != nil {
		g.t.Fatalf("read the target's output: %v", err)
	}
	return strings.TrimSpace(s)
}

// rest gives what the target still prints, and the status its parent saw.
func (g *target) rest() (out string, status int) {
	g.t.Helper()
	g.in.Close()
	b, err := io.ReadAll(g.out)
	if err != nil {
		g.t.Fatal(err)
	}
	g.cmd.Wait()
	g.done = true
	out, last, ok := strings.Cut(string(b), "status ")
	if !ok {
		g.t.Fatalf("no status in %q", b)
	}
	last, after, _ := strings.Cut(last, "\n") // what its children print
	out += after
	status, err = strconv.Atoi(last)
	if err != nil {
		g.t.Fatal(err)
	}
	return strings.TrimSpace(out), status
}

// newTracer makes a tracer that ends with the test.
func newTracer(t testing.TB) *Tracer {
	t.Helper()
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return tr
}

func attach(t testing.TB, tr *Tracer, pid int) *Process {
	t.Helper()
	p, err := tr.Attach(context.Background(), pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// running runs the tracer until the returned function is called or no process
// is left; that function gives what Run gave.
func running(t testing.TB, tr *Tracer, h Handler) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	done := make(chan error, 1)
	go func() {
		err := tr.Run(ctx, h)
		if errors.Is(err, context.DeadlineExceeded) {
			// So that nobody waits for ever for what they would do.
			_ = tr.Do(func() error {
				for _, p := range tr.processes() {
					_ = p.Kill()
				}
				return nil
			})
		}
		done <- err
	}()
	var result error
	stopped := false
	stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			result = <-done
			if errors.Is(result, context.Canceled) {
				result = nil
			}
		}
		return result
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return stop
}

// do runs fn on the tracer's thread.
func do(t testing.TB, tr *Tracer, fn func() error) {
	t.Helper()
	if err := tr.Do(fn); err != nil {
		t.Fatal(err)
	}
}

// patient is for how long tests wait for what must happen: only what never does takes
// so long, however busy the machine is.
const patient = 4 * time.Minute

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// recorder is a Handler that delivers everything, with parts to replace.
type recorder struct {
	t              testing.TB
	brk            func(t *Thread) Verdict
	step           func(t *Thread) Verdict
	sig            func(t *Thread, si *Siginfo) Verdict
	fork           func(parent *Thread, child *Process, kind ForkKind) bool
	thread         func(t *Thread)
	exec           func(p *Process)
	exitT          func(t *Thread)
	exited         func(p *Process, st syscall.WaitStatus)
	threads, exits int
}

func (r *recorder) Breakpoint(t *Thread) Verdict {
	if r.brk != nil {
		return r.brk(t)
	}
	return NotMine
}
func (r *recorder) Stepped(t *Thread) Verdict {
	if r.step != nil {
		return r.step(t)
	}
	return Resume
}
func (r *recorder) Signal(t *Thread, si *Siginfo) Verdict {
	if r.sig != nil {
		return r.sig(t, si)
	}
	return Deliver
}
func (r *recorder) NewThread(t *Thread) {
	r.threads++
	if r.thread != nil {
		r.thread(t)
	}
}
func (r *recorder) Fork(parent *Thread, child *Process, kind ForkKind) bool {
	return r.fork != nil && r.fork(parent, child, kind)
}
func (r *recorder) Exec(p *Process) {
	if r.exec != nil {
		r.exec(p)
	}
}
func (r *recorder) ThreadExit(t *Thread) {
	r.exits++
	if r.exitT != nil {
		r.exitT(t)
	}
}
func (r *recorder) Exited(p *Process, st syscall.WaitStatus) {
	if r.exited != nil {
		r.exited(p, st)
	}
}
