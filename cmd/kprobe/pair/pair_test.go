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

// The test binary is the supervisor's own file, so it is what a supervisor starts as the
// tracer: its first argument says how to behave.
func TestMain(m *testing.M) {
	if l := Open(); l != nil {
		os.Exit(tracer(l, os.Args[1]))
	}
	if len(os.Args) > 2 && os.Args[1] == "front" {
		os.Exit(supervisor(os.Args[2]))
	}
	if signal.Ignored(syscall.SIGHUP) { // as under nohup: it would stay so in the fronts
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// supervisor is a supervisor in a process of its own, for tests that kill it.
func supervisor(how string) int {
	f := &Supervisor{Args: []string{"kprobe", how}, Stderr: os.Stderr, Recover: func(_ context.Context, pids []int) ([]int, error) {
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
	case "write":
		return write(l)
	case "hang":
		l.Touched(45)
		fmt.Println("tracer", os.Getpid())
		select {}
	}
	return 0
}

// write is a tracer that writes hits, on SIGUSR1 messages, and on SIGUSR2 ends.
func write(l *Link) int {
	l.Apart()
	fmt.Println("tracer", os.Getpid())
	hits, messages := l.Output(os.Stdout), l.Messages(os.Stdout)
	usr := make(chan os.Signal, 8)
	signal.Notify(usr, syscall.SIGUSR1, syscall.SIGUSR2)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			fmt.Fprintln(hits, "hit", i)
			time.Sleep(2 * time.Millisecond)
		}
	}()
	for s := range usr {
		if s == syscall.SIGUSR2 {
			break
		}
		for i := range 3 {
			fmt.Fprintln(messages, "message", i)
		}
	}
	close(over)
	l.Ending()
	<-ended
	fmt.Fprintln(messages, "the end")
	_ = os.WriteFile("/proc/self/comm", []byte("over"), 0)
	l.End()
	l.Drain()
	return 6
}

// run has a supervisor in this process run a tracer.
func run(t *testing.T, how string, recover func(context.Context, []int) ([]int, error)) (status int, stderr string) {
	t.Helper()
	var said bytes.Buffer
	f := &Supervisor{Args: []string{"kprobe", how}, Stderr: &said, Recover: recover}
	status, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	return status, said.String()
}

func noRecover(t *testing.T) func(context.Context, []int) ([]int, error) {
	return func(_ context.Context, pids []int) ([]int, error) {
		t.Errorf("the supervisor wanted to clean up %v", pids)
		return nil, nil
	}
}

func TestSupervisorExitsAsTheTracer(t *testing.T) {
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

// apart starts a supervisor in a process of its own and returns it with the pid of
// its tracer once that runs.
func apart(t *testing.T, how string) (supervisor *exec.Cmd, tracer int, out *bufio.Reader) {
	t.Helper()
	supervisor = exec.Command("/proc/self/exe", "front", how)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	supervisor.Stdout, supervisor.Stderr = w, w
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := supervisor.Start(); err != nil {
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
	t.Cleanup(func() { _ = syscall.Kill(-supervisor.Process.Pid, syscall.SIGKILL) })
	return supervisor, tracer, out
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

func TestTracerSeesTheSupervisorDie(t *testing.T) {
	supervisor, _, out := apart(t, "wait")
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if ws := exitOf(t, supervisor); ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the supervisor ended with %v", ws)
	}
	if got := rest(t, out); got != "gone\n" {
		t.Errorf("the tracer said %q", got)
	}
}

func TestSupervisorPassesSignalsOn(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			supervisor, _, out := apart(t, "wait")
			if err := supervisor.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if ws := exitOf(t, supervisor); ws.ExitStatus() != 5 {
				t.Errorf("the supervisor ended with %v, want the tracer's status 5", ws)
			}
			if got, want := rest(t, out), fmt.Sprintf("told %d\n", int(sig)); got != want {
				t.Errorf("the tracer said %q, want %q", got, want)
			}
		})
	}
}

