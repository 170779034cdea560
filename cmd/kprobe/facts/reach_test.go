package facts

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/output"
)

// TestReach: check tells how many debug registers a process's threads have free, which
// others use meanwhile, and which files have statically defined probes.
func TestReach(t *testing.T) {
	cmd := exec.Command(fixture.Build(t, "usdt_peers.c", "-O1"))
	in, out := fixture.Start(t, cmd)
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	text := func(name string) string {
		for _, f := range Live().Check(pid) {
			if f.Name == name {
				return f.Text
			}
		}
		return ""
	}
	if got := text("USDT"); !strings.HasPrefix(got, "statically defined probes: 1 in usdt_peers") {
		t.Errorf("USDT: %q", got)
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_BREAKPOINT, Bp_type: breakWrite, Ext1: 8192, Ext2: 8, Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel}
	attr.Size = uint32(binary.Size(attr))
	fd, err := unix.PerfEventOpen(&attr, pid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		fixture.Missing(t, "perf events that watch memory (%v)", err)
	}
	if got := text("watchpoints"); !strings.HasPrefix(got, "3 of 4 debug registers are free") {
		t.Errorf("with one in use: %q", got)
	}
	unix.Close(fd)
	if got := text("watchpoints"); got != "all 4 debug registers are free" {
		t.Errorf("with none in use: %q", got)
	}
	_ = in.Close()
	_ = cmd.Wait()
}

// TestTranslated: check tells that a program runs in Valgrind, whose tools are static programs of such names.
func TestTranslated(t *testing.T) {
	prog := fixture.Build(t, "shared_text.c", "-O1", "-static")
	lib := fixture.Build(t, "library_part.c", "-O1", "-fPIC", "-shared", "-Wl,-z,noseparate-code")
	for name, want := range map[string]bool{"memcheck-amd64-linux": true, "memcheck": false} {
		path := filepath.Join(t.TempDir(), name)
		text, err := os.ReadFile(prog)
		if err := errors.Join(err, os.WriteFile(path, text, 0o755)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, lib, "0", "memfd")
		in, out := fixture.Start(t, cmd)
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("ready\nmapped\n"))); err != nil {
			t.Fatal(err)
		}
		found := Live().Check(cmd.Process.Pid)
		said := slices.ContainsFunc(found, func(f output.Fact) bool { return f.Name == "Valgrind" && f.Blocks })
		if said != want || Blocked(found) != want {
			t.Errorf("%s: %+v", name, found)
		}
		_ = in.Close()
		_ = cmd.Wait()
	}
}

func TestWatchpointsFact(t *testing.T) {
	for err, ok := range map[unix.Errno]bool{unix.EACCES: true, unix.EPERM: true, unix.EOPNOTSUPP: false, unix.ENODEV: false} {
		if f := watchpointsFact(0, err); f.OK != ok || f.Blocks {
			t.Errorf("%v: %+v", err, f)
		}
	}
	for n, ok := range map[int]bool{4: true, 3: false, 0: false} {
		if f := watchpointsFact(n, nil); f.OK != ok || f.Blocks {
			t.Errorf("%d: %+v", n, f)
		}
	}
}
