package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe/probe/area"
	"kprobe/probe/tracee"
)

// What TestStepsOf is told by: the process, the kind of session, and the step before which it
// kills itself; 0: it doesn't.
const (
	stepsPID  = "PROBE_TEST_STEPS_PID"
	stepsKind = "PROBE_TEST_STEPS_KIND"
	stepsAt   = "PROBE_TEST_STEPS_AT"
)

// stepsFrom is the step that TestKilledAtSteps begins at, to go on where another run has ended.
const stepsFrom = "PROBE_TEST_STEPS_FROM"

// TestStepsOf is the kprobe that TestKilledAtSteps kills. In the end it prints how many steps
// it has made.
func TestStepsOf(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv(stepsPID))
	if err != nil {
		t.Skip("it is run by TestKilledAtSteps")
	}
	at, err := strconv.ParseInt(os.Getenv(stepsAt), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var steps atomic.Int64
	listed := os.Getenv(stepsCalls) != "" && at == 0
	tracee.OnStep(func() {
		n := steps.Add(1)
		if n == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if !listed {
			return
		}
		if nr, ok := aboutToCall(pid); ok && leaves(nr) {
			fmt.Printf("call %d %d\n", n, nr)
		}
	})
	switch kind := os.Getenv(stepsKind); kind {
	case "letgo":
		stepsOfLetGo(t, pid)
	default:
		stepsOfDetached(t, pid)
	}
	fmt.Printf("steps %d\n", steps.Load())
}

