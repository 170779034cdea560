package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestStat begins behind the name, which may hold anything.
func TestStat(t *testing.T) {
	for text, want := range map[string]struct {
		state byte
		start uint64
	}{
		"7 (a b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0":                    {'S', 4711},
		"7 (a) Z) R 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0":                   {'R', 4711},
		"7 (a) S) Z 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0":                   {'Z', 4711},
		"7 ( (\n) X 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711\n":                   {'X', 4711},
		"7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 x":                           {'S', 0},
		"7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 -1 ":                         {'S', 0},
		"7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 1" + strings.Repeat("0", 20): {'S', 0},
		"7 (a) S 1 2": {'S', 0}, "7 (a)": {}, "7 (a) ": {}, "7 (a": {}, "": {},
	} {
		st, err := ParseStat([]byte(text))
		if (err != nil) != !strings.Contains(text, ")") {
			t.Errorf("%q: %v", text, err)
		}
		if got := st.State(); got != want.state {
			t.Errorf("%q: state %q, want %q", text, got, want.state)
		}
		if got, ok := st.Uint(FieldStart); got != want.start || ok != (want.start != 0) {
			t.Errorf("%q: start %d, want %d", text, got, want.start)
		}
		if ended := want.state == 'Z' || want.state == 'X' || want.state == 0; st.Ended() != ended {
			t.Errorf("%q: ended %v", text, st.Ended())
		}
	}
	own, err := Process(os.Getpid()).Stat()
	if err != nil || own.Ended() {
		t.Errorf("this process: %v, ended %v", err, own.Ended())
	}
}

func TestStatus(t *testing.T) {
	st := Status("Name:\ta: b\nPPid:\t5\nPid:\t9\nUid:\t7\t8\t9\t10\nState:\tS (sleeping)\nVmSize:\t 12 kB\nSigBlk:\t0000000000000010\nSeccomp:\t2\nSeccomp_filters:\t3\nLast:\tx")
	for name, want := range map[string]string{
		"Name": "a: b", "Pid": "9", "PPid": "5", "SigBlk": "0000000000000010", "Last": "x", "id": "", "Seccomp": "2", "Nothing": "", "": "",
	} {
		if got := st.Field(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]int{"PPid": 5, "Uid": 7, "VmSize": 12, "Seccomp_filters": 3, "State": 0, "Nothing": 0} {
		if got := st.Int(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if set, ok := st.Set("SigBlk"); set != 16 || !ok {
		t.Errorf("the set is %#x, %v", set, ok)
	}
	if set, ok := st.Set("Nothing"); set != 0 || ok {
		t.Errorf("a set that isn't there is %#x, %v", set, ok)
	}
	if st.State() != 'S' || Status(nil).State() != 0 {
		t.Errorf("states %q and %q", st.State(), Status(nil).State())
	}
	for line, want := range map[string]uint32{"NSpid:\t100\t1\n": 1, "NSpid:\t101\t30\t2\n": 2, "": 0, "NSpid:\n": 0, "NSpid:\t100\n": 0, "NSpid:\t100\tx\n": 0} {
		if got, nested := Status(line).InnerNumber(); got != want || nested != (want != 0) {
			t.Errorf("%q: number %d, nested %v", line, got, nested)
		}
	}
	if !Status("x86_Thread_features:\tshstk \n").ShadowStack() || Status("x86_Thread_features:\t\n").ShadowStack() || st.ShadowStack() {
		t.Error("shadow stacks")
	}
}

// TestLongStatus: the groups of a process can fill pages, and what stands behind
// them counts as well.
func TestLongStatus(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "7", "task", "8")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{10, 582, 583, 584, 60000} {
		text := "Groups:\t" + strings.Repeat("100000 ", n) + "\nSigCgt:\t00000000000000ff\n"
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		st, err := FS(root).Process(7).Thread(8).Status()
		if set, ok := st.Set("SigCgt"); err != nil || !ok || set != 0xff || len(st) != len(text) {
			t.Errorf("%d groups: %d of %d bytes, %v; %#x, %v", n, len(st), len(text), err, set, ok)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	// The kernel's own text, too.
	groups := make([]uint32, 4000)
	for i := range groups {
		groups[i] = uint32(100000 + i)
	}
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: groups}}
	if err := c.Start(); err != nil {
		fixture.Missing(t, "the right to make a process with many groups: %v", err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	st, err := Process(c.Process.Pid).Status()
	if _, ok := st.Set("SigCgt"); err != nil || !ok || len(st) < 7*4000 {
		t.Errorf("%d bytes of status, %v", len(st), err)
	}
}

// TestProcesses lists this process, its thread and its child.
func TestProcesses(t *testing.T) {
	pid := os.Getpid()
	pids, err := Processes()
	if err != nil || !slices.Contains(pids, pid) {
		t.Errorf("this process is not among %v, %v", pids, err)
	}
	tids, err := Process(pid).Threads()
	if err != nil || !slices.Contains(tids, pid) {
		t.Errorf("the first thread is not among %v, %v", tids, err)
	}
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kid := c.Process.Pid
	if _, err := Thread(pid, pid).Children(); err == nil && !slices.Contains(Process(pid).AllChildren(), kid) {
		t.Errorf("%d is not among the children %v", kid, Process(pid).AllChildren())
	}
	// Start returns while the kernel still executes the program: the name comes after that.
	waitUntil(t, "its name", func() bool {
		comm, err := Process(kid).Comm()
		return err == nil && comm == "sleep"
	})
	_ = c.Process.Kill()
	_ = c.Wait()
	for what, f := range map[string]func() error{
		"comm":    func() error { _, err := Process(kid).Comm(); return err },
		"stat":    func() error { _, err := Process(kid).Stat(); return err },
		"status":  func() error { _, err := Process(kid).Status(); return err },
		"threads": func() error { _, err := Process(kid).Threads(); return err },
	} {
		if err := f(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a process that is gone: %v", what, err)
		}
	}
	if got := Living(kid); got != kid {
		t.Errorf("the living thread of a process that is gone is %d", got)
	}
	if got := Image(pid).Path("exe"); got != fmt.Sprintf("/proc/%d/exe", pid) {
		t.Errorf("the program is at %s", got)
	}
}

func TestCPUFlags(t *testing.T) {
	list := flagsOf("processor\t: 0\nflags\t\t: fpu vme rdpid\nvmx flags\t: vnmi\n\nprocessor\t: 1\nflags\t\t: other\n")
	if !slices.Equal(list, []string{"fpu", "vme", "rdpid"}) {
		t.Errorf("%q", list)
	}
	if list := flagsOf("flagship: yes\n"); list != nil {
		t.Errorf("no flags: %q", list)
	}
	if !CPUHas("lm") || CPUHas("m") {
		t.Error("a processor of 64 bits has lm, and no feature m")
	}
}

// waitUntil waits for a condition.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}

// TestDescriptors: files are among a process's descriptors while they are open.
func TestDescriptors(t *testing.T) {
	first, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	last, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(last.Fd())
	for _, open := range []bool{true, false} {
		list, err := Process(os.Getpid()).Descriptors()
		if err != nil || slices.Contains(list, fd) != open {
			t.Errorf("%d is open: %v, and listed are %v; %v", fd, open, list, err)
		}
		first.Close() // whose number the folder gets that is read next
		last.Close()
	}
}

// TestBootID: it is one identifier, of one line.
func TestBootID(t *testing.T) {
	if id := BootID(); len(id) != 36 || strings.Count(id, "-") != 4 {
		t.Errorf("%q", id)
	}
}
