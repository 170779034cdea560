package pair

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kprobe/internal/procfs"
	"kprobe/internal/quote"
)

// Patience is how long after the first signal that asks for the end a second
// one still waits for the tracer. After that the tracer is taken to hang: it is
// killed, and its probes are taken out.
const Patience = 3 * time.Second

// recoverTime bounds how long the supervisor tries to take probes out.
const recoverTime = 30 * time.Second

// Supervisor is the process that the user started.
type Supervisor struct {
	// Args are the arguments for the tracer, its name included.
	Args []string
	// Stderr takes what the supervisor has to say; nothing in the ordinary course.
	Stderr io.Writer
	// Recover takes the probes of a tracer that was killed out of processes.
	// It returns those that it cleaned; processes that have ended are no error.
	Recover func(ctx context.Context, pids []int) ([]int, error)
}

// stopAnswer is how long the supervisor waits, before it stops, for the tracer to hold
// its output back.
const stopAnswer = 200 * time.Millisecond

// lastWords is how long the supervisor reads on after the tracer has ended: what it
// said is in the socket already, unless a child of its that died in the middle
// of being started still holds the other end.
const lastWords = time.Second

// report is what the tracer said on the socket.
type report struct {
	over    chan struct{} // closed at the end of the socket
	stopped chan struct{} // one for each answer to "stop"

	mu   sync.Mutex
	pids []int // guarded by mu
	end  bool  // guarded by mu
}

// Run starts the tracer, waits for its end and returns the exit status: the
// tracer's own, or 1 after it died without having said that it is done. An
// error means that no tracer could be started and nothing was done.
func (f *Supervisor) Run() (status int, err error) {
	mine, theirs, err := socket()
	if err != nil {
		return 0, err
	}
	defer mine.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = f.Args
	cmd.Env = append(os.Environ(), Variable+"=3")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed()...)
	defer signal.Stop(signals)
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return 0, fmt.Errorf("start the tracer: %w", err)
	}

	said := &report{over: make(chan struct{}), stopped: make(chan struct{}, 1)}
	go said.listen(mine)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	look := time.NewTicker(wakeEvery)
	defer look.Stop()
	var asked time.Time // when the end was first asked for
	for {
		select {
		case <-look.C:
			wake(cmd.Process.Pid)
		case s := <-signals:
			asked = said.pass(s.(syscall.Signal), asked, cmd.Process, mine)
		case err := <-ended:
			pids, end := said.all()
			return f.finish(cmd.ProcessState, err, pids, end), nil
		}
	}
}

// wakeEvery is how often the supervisor looks whether the tracer is stopped.
const wakeEvery = time.Second

// wake has the tracer go on if a signal has stopped it: the program would stand still at
// its next breakpoint, and processes that are about to run one wait for its answer. Who
// wants hits to wait stops the supervisor, as ^Z does.
func wake(tracer int) {
	if st, err := procfs.Process(tracer).Stat(); err == nil && st.State() == 'T' {
		_ = syscall.Kill(tracer, syscall.SIGCONT)
	}
}

// unheard is how long a tracer has to end by what the socket says.
const unheard = 300 * time.Millisecond

// passed are the signals that the supervisor passes on. SIGHUP stays ignored where
// it was, so that nohup means what it says.
func passed() []os.Signal {
	s := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH}
	if !signal.Ignored(syscall.SIGHUP) {
		s = append(s, syscall.SIGHUP)
	}
	return s
}

