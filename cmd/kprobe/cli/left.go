package cli

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/output"
	"kprobe/probe"
)

// A command that outlives its trace
//
// With -n, -t, a reader that has seen enough, or a command that ignores ^C, the trace ends and
// the command doesn't. It runs on, like a process that was attached to, and as with strace.
// kprobe says so, and how to end it. With --kill-on-exit, which strace has as well, it gets the
// signal that perf stat --timeout and bpftrace -c send.

// killTime is how long a command may take to end by --kill-on-exit before kprobe says that it
// runs on.
const killTime = time.Second

// endCommand ends the command that kprobe has started, if it is among the processes
// that run on and --kill-on-exit asks for it, and gives those that still do. The
// probes are out. One that has ended meanwhile is sent nothing: its number may be
// another process's.
func (o *sessionOptions) endCommand(s Session, m *messages, alive []int) []int {
	if !o.kill || !slices.Contains(alive, o.started) {
		return alive
	}
	rest := slices.DeleteFunc(slices.Clone(alive), func(pid int) bool { return pid == o.started })
	if _, ended := s.CommandStatus(); ended {
		return rest
	}
	if err := unix.Kill(o.started, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		m.warn("%s can't be ended: %v", o.commandLine(), err)
		return alive
	}
	for end := time.Now().Add(killTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		// Its parent is who has started it.
		if pid, err := unix.Wait4(o.started, nil, unix.WNOHANG, nil); pid == o.started || errors.Is(err, unix.ECHILD) {
			return rest
		}
	}
	return alive
}

// dyingTime is how long to wait for a command that a signal ends.
const dyingTime = 5 * time.Second

// endInterrupted waits for the end of the command where the signal that has ended the
// trace ends it too: while places are looked up it stands still, and the signal waits
// for it. One that catches, ignores or blocks the signal runs on.
func (o *sessionOptions) endInterrupted(s Session, sum *probe.Summary, sig syscall.Signal) {
	if sig == 0 || !slices.Contains(sum.Alive, o.started) {
		return
	}
	status, ended := s.CommandStatus()
	for end := time.Now().Add(dyingTime); !ended; time.Sleep(time.Millisecond) {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(o.started, &ws, unix.WNOHANG, nil)
		switch {
		case pid == o.started:
			status, ended = syscall.WaitStatus(ws), true
		case err != nil && !errors.Is(err, unix.EINTR), survives(o.started, sig), time.Now().After(end):
			return
		}
	}
	sum.Alive = slices.DeleteFunc(slices.Clone(sum.Alive), func(pid int) bool { return pid == o.started })
	sum.Status, sum.HasStatus = status, true
	if status.Signaled() {
		sum.Killed = append(sum.Killed, probe.Death{PID: o.started, Signal: status.Signal()})
	}
}

// survives reports whether a process does anything but end by a signal.
func survives(pid int, sig syscall.Signal) bool {

	st, err := procfs.Process(pid).Status()
	if err != nil {
		return false // Wait4 says more
	}
	for _, name := range [...]string{"SigBlk", "SigIgn", "SigCgt"} {
		if set, ok := st.Set(name); ok && set>>(sig-1)&1 != 0 {
			return true
		}
	}
	return false
}

// sayCommand says that the command that kprobe has started runs on, if it does.
func (o *sessionOptions) sayCommand(m *messages, alive []int) {
	switch {
	case o.started == 0 || !slices.Contains(alive, o.started):
	case o.kill:
		m.say("%s ignores SIGTERM: kill -9 %d ends it", o.commandLine(), o.started)
	default:
		m.say("%s was started for this trace and runs on: kill %d ends it; --kill-on-exit does that by itself", o.commandLine(), o.started)
	}
}

// sayRest says behind the summary what else a person should know of its numbers.
func (o *sessionOptions) sayRest(d *Deps, m *messages, sum *probe.Summary) {
	if len(sum.Unarmed) > 0 {
		m.say("%s", output.UnarmedLine(sum.Unarmed))
	}
	for i := range sum.Interposed {
		m.say("%s", output.InterposedLine(&sum.Interposed[i]))
	}
	o.sayOthers(d, m, sum)
	o.sayCommand(m, sum.Alive)
}

func (o *sessionOptions) commandLine() string { return strings.Join(o.command, " ") }
