//go:build linux && amd64

package tracee

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a program to start.
type Command struct {
	Path                  string   // file to execute
	Args                  []string // argv, Args[0] included; nil is {Path}
	Env                   []string // nil is this process's environment
	Dir                   string   // "" is this process's folder
	Stdin, Stdout, Stderr *os.File // nil is /dev/null
	// Group is the process group to start it in; 0 is this process's.
	Group int
	// Ignored are signals that this process ignores and the program should not.
	Ignored []syscall.Signal
}

// Start starts a program, in this process's group, so that the terminal's signals reach it as
// without a tracer. The program is stopped, as by StopAll, before the first instruction of its
// image (that of the dynamic linker, if it has one). ResumeAll lets it run. From then on
// everything is as after Attach. Any goroutine may call it.
func (t *Tracer) Start(ctx context.Context, c Command) (*Process, error) {
	var p *Process
	err := t.Do(func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		p, err = t.start(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	return p, nil
}

func (t *Tracer) start(c Command) (*Process, error) {
	files := []*os.File{c.Stdin, c.Stdout, c.Stderr}
	var fds []uintptr
	for _, f := range files {
		if f == nil {
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				return nil, err
			}
			defer null.Close()
			f = null
		}
		fds = append(fds, f.Fd())
	}
	args, env := c.Args, c.Env
	if args == nil {
		args = []string{c.Path}
	}
	if env == nil {
		env = os.Environ()
	}
	t.place.release() // the child would inherit it
	inherit := byDefault(c.Ignored)
	pid, err := syscall.ForkExec(c.Path, args, &syscall.ProcAttr{
		Dir: c.Dir, Env: env, Files: fds,
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: c.Group != 0, Pgid: c.Group},
	})
	inherit()
	if err != nil {
		return nil, err
	}
	t.children[pid] = true
	p, err := t.takeOver(pid)
	if err != nil {
		// It has executed nothing of its program yet.
		_ = syscall.Kill(pid, syscall.SIGKILL)
		var st uint32
		t.waitFor(pid, &st)
		delete(t.children, pid)
		return nil, err
	}
	return p, nil
}

// byDefault makes this process, and so the programs that it executes, take signals by their
// default action, until undo is called.
func byDefault(signals []syscall.Signal) (undo func()) {
	were := make([]sigaction, len(signals))
	for i, sig := range signals {
		_ = rtSigaction(sig, &sigaction{}, &were[i]) // fails only for what is no signal
	}
	return func() {
		for i, sig := range signals {
			_ = rtSigaction(sig, &were[i], nil)
		}
	}
}

// takeOver turns the child's PTRACE_TRACEME, which can't be interrupted or listened to, into a
// seizure. In between, a job control stop keeps the child from running. The child leaves that
// stop inside the kernel.
func (t *Tracer) takeOver(pid int) (*Process, error) {
	if err := t.expectStop(pid, syscall.SIGTRAP); err != nil {
		return nil, err
	}
	if e := ptrace(unix.PTRACE_DETACH, pid, 0, uintptr(syscall.SIGSTOP)); e != 0 {
		return nil, &PtraceError{"detach", pid, e}
	}
	if err := t.expectStop(pid, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	if e := seize(pid, options); e != 0 {
		return nil, &PtraceError{"seize", pid, e}
	}
	if err := checkClass(pid); err != nil {
		return nil, err
	}
	p := t.newProcess(pid)
	th := p.newThread(pid)
	th.announced = true
	if err := t.unstop(th); err != nil {
		t.drop(p)
		return nil, err
	}
	p.hold()
	return p, nil
}

// unstop takes a thread from a job control stop to a stop on the way to the delivery of
// SIGCONT, which is then dropped.
func (t *Tracer) unstop(th *Thread) error {
	if err := syscall.Kill(th.tid, syscall.SIGCONT); err != nil {
		return err
	}
	for {
		var st uint32
		if n, e := t.waitFor(th.tid, &st); e != 0 || n != th.tid || !syscall.WaitStatus(st).Stopped() {
			return ErrGone
		}
		th.note(syscall.WaitStatus(st))
		if th.status>>16 == 0 && th.status.StopSignal() == syscall.SIGCONT {
			return nil
		}
		if e := ptrace(unix.PTRACE_CONT, th.tid, 0, 0); e != 0 {
			return th.failed("cont", e)
		}
	}
}

func (t *Tracer) expectStop(pid int, sig syscall.Signal) error {
	var st uint32
	for {
		n, e := wait(pid, &st, unix.WUNTRACED)
		if e == syscall.EINTR {
			continue
		}
		ws := syscall.WaitStatus(st)
		if e != 0 || n != pid || !ws.Stopped() {
			return ErrGone
		}
		if ws.StopSignal() == sig {
			return nil
		}
		if e := ptrace(unix.PTRACE_CONT, pid, 0, uintptr(ws.StopSignal())); e != 0 {
			return &PtraceError{"cont", pid, e}
		}
	}
}
