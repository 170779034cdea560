package facts

import (
	"encoding/binary"
	"io"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
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
