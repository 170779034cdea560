package cli

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/cmd/kprobe/pair"
)

// supervisor gives the far end of a link, as a supervisor holds it.
func supervisor(t *testing.T) (far *os.File, link *pair.Link) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	far = os.NewFile(uintptr(fds[0]), "far")
	t.Cleanup(func() { far.Close() })
	t.Setenv(pair.Variable, fmt.Sprint(fds[1]))
	if link = pair.Open(); link == nil {
		t.Fatal("no link")
	}
	return far, link
}

// child is a process that waits; its end is told on the channel.
func child(t *testing.T) (pid int, ended chan syscall.WaitStatus) {
	t.Helper()
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan syscall.WaitStatus, 1)
	go func() {
		_ = c.Wait()
		ended <- c.ProcessState.Sys().(syscall.WaitStatus)
	}()
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c.Process.Pid, ended
}

func TestSignalEndsATrace(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
		ctx, _, stop := watchSignals(t.Context(), nil)
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		stop()
	}
}

func TestSupervisorsSignalEndsATrace(t *testing.T) {
	far, link := supervisor(t)
	ctx, _, stop := watchSignals(t.Context(), link)
	defer stop()
	if _, err := far.WriteString("signal 15\n"); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

func TestEndOfTheSupervisorEndsATrace(t *testing.T) {
	far, link := supervisor(t)
	ctx, _, stop := watchSignals(t.Context(), link)
	defer stop()
	far.Close()
	<-ctx.Done()
}

func TestSignalToKprobeAloneGoesToTheCommand(t *testing.T) {
	far, link := supervisor(t)
	ctx, in, stop := watchSignals(t.Context(), link)
	defer stop()
	pid, ended := child(t)
	in.started(pid)
	if _, err := far.WriteString("signal 2\n"); err != nil {
		t.Fatal(err)
	}
	if ws := <-ended; ws.Signal() != syscall.SIGINT {
		t.Errorf("the command ended with %v", ws)
	}
	<-ctx.Done()
}

func TestSignalOfTheTerminalIsNotDoubled(t *testing.T) {
	far, link := supervisor(t)
	ctx, in, stop := watchSignals(t.Context(), link)
	defer stop()
	pid, ended := child(t)
	in.started(pid)
	// The terminal signals the whole group: supervisor, tracer and command. Here the
	// command is left out, so that a second copy would show.
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, err := far.WriteString("signal 2\n"); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done() // the command does not end, so the trace does after its grace
	select {
	case ws := <-ended:
		t.Errorf("the command got the signal once more and ended with %v", ws)
	default:
	}
}

func TestSignalsWaitForTheCommand(t *testing.T) {
	ctx, in, stop := watchSignals(t.Context(), nil)
	defer stop()
	pid, _ := child(t)
	in.started(pid)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.got != syscall.SIGTERM {
		t.Errorf("remembered %v", in.got)
	}
}
