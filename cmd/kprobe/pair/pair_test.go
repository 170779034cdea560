package pair

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is the front's own file, so it is what a front starts as the
// tracer: its first argument says how to behave.
func TestMain(m *testing.M) {
	if l := Open(); l != nil {
		os.Exit(tracer(l, os.Args[1]))
	}
	if len(os.Args) > 2 && os.Args[1] == "front" {
		os.Exit(front(os.Args[2]))
	}
	os.Exit(m.Run())
}

// front is a front in a process of its own, for tests that kill it.
func front(how string) int {
	f := &Front{Args: []string{"kprobe", how}, Stderr: os.Stderr, Recover: func(_ context.Context, pids []int) ([]int, error) {
		fmt.Println("recover", pids)
		return pids, nil
	}}
	status, err := f.Run()
	if err != nil {
		fmt.Println(err)
		return 99
	}
	return status
}

func tracer(l *Link, how string) int {
	own := make(chan os.Signal, 8)
	signal.Notify(own, syscall.SIGINT, syscall.SIGTERM)
	switch how {
	case "seven":
		l.End()
		return 7
	case "environment":
		_, there := os.LookupEnv(Variable)
		out, err := exec.Command("sh", "-c", "ls -l /proc/self/fd; env").CombinedOutput()
		fmt.Println("variable here:", there, "error:", err)
		fmt.Printf("in a child:\n%s", out)
		l.End()
	case "die":
		l.Touched(41)
		l.Touched(42)
		l.Touched(41)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "die untouched":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "panic":
		l.Touched(43)
		panic("on purpose")
	case "die done":
		l.Touched(44)
		l.End()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "wait":
		fmt.Println("tracer", os.Getpid())
		select {
		case <-l.Gone():
			fmt.Println("gone")
		case s := <-l.Signals():
			fmt.Println("told", int(s))
		case s := <-own:
			fmt.Println("sent", s)
		}
		l.End()
		return 5
	case "hang":
		l.Touched(45)
		fmt.Println("tracer", os.Getpid())
		select {}
	}
	return 0
}

// run has a front in this process run a tracer.
func run(t *testing.T, how string, recover func(context.Context, []int) ([]int, error)) (status int, stderr string) {
	t.Helper()
	var said bytes.Buffer
	f := &Front{Args: []string{"kprobe", how}, Stderr: &said, Recover: recover}
	status, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	return status, said.String()
}

func noRecover(t *testing.T) func(context.Context, []int) ([]int, error) {
	return func(_ context.Context, pids []int) ([]int, error) {
		t.Errorf("the front wanted to clean up %v", pids)
		return nil, nil
	}
}

func TestFrontExitsAsTheTracer(t *testing.T) {
	if status, said := run(t, "seven", noRecover(t)); status != 7 || said != "" {
		t.Errorf("status %d, standard error %q", status, said)
	}
}

func TestTracerDiesWithoutAWord(t *testing.T) {
	tests := []struct {
		how    string
		pids   []int
		clean  func([]int) ([]int, error)
		stderr string
	}{
		{"die", []int{41, 42}, func(p []int) ([]int, error) { return p, nil },
			"kprobe: the tracer was killed (signal 9, killed); its probes were taken out of processes 41, 42, which runs on\n"},
		{"die", []int{41, 42}, func([]int) ([]int, error) { return nil, nil },
			"kprobe: the tracer was killed (signal 9, killed); processes 41, 42: no probe of it is left\n"},
		{"die", []int{41, 42}, func([]int) ([]int, error) { return nil, errors.New("no way") },
			"kprobe: the tracer was killed (signal 9, killed); taking its probes out of processes 41, 42: no way\n"},
		{"panic", []int{43}, func(p []int) ([]int, error) { return p, nil },
			"kprobe: the tracer ended early (status 2); its probes were taken out of process 43, which runs on\n"},
		{"die untouched", nil, nil, "kprobe: the tracer was killed (signal 9, killed); it had changed no process\n"},
		{"die done", nil, nil, "kprobe: the tracer was killed (signal 9, killed)\n"},
	}
	for _, tt := range tests {
		t.Run(tt.how, func(t *testing.T) {
			var pids []int
			status, said := run(t, tt.how, func(_ context.Context, p []int) ([]int, error) {
				pids = p
				return tt.clean(p)
			})
			if status != 1 {
				t.Errorf("status %d, want 1", status)
			}
			if !slices.Equal(pids, tt.pids) {
				t.Errorf("cleaned up %v, want %v", pids, tt.pids)
			}
			if want := strings.Replace(tt.stderr, "42, which runs", "42, which run", 1); said != want {
				t.Errorf("standard error\n%s\nwant\n%s", said, want)
			}
		})
	}
}

