package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// TestImage: the program alone in a root folder, as root whose one capability is CAP_SYS_PTRACE,
// traces a process with a mount namespace of its own, as in an ephemeral container.
func TestImage(t *testing.T) {
	if os.Getuid() != 0 {
		fixture.Missing(t, "root, to change the root folder")
	}
	tool := fixture.NeedTool(t, "go")
	root := t.TempDir()
	build := exec.Command(tool, "build", "-o", filepath.Join(root, "kprobe"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		fixture.Missing(t, "to mount /proc: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(root, "proc"), unix.MNT_DETACH) })
	target := exec.Command(fixture.Build(t, "starting.c", "-O1"), "1000000", "1000")
	target.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := target.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = target.Process.Kill()
		_ = target.Wait()
	}()
	c := exec.Command(fixture.NeedTool(t, "python3"), "-c", onlyPtrace, root, fmt.Sprint(target.Process.Pid))
	out, err := c.CombinedOutput()
	if err != nil || bytes.Count(out, []byte(": e: (early+0x0")) != 5 {
		t.Errorf("%v: %s", err, out)
	}
}

// onlyPtrace executes kprobe in a root folder, without any capability but CAP_SYS_PTRACE (19).
const onlyPtrace = `
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chroot(sys.argv[1])
os.chdir('/')
for c in range(64):
    if c != 19:
        libc.prctl(24, c, 0, 0, 0) # PR_CAPBSET_DROP
os.execve('/kprobe', ['/kprobe', 'trace', '-p', sys.argv[2], '-n', '5', 'p:e early n=$arg1:s32'], {})
`