// pass hands a signal on. Those of the terminal reach the tracer by themselves
// as well; both ways may be taken, since the tracer counts a signal once.
//
// A stop is the supervisor's alone: the tracer is told, so that it writes nothing
// until the supervisor is continued. Requests to end go through the socket, from which
// the tracer learns that the signal was sent to kprobe alone. A tracer that has touched
// no process, and doesn't end, gets the signal itself after unheard: it may not look at the
// socket yet, as where it reads definitions from a pipe that nobody closes.
func (r *report) pass(s syscall.Signal, asked time.Time, tracer *os.Process, link io.Writer) time.Time {
	switch s {
	case syscall.SIGTSTP:
		_, _ = io.WriteString(link, wordStop+"\n")
		select {
		case <-r.stopped:
		case <-r.over:
		case <-time.After(stopAnswer):
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case syscall.SIGCONT:
		_, _ = io.WriteString(link, wordContinue+"\n")
	case syscall.SIGWINCH:
		_ = tracer.Signal(s)
	default:
		if asked.IsZero() {
			asked = time.Now()
		} else if time.Since(asked) > Patience {
			_ = tracer.Kill()
		}
		_, _ = io.WriteString(link, wordSignal+strconv.Itoa(int(s))+"\n")
		time.AfterFunc(unheard, func() {
			if !r.touched() {
				_ = tracer.Signal(s) // one that has ended takes none
			}
		})
	}
	return asked
}

// listen reads what the tracer says until its end of the socket closes.
func (r *report) listen(from io.Reader) {
	defer close(r.over)
	for in := bufio.NewScanner(from); in.Scan(); {
		r.mu.Lock()
		if pid, ok := number(in.Text(), wordTouch); ok {
			r.pids = append(r.pids, pid)
		} else if in.Text() == wordEnd {
			r.end = true
		} else if in.Text() == wordStop {
			select {
			case r.stopped <- struct{}{}:
			default: // an answer that nobody has waited for
			}
		}
		r.mu.Unlock()
	}
}

// touched reports whether the tracer has said that it is about to touch a process.
func (r *report) touched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pids) > 0
}

// all gives everything that the tracer, which has ended, had said.
func (r *report) all() (pids []int, end bool) {
	select {
	case <-r.over:
	case <-time.After(lastWords):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pids, r.end
}

// finish returns the exit status, after having taken out the probes of a
// tracer that did not say that it was done.
func (f *Supervisor) finish(state *os.ProcessState, err error, pids []int, end bool) int {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintf(f.Stderr, "kprobe: wait for the tracer: %v\n", err)
	}
	status := 1
	how := "ended early"
	if ws, ok := state.Sys().(syscall.WaitStatus); ok {
		switch {
		case ws.Exited() && end:
			return ws.ExitStatus()
		case ws.Signaled() && len(pids) == 0 && slices.Contains(passed(), os.Signal(ws.Signal())):
			fmt.Fprintln(f.Stderr, "kprobe: interrupted before the probes were in")
			return status
		case ws.Signaled():
			how = fmt.Sprintf("was killed (signal %d, %v)", int(ws.Signal()), ws.Signal())
		case ws.Exited():
			how = fmt.Sprintf("ended early (status %d)", ws.ExitStatus())
		}
	}
	if end {
		// It had cleaned up: only its last words are lost.
		fmt.Fprintf(f.Stderr, "kprobe: the tracer %s\n", how)
		return status
	}
	f.clean(how, pids)
	return status
}

func (f *Supervisor) clean(how string, pids []int) {
	if len(pids) == 0 {
		fmt.Fprintf(f.Stderr, "kprobe: the tracer %s; it had changed no process\n", how)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recoverTime)
	defer cancel()
	done, err := f.Recover(ctx, pids)
	switch {
	case err != nil:
		fmt.Fprintf(f.Stderr, "kprobe: the tracer %s; taking its probes out of %s: %v\n", how, processes(pids), quote.Plain(strings.ReplaceAll(err.Error(), "\n", "; ")))
	case len(done) == 0:
		fmt.Fprintf(f.Stderr, "kprobe: the tracer %s; %s: no probe of it is left\n", how, processes(pids))
	default:
		fmt.Fprintf(f.Stderr, "kprobe: the tracer %s; its probes were taken out of %s, which %s on\n", how, processes(done), runs(done))
	}
}

func runs(pids []int) string {
	if len(pids) == 1 {
		return "runs"
	}
	return "run"
}

// processes names processes: "process 7" or "processes 7, 8".
func processes(pids []int) string {
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(pid)
	}
	if len(words) == 1 {
		return "process " + words[0]
	}
	return "processes " + strings.Join(words, ", ")
}
