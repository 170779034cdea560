//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// What isn't a process is told from one that has gone.
func TestNoProcess(t *testing.T) {
	g := spawn(t, events(t), "idle")
	tr := newTracer(t)
	thread := 0
	eventually(t, "a second thread", func() bool {
		tids, _ := tasks(g.pid)
		for _, tid := range tids {
			if tid != g.pid {
				thread = tid
			}
		}
		return thread != 0
	})
	for _, c := range []struct {
		pid, of int
		says    string
	}{
		{1 << 30, 0, "attach to process 1073741824: no such process"},
		{-5, 0, "attach to process -5: no such process"},
		{0, 0, "attach to process 0: no such process"},
		{thread, g.pid, fmt.Sprintf("attach to process %d: %d is a thread of process %d", thread, thread, g.pid)},
	} {
		_, err := tr.Attach(context.Background(), c.pid)
		var none *NoProcessError
		if !errors.As(err, &none) || none.Of != c.of || !errors.Is(err, ErrGone) || err.Error() != c.says {
			t.Errorf("%d: %v, want %s", c.pid, err, c.says)
		}
	}
}

// filterMain puts this process, and what it executes, under a filter that allows
// everything, and executes its arguments.
func filterMain() {
	allow := unix.SockFilter{Code: unix.BPF_RET, K: 0x7fff0000} // SECCOMP_RET_ALLOW
	prog := unix.SockFprog{Len: 1, Filter: &allow}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, 2, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		panic(err)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TRACEE_TEST_FILTER=") })
	panic(syscall.Exec(os.Args[1], os.Args[1:], env))
}