// What stops the job stops the supervisor alone. The tracer's hits wait and its
// messages are held until the supervisor is continued; hits of a trace that ends don't
// wait.
func TestStopsTheSupervisorAlone(t *testing.T) {
	for _, stop := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGSTOP, syscall.SIGTTIN, syscall.SIGTTOU} {
		t.Run(stop.String(), func(t *testing.T) {
			supervisor, tracer, out := apart(t, "write")
			lines := make(chan string, 1000)
			go func() {
				defer close(lines)
				for {
					l, err := out.ReadString('\n')
					if err != nil {
						return
					}
					lines <- strings.TrimSpace(l)
				}
			}()
			next := func() string {
				t.Helper()
				select {
				case l := <-lines:
					return l
				case <-time.After(time.Minute):
					t.Fatal("nothing is written")
					return ""
				}
			}
			if l := next(); l != "hit 0" {
				t.Fatal(l)
			}
			// The whole group, as the terminal and a shell do.
			late := func() int {
				t.Helper()
				if err := syscall.Kill(-supervisor.Process.Pid, stop); err != nil {
					t.Fatal(err)
				}
				waitState(t, supervisor.Process.Pid, "T")
				for len(lines) > 0 { // of before
					<-lines
				}
				return silence(t, lines)
			}
			// A tracer that gets no processor may answer too late, and one that isn't
			// told may look at the right moment: what mostly is counts.
			for held, wrote := 0, 0; ; {
				n := late()
				if stop != syscall.SIGTSTP {
					break // it is noticed later
				}
				if n <= 1 {
					held++
				} else {
					wrote++
				}
				if wrote == 6 {
					t.Errorf("lines are written after the supervisor has stopped: %d times of %d", wrote, wrote+held)
				}
				if held == 6 || wrote == 6 {
					break
				}
				if err := syscall.Kill(-supervisor.Process.Pid, syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				next()
			}
			waitState(t, tracer, "SR")
			if err := syscall.Kill(tracer, syscall.SIGUSR1); err != nil { // messages
				t.Fatal(err)
			}
			time.Sleep(2 * lookEvery)
			for len(lines) > 0 {
				if l := <-lines; !strings.HasPrefix(l, "hit") { // one may have been on its way
					t.Errorf("%q is written while the supervisor is stopped", l)
				}
			}
			if err := syscall.Kill(-supervisor.Process.Pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			said := map[string]bool{}
			for !said["message 2"] || !said["hit"] {
				l := next()
				said[l] = true
				if strings.HasPrefix(l, "hit") {
					said["hit"] = true
				}
			}
			if !said["message 0"] || !said["message 1"] {
				t.Errorf("messages are missing: %v", said)
			}

			// A trace that ends while the supervisor is stopped ends at once, and its last
			// words wait.
			if err := supervisor.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			waitState(t, supervisor.Process.Pid, "T")
			silence(t, lines)
			if err := syscall.Kill(tracer, syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			path := fmt.Sprintf("/proc/%d/comm", tracer)
			for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
				if b, err := os.ReadFile(path); err != nil || string(b) == "over\n" {
					break
				}
				if time.Now().After(end) {
					t.Fatal("it does not end")
				}
			}
			for len(lines) > 0 {
				if l := <-lines; !strings.HasPrefix(l, "hit") {
					t.Errorf("%q is written while the supervisor is stopped", l)
				}
			}
			if err := supervisor.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			for l := next(); l != "the end"; l = next() {
			}
			if ws := exitOf(t, supervisor); ws.ExitStatus() != 6 {
				t.Errorf("the supervisor ended with %v, want the tracer's status 6", ws)
			}
		})
	}
}

// silence waits until no more lines come, and gives how many did.
func silence(t *testing.T, lines <-chan string) (n int) {
	t.Helper()
	for {
		select {
		case _, open := <-lines:
			if !open {
				t.Fatal("it has ended")
			}
			n++
		case <-time.After(6 * lookEvery):
			return n
		}
	}
}

// A supervisor that is killed while it is stopped is gone for the tracer, as ever.
func TestStoppedSupervisorIsKilled(t *testing.T) {
	supervisor, _, out := apart(t, "wait")
	if err := supervisor.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	waitState(t, supervisor.Process.Pid, "T")
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if ws := exitOf(t, supervisor); ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the supervisor ended with %v", ws)
	}
	if got := rest(t, out); got != "gone\n" {
		t.Errorf("the tracer said %q", got)
	}
}

// waitState waits until the process is in one of the states of proc(5).
func waitState(t *testing.T, pid int, states string) {
	t.Helper()
	var last string
	for range 12000 {
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

func TestSupervisorKillsATracerThatHangs(t *testing.T) {
	supervisor, _, out := apart(t, "hang")
	first, over := time.Now(), make(chan struct{})
	go func() {
		defer close(over)
		for supervisor.Process.Signal(syscall.SIGTERM) == nil { // until it is waited for
			time.Sleep(100 * time.Millisecond)
		}
	}()
	ws := exitOf(t, supervisor)
	if took := time.Since(first); ws.ExitStatus() != 1 || took < Patience {
		t.Errorf("the supervisor ended with %v after %v, want status 1 and no earlier than %v", ws, took, Patience)
	}
	<-over
	got := rest(t, out)
	if !strings.Contains(got, "recover [45]") || !strings.Contains(got, "signal 9") {
		t.Errorf("the supervisor said %q", got)
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
		t.Error("a supervisor that never was has gone")
	case <-l.Signals():
		t.Error("a signal out of nowhere")
	default:
	}
}

// TestWakesTheTracer: a tracer that a signal has stopped goes on, as programs wait for it.
func TestWakesTheTracer(t *testing.T) {
	_, tracer, out := apart(t, "write")
	if err := syscall.Kill(tracer, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitState(t, tracer, "T")
	waitState(t, tracer, "SR")
	if l, err := out.ReadString('\n'); err != nil || !strings.HasPrefix(l, "hit ") {
		t.Errorf("%q, %v", l, err)
	}
}