// apart starts a front in a process of its own and returns it with the pid of
// its tracer once that runs.
func apart(t *testing.T, how string) (front *exec.Cmd, tracer int, out *bufio.Reader) {
	t.Helper()
	front = exec.Command("/proc/self/exe", "front", how)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	front.Stdout, front.Stderr = w, w
	front.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := front.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { r.Close() })
	out = bufio.NewReader(r)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(line, "tracer %d", &tracer); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-front.Process.Pid, syscall.SIGKILL) })
	return front, tracer, out
}

func rest(t *testing.T, out io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func exitOf(t *testing.T, c *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.Sys().(syscall.WaitStatus)
}

func TestTracerSeesTheFrontDie(t *testing.T) {
	front, _, out := apart(t, "wait")
	if err := front.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if ws := exitOf(t, front); ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the front ended with %v", ws)
	}
	if got := rest(t, out); got != "gone\n" {
		t.Errorf("the tracer said %q", got)
	}
}

func TestFrontPassesSignalsOn(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			front, _, out := apart(t, "wait")
			if err := front.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if ws := exitOf(t, front); ws.ExitStatus() != 5 {
				t.Errorf("the front ended with %v, want the tracer's status 5", ws)
			}
			if got, want := rest(t, out), fmt.Sprintf("told %d\n", int(sig)); got != want {
				t.Errorf("the tracer said %q, want %q", got, want)
			}
		})
	}
}

func TestFrontStopsAndContinuesWithTheTracer(t *testing.T) {
	front, tracer, out := apart(t, "wait")
	if err := front.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	waitState(t, front.Process.Pid, "T")
	waitState(t, tracer, "T")
	if err := front.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitState(t, front.Process.Pid, "SR")
	waitState(t, tracer, "SR")
	if err := front.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if ws := exitOf(t, front); ws.ExitStatus() != 5 {
		t.Errorf("the front ended with %v", ws)
	}
	if got := rest(t, out); got != "told 15\n" {
		t.Errorf("the tracer said %q", got)
	}
}

// waitState waits until the process is in one of the states of proc(5).
func waitState(t *testing.T, pid int, states string) {
	t.Helper()
	var last string
	for range 2000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		last = strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[0]
		if strings.Contains(states, last) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("process %d is in state %s, want one of %s", pid, last, states)
}

func TestFrontKillsATracerThatHangs(t *testing.T) {
	front, _, out := apart(t, "hang")
	if err := front.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(Patience + 100*time.Millisecond)
	if err := front.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if ws := exitOf(t, front); ws.ExitStatus() != 1 {
		t.Errorf("the front ended with %v, want status 1", ws)
	}
	got := rest(t, out)
	if !strings.Contains(got, "recover [45]") || !strings.Contains(got, "signal 9") {
		t.Errorf("the front said %q", got)
	}
}

func TestProgramsOfTheTracerSeeNothingOfThePair(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "front", "environment")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := string(out)
	if !strings.Contains(text, "variable here: false error: <nil>") || strings.Contains(text, Variable) {
		t.Errorf("the variable is still there: %s", text)
	}
	if strings.Contains(text, "socket:") {
		t.Errorf("a child inherited the socket: %s", text)
	}
}

func TestOpenDoesNotTrustTheVariable(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, value := range []string{"", "x", "0", "-1", "99999", fmt.Sprint(f.Fd())} {
		t.Setenv(Variable, value)
		if l := Open(); l != nil {
			t.Errorf("%q made a tracer", value)
		}
	}
	if _, err := f.Stat(); err != nil {
		t.Errorf("Open closed a descriptor that is not its: %v", err)
	}
}

func TestNilLinkIsSilent(t *testing.T) {
	var l *Link
	l.Touched(1)
	l.End()
	select {
	case <-l.Gone():
		t.Error("a front that never was has gone")
	case <-l.Signals():
		t.Error("a signal out of nowhere")
	default:
	}
}