// stepsOfLetGo has a session let go of a process, change its probes in all ways, let go of it
// each time, and take the probes out.
func stepsOfLetGo(t *testing.T, pid int) {
	l := engageInto(t, pid, Options{LetGo: true}, nil, recordedHit)
	l.untraced(pid)
	link, err := l.s.Add(t.Context(), parseDefs(t, "p:rec/text hit s=+0($arg1):string", "r:rec/back hit2"))
	if err != nil {
		t.Fatal(err)
	}
	l.untraced(pid)
	for _, on := range []bool{false, true} {
		if err := l.s.Enable(on, l.s.Events()...); err != nil {
			t.Fatal(err)
		}
	}
	if err := link.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.untraced(pid)
	l.stop()
	<-l.done
	if err := l.s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// stepsOfDetached leaves probes in a process, changes them in all ways, and takes them out.
func stepsOfDetached(t *testing.T, pid int) {
	leaveIn(t, pid, Options{Detach: true}, recordedHit)
	l := openedLive(t, pid)
	if err := l.Add(t.Context(), parseDefs(t, "p:rec/text hit2 s=+0($arg1):string", "r:rec/back hit2")); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{false, true} {
		if _, err := l.Enable(func(string, string) bool { return true }, on); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Remove(t.Context(), []string{"rec/back"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(t.Context(), []string{"rec/hit"}); err != nil { // what it has beside system calls stays for the other
		t.Fatal(err)
	}
	if err := l.Remove(t.Context(), []string{"rec/text"}); err != nil {
		t.Fatal(err)
	}
}

// stepsRun is one run of TestStepsOf: how many steps it made, if it wasn't killed.
func stepsRun(kind string, pid int, at int64) (steps int64, killed bool, err error) {
	out, killed, err := stepsOutput(kind, pid, at)
	if killed || err != nil {
		return at, killed, err
	}
	for line := range strings.Lines(out) {
		if _, err := fmt.Sscanf(line, "steps %d", &steps); err == nil {
			return steps, false, nil
		}
	}
	return 0, false, fmt.Errorf("it doesn't say how many steps it made: %s", out)
}

// stepsOutput is stepsRun, but gives what the run prints.
func stepsOutput(kind string, pid int, at int64) (text string, killed bool, err error) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestStepsOf$")
	cmd.Env = append(os.Environ(), stepsPID+"="+strconv.Itoa(pid), stepsKind+"="+kind, stepsAt+"="+strconv.FormatInt(at, 10))
	out, err := cmd.CombinedOutput()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
		return "", true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("it fails: %w: %s", err, out)
	}
	return string(out), false, nil
}

// TestKilledAtSteps kills a kprobe before each of the steps by which it arms probes, lets go of
// a process or leaves it, comes back to change them, and takes them out, in turn; another
// asks for a change meanwhile: the program runs on, untraced, with probes that record what
// happens, or none, and a third takes out what there is.
func TestKilledAtSteps(t *testing.T) {
	bin := buildKprobe(t)
	t.Setenv("KPROBE_EVENTS", filepath.Join(t.TempDir(), "events"))
	for _, kind := range []string{"letgo", "detached"} {
		t.Run(kind, func(t *testing.T) {
			s := startRecorded(t, 2, "paced")
			s.line()
			steps, _, err := stepsRun(kind, s.pid(), 0)
			if err != nil {
				t.Fatal(err)
			}
			checkLeft(t, s.pid(), true)
			apart := max(1, steps/int64(full(8, 1<<30)))
			rounds, found := 0, 0
			first := 1 + apart/2
			if from, err := strconv.ParseInt(os.Getenv(stepsFrom), 10, 64); err == nil {
				first = from
			}
			for at := first; ; at += apart {
				var other *command
				disabled := make(chan struct{})
				if rounds%3 != 2 {
					close(disabled)
				} else {
					go func() {
						defer close(disabled)
						time.Sleep(time.Duration(at%50) * 10 * time.Millisecond)
						_ = exec.Command(bin, "disable", "-p", strconv.Itoa(s.pid()), "rec/hit").Run() // there may be none
					}()
					other = startKprobe(t, bin, "add", "-p", strconv.Itoa(s.pid()), "p:rec/asked hit2 n=$arg1:u64")
				}
				_, killed, err := stepsRun(kind, s.pid(), at)
				<-disabled
				if other != nil {
					<-other.done
				} else if err != nil {
					t.Fatalf("to be killed before step %d of %d: %v", at, steps, err)
				}
				if !waitUntil(func() bool { return !area.HasTracer(s.pid()) }) {
					t.Fatalf("killed before step %d, the program is traced still", at)
				}
				rounds++
				there, err := s.looksWhole()
				if err != nil {
					t.Fatalf("killed before step %d of %d: %v; the program: %s", at, steps, err, endOf(s.pid()))
				}
				if there {
					found++
					if out, err := exec.Command(bin, "del", "-p", strconv.Itoa(s.pid()), "*").CombinedOutput(); err != nil {
						t.Fatalf("killed before step %d of %d: %v: %s", at, steps, err, out)
					}
				}
				checkLeft(t, s.pid(), true)
				if t.Failed() {
					t.Fatalf("killed before step %d of %d", at, steps)
				}
				if !killed && err == nil {
					break // it has come to its end
				}
			}
			t.Logf("%d kills, before one step in %d of some %d; probes were left %d times", rounds, apart, steps, found)
			if got := s.work(); !strings.HasPrefix(got, "done ") {
				t.Errorf("the program printed %q", got)
			}
			s.end()
		})
	}
}

// TestLiveSeesMore: what shows a process's probes that were left alone sees those that are added
// by itself and by others, and removes all of the named events or none.
func TestLiveSeesMore(t *testing.T) {
	s := startRecorded(t, 1, "paced")
	s.left(Options{}, recordedHit)
	l, other := openedLive(t, s.pid()), openedLive(t, s.pid())
	names := func(l *Live) (list []string) {
		for _, st := range l.Stats() {
			list = append(list, st.Event.Group+"/"+st.Event.Name)
		}
		return list
	}
	if err := l.Add(t.Context(), parseDefs(t, "p:rec/more hit2", "r:rec/back hit2")); err != nil {
		t.Fatal(err)
	}
	if err := other.Refresh(); err != nil {
		t.Fatal(err)
	}
	want := []string{"rec/hit", "rec/more", "rec/back"}
	for _, x := range []*Live{l, other} {
		if got := names(x); !slices.Equal(got, want) {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	if err := other.Remove(t.Context(), []string{"rec/hit", "rec/none"}); !errors.Is(err, ErrNoEvent) {
		t.Errorf("to remove what isn't there: %v", err)
	}
	if err := other.Remove(t.Context(), []string{"rec/hit"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Refresh(); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*Live{l, other} {
		if got := names(x); !slices.Equal(got, want[1:]) {
			t.Errorf("it shows %q, want %q", got, want[1:])
		}
	}
	if err := l.Remove(t.Context(), want[1:]); err != nil {
		t.Fatal(err)
	}
	checkLeft(t, s.pid(), true)
	s.work()
	s.end()
}