// callerMain is a tracer of lesser rights: it injects a mapping and says what
// became of it.
func callerMain() {
	pid, _ := strconv.Atoi(os.Getenv("TRACEE_TEST_CALLER"))
	tr, err := New()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	p, err := tr.Attach(ctx, pid)
	var refused *PermissionError
	if errors.As(err, &refused) && errors.Is(err, ErrPermission) {
		fmt.Println("refused:", refused.Reason)
		return
	}
	if err != nil {
		panic(err)
	}
	_, err = p.Syscall(ctx, nil, unix.SYS_MMAP, 0, pageSize, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
	switch {
	case errors.Is(err, ErrSeccomp):
		fmt.Println("seccomp")
	case err != nil:
		fmt.Println("error:", err)
	default:
		fmt.Println("called")
	}
	if err := tr.Close(); err != nil {
		panic(err)
	}
}

// nobody is who runs a tracer without root's rights.
const nobody = 65534

func asNobody() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// unprivileged starts the fixture without root's rights, and runs callerMain
// on it in the same way.
func unprivileged(t *testing.T, mode string) (said string, status int) {
	t.Helper()
	text, err := os.ReadFile(fixture.Build(t, "tracee_seccomp.c", "-O1", "-static"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tracee")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe := filepath.Join(dir, "target")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(exe, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	target := exec.Command(exe, mode)
	target.SysProcAttr = asNobody()
	in, err := target.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := target.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	for text := ""; !strings.Contains(text, "ready"); {
		n, err := out.Read(b)
		if err != nil {
			t.Fatalf("the target: %v after %q", err, text)
		}
		text += string(b[:n])
	}
	caller := exec.Command("/proc/self/exe")
	caller.SysProcAttr = asNobody()
	caller.Env = []string{"TRACEE_TEST_CALLER=" + strconv.Itoa(target.Process.Pid)}
	said = "nothing"
	if text, err := caller.CombinedOutput(); err == nil {
		said = strings.TrimSpace(string(text))
	} else {
		t.Errorf("caller: %v\n%s", err, text)
	}
	in.Close()
	_ = target.Wait() // the status tells
	ws := target.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return said, 128 + int(ws.Signal())
	}
	return said, ws.ExitStatus()
}

// What a program's seccomp rules forbid is not tried on it, for they may kill
// it; and a program that is not to be traced says so.
func TestSeccompWithoutRights(t *testing.T) {
	for _, mode := range []string{"strict", "errno", "trap", "kill"} {
		t.Run(mode, func(t *testing.T) {
			if said, status := unprivileged(t, mode); said != "seccomp" || status != 0 {
				t.Errorf("%s; the target ended with %d", said, status)
			}
		})
	}
	t.Run("hidden", func(t *testing.T) {
		if said, status := unprivileged(t, "hidden"); !strings.HasPrefix(said, "refused: the program") || status != 0 {
			t.Errorf("%s; the target ended with %d", said, status)
		}
	})
}

// Root suspends the rules for its call, and they hold again after.
func TestSeccompSuspended(t *testing.T) {
	if os.Geteuid() != 0 {
		fixture.Missing(t, "root")
	}
	for _, mode := range []string{"strict", "errno", "trap", "kill"} {
		t.Run(mode, func(t *testing.T) {
			g := spawn(t, fixture.Build(t, "tracee_seccomp.c", "-O1", "-static"), mode)
			if l := g.line(); l != "ready" {
				t.Fatal(l)
			}
			tr := newTracer(t)
			p := attach(t, tr, g.pid)
			running(t, tr, &recorder{t: t})
			do(t, tr, func() error {
				_, err := p.Syscall(context.Background(), nil, unix.SYS_MMAP, 0, pageSize, unix.PROT_READ,
					unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
				return err
			})
			st, err := procfs.Process(g.pid).Status()
			if err != nil || st.Int("Seccomp") == 0 {
				t.Errorf("the rules are gone: %v", err)
			}
			if out, status := g.rest(); status != 0 || out != "" {
				t.Errorf("status %d, %q", status, out)
			}
		})
	}
}

// A program's own rules aren't taken for those of a container because the tracer is
// under as many: they may kill it. Rules that both have from one ancestor are no
// obstacle.
func TestSeccompOfBoth(t *testing.T) {
	text, err := os.ReadFile(fixture.Build(t, "tracee_seccomp.c", "-O1", "-static"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tracee")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe, self := filepath.Join(dir, "target"), filepath.Join(dir, "self")
	own, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(exe, text, 0o755), os.WriteFile(self, own, 0o755)); err != nil {
		t.Fatal(err)
	}
	// The target, then the tracer; "F" runs what follows under a filter.
	const both = `F() { TRACEE_TEST_FILTER=1 "$SELF" "$@"; }
	mkfifo in out
	"$EXE" $MODE <in >out & pid=$!
	exec 3>in 4<out
	read -r l <&4; read -r l <&4
	TRACEE_TEST_CALLER=$pid $TRACER
	exec 3>&-
	wait $pid; echo status $?`
	for _, c := range []struct{ name, mode, run, tracer, want string }{
		{"own", "kill", "", "F $SELF", "seccomp\nstatus 0\n"},
		{"inherited", "plain", "filtered", "$SELF", "called\nstatus 0\n"},
		{"inherited and own", "kill", "filtered", "F $SELF", "seccomp\nstatus 0\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := filepath.Join(dir, strings.ReplaceAll(c.name, " ", "_"))
			if err := errors.Join(os.Mkdir(work, 0o777), os.Chmod(work, 0o777)); err != nil {
				t.Fatal(err)
			}
			script := both
			for name, value := range map[string]string{"$TRACER": c.tracer, "$EXE": exe, "$SELF": self, "$MODE": c.mode} {
				script = strings.ReplaceAll(script, name, value)
			}
			script = strings.ReplaceAll(script, "$SELF", self)
			args := []string{"/bin/sh", "-c", script}
			if c.run != "" {
				args = append([]string{self}, args...)
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir = work
			cmd.SysProcAttr = asNobody()
			if c.run != "" {
				cmd.Env = append(os.Environ(), "TRACEE_TEST_FILTER=1")
			}
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != c.want {
				t.Errorf("%v: %q, want %q", err, out, c.want)
			}
		})
	}
}

// A process of another user is refused by name.
func TestOtherUser(t *testing.T) {
	g := spawn(t, events(t), "idle")
	pid := g.pid
	if os.Geteuid() != 0 {
		pid = 1
	}
	caller := exec.Command("/proc/self/exe")
	caller.SysProcAttr = asNobody()
	caller.Env = []string{"TRACEE_TEST_CALLER=" + strconv.Itoa(pid)}
	said, err := caller.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(said), "refused: it belongs to user 0") {
		t.Errorf("%s %v", said, err)
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
}
