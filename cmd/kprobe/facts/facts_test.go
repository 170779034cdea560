package facts

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"kprobe/internal/fixture"

	"golang.org/x/sys/unix"

	"kprobe/output"
	"kprobe/probe/tracee/access"
)

// machine is a /proc made for a test: the asking process is 100, the one that
// is asked about 200.
type machine struct {
	t    *testing.T
	root string
	// status of both, by line
	asker, asked map[string]string
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir()}
	base := func(pid int, name string) map[string]string {
		return map[string]string{
			"Name": name, "State": "S (sleeping)", "Tgid": fmt.Sprint(pid), "Pid": fmt.Sprint(pid), "PPid": "1",
			"TracerPid": "0", "Uid": "1000\t1000\t1000\t1000", "Gid": "1000\t1000\t1000\t1000",
			"VmSize": "1234 kB", "Threads": "1", "CapEff": "0000000000000000", "Seccomp": "0",
		}
	}
	m.asker, m.asked = base(100, "kprobe"), base(200, "server")
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	m.link("200/exe", exe)
	for _, pid := range []string{"100", "200"} {
		for _, ns := range []string{"mnt:[1]", "pid:[1]", "user:[4026531837]"} { // the last is the first of its kind
			m.link(pid+"/ns/"+ns[:strings.Index(ns, ":")], ns)
		}
	}
	m.dir("200/map_files")
	m.file("200/maps", "")
	return m
}

func (m *machine) file(name, text string) {
	m.dir(filepath.Dir(name))
	if err := os.WriteFile(filepath.Join(m.root, name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) dir(name string) {
	if err := os.MkdirAll(filepath.Join(m.root, name), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) link(name, to string) {
	m.dir(filepath.Dir(name))
	path := filepath.Join(m.root, name)
	_ = os.Remove(path)
	if err := os.Symlink(to, path); err != nil {
		m.t.Fatal(err)
	}
}

func text(status map[string]string) string {
	var b strings.Builder
	for name, value := range status {
		fmt.Fprintf(&b, "%s:\t%s\n", name, value)
	}
	return b.String()
}

func (m *machine) check() []output.Fact {
	m.file("100/status", text(m.asker))
	m.file("200/status", text(m.asked))
	if _, err := os.Stat(filepath.Join(m.root, "200/task")); err != nil {
		m.file("200/task/200/status", text(m.asked))
	}
	return Proc{Root: m.root, Self: 100}.Check(200)
}

func find(t *testing.T, facts []output.Fact, name string) output.Fact {
	t.Helper()
	for _, f := range facts {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no fact %q among %v", name, facts)
	return output.Fact{}
}

func TestNothingStandsInTheWay(t *testing.T) {
	facts := newMachine(t).check()
	if Blocked(facts) {
		t.Errorf("blocked: %+v", facts)
	}
	for _, name := range []string{"process", "permission", "ptrace scope", "tracer", "program", "seccomp", "state", "threads", "namespaces", "shadow stack"} {
		if f := find(t, facts, name); !f.OK || f.Remedy != "" || f.Text == "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestFacts(t *testing.T) {
	root := func(m *machine) { m.asker["CapEff"] = "000001ffffffffff" }
	tests := []struct {
		name   string
		set    func(m *machine)
		fact   string
		blocks bool
		ok     bool
		text   string // part of it
		remedy string // part of it
	}{
		{"a thread's number", func(m *machine) { m.asked["Tgid"] = "150" }, "process", true, false, "thread of process 150", "-p 150"},
		{"a zombie", func(m *machine) { m.asked["State"] = "Z (zombie)" }, "process", true, false, "has ended", "nothing is left"},
		{"a kernel thread", func(m *machine) { delete(m.asked, "VmSize") }, "process", true, false, "belongs to the kernel", "kprobe_events"},
		{"another user's", func(m *machine) { m.asked["Uid"] = "0\t0\t0\t0" }, "permission", true, false, "belongs to user 0", "as root"},
		{"set-user-id: one of three", func(m *machine) { m.asked["Uid"] = "1000\t0\t1000\t1000" }, "permission", true, false, "user", "root"},
		{"another group", func(m *machine) { m.asked["Gid"] = "1000\t1000\t5\t5" }, "permission", true, false, "group 5", "root"},
		{"root may", func(m *machine) { root(m); m.asked["Uid"] = "7\t7\t7\t7" }, "permission", false, true, "CAP_SYS_PTRACE", ""},
		{"traced by another kprobe", func(m *machine) {
			m.asked["TracerPid"] = "300"
			m.file("300/status", text(map[string]string{"Name": "kprobe"}))
		}, "tracer", true, false, "by process 300 (kprobe)", "kprobe add -p 200 DEF"},
		{"traced by a thread of another kprobe", func(m *machine) {
			m.asked["TracerPid"] = "303"
			m.file("303/status", text(map[string]string{"Name": "exe", "Tgid": "300"}))
			m.file("300/status", text(map[string]string{"Name": "kprobe", "Tgid": "300"}))
		}, "tracer", true, false, "by process 300 (kprobe)", "kprobe add -p 200 DEF"},
		{"traced by a debugger", func(m *machine) {
			m.asked["TracerPid"] = "300"
			m.file("300/status", text(map[string]string{"Name": "gdb"}))
		}, "tracer", true, false, "by process 300 (gdb)", "end or detach process 300"},
		{"scope 0", func(m *machine) { m.file("sys/kernel/yama/ptrace_scope", "0\n") }, "ptrace scope", false, true, "0:", ""},
		{"scope 1", func(m *machine) { m.file("sys/kernel/yama/ptrace_scope", "1\n") }, "ptrace scope", true, false, "only programs that kprobe starts", "ptrace_scope"},
		{"scope 1, a descendant", func(m *machine) {
			m.file("sys/kernel/yama/ptrace_scope", "1\n")
			m.asked["PPid"] = "100"
		}, "ptrace scope", false, true, "descendant", ""},
		{"scope 1, root", func(m *machine) { m.file("sys/kernel/yama/ptrace_scope", "1\n"); root(m) }, "ptrace scope", false, true, "exempt", ""},
		{"scope 2", func(m *machine) { m.file("sys/kernel/yama/ptrace_scope", "2\n") }, "ptrace scope", true, false, "only root", "root"},
		{"scope 3, even root", func(m *machine) { m.file("sys/kernel/yama/ptrace_scope", "3\n"); root(m) }, "ptrace scope", true, false, "nobody", "restart"},
		{"one thread traced", func(m *machine) {
			m.file("200/task/200/status", text(m.asked))
			other := map[string]string{"TracerPid": "100"}
			m.file("200/task/201/status", text(other))
		}, "tracer", true, false, "thread 201 is traced by process 100 (kprobe)", "process 100"},
		{"no ELF", func(m *machine) { m.file("exe", "#!/bin/sh\n"); m.link("200/exe", filepath.Join(m.root, "exe")) }, "program", false, false, "can't be read", ""},
		{"strict seccomp", func(m *machine) { m.asked["Seccomp"] = "1" }, "seccomp", true, false, "strict", "as root"},
		{"seccomp filters", func(m *machine) { m.asked["Seccomp"] = "2"; m.asked["Seccomp_filters"] = "3" }, "seccomp", true, false, "3 filters", "as root"},
		{"seccomp before 5.9", func(m *machine) { m.asked["Seccomp"] = "2" }, "seccomp", true, false, "filters: its rules", "as root"},
		{"strict seccomp, root", func(m *machine) { root(m); m.asked["Seccomp"] = "1" }, "seccomp", false, true, "strict mode, which kprobe suspends", ""},
		{"a seccomp filter, root", func(m *machine) { root(m); m.asked["Seccomp"] = "2"; m.asked["Seccomp_filters"] = "1" }, "seccomp", false, true, "1 filter, which", ""},
		{"seccomp filters, root with a filter", func(m *machine) {
			root(m)
			m.asker["Seccomp"], m.asker["Seccomp_filters"] = "2", "1"
			m.asked["Seccomp"], m.asked["Seccomp_filters"] = "2", "2"
		}, "seccomp", true, false, "2 filters", "outside"},
		{"a seccomp filter, root of a container", func(m *machine) {
			root(m)
			m.link("100/ns/user", "user:[7]")
			m.asked["Seccomp"], m.asked["Seccomp_filters"] = "2", "1"
		}, "seccomp", true, false, "1 filter", "outside"},
		{"a container's seccomp filter", func(m *machine) {
			m.asker["Seccomp"], m.asker["Seccomp_filters"] = "2", "1"
			m.asked["Seccomp"], m.asked["Seccomp_filters"] = "2", "1"
			m.file("1/status", "PPid:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n")
		}, "seccomp", false, false, "kprobe is under as well", "outside"},
		{"as many seccomp filters of its own", func(m *machine) {
			m.asker["Seccomp"], m.asker["Seccomp_filters"] = "2", "1"
			m.asked["Seccomp"], m.asked["Seccomp_filters"] = "2", "1"
			m.file("1/status", "PPid:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n")
		}, "seccomp", true, false, "1 filter: its rules", "as root"},
		{"a seccomp filter of a container and one of its own", func(m *machine) {
			m.asker["Seccomp"], m.asker["Seccomp_filters"] = "2", "2"
			m.asked["Seccomp"], m.asked["Seccomp_filters"] = "2", "2"
			m.file("1/status", "PPid:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n")
		}, "seccomp", true, false, "2 filters: its rules", "as root"},
		{"a seccomp filter of one thread", func(m *machine) {
			m.file("200/task/200/status", text(m.asked))
			m.asked["Seccomp"], m.asked["Seccomp_filters"] = "2", "1"
			m.file("200/task/201/status", text(m.asked))
			m.asked["Seccomp"], m.asked["Seccomp_filters"] = "0", "0"
		}, "seccomp", true, false, "in 1 of 2 threads: 1 filter", "as root"},
		{"a program that was replaced", func(m *machine) {
			exe := filepath.Join(m.root, "server (deleted)")
			if err := os.Symlink("/proc/self/exe", exe); err != nil {
				m.t.Fatal(err)
			}
			m.link("200/exe", exe)
		}, "program", false, false, "server, x86-64, which was deleted or replaced", "new file"},
		{"stopped", func(m *machine) { m.asked["State"] = "T (stopped)" }, "state", false, false, "stopped", "CONT"},
		{"in the kernel", func(m *machine) { m.asked["State"] = "D (disk sleep)" }, "state", false, false, "waits in the kernel", ""},
		{"threads", func(m *machine) { m.asked["Threads"] = "17" }, "threads", false, true, "17 threads", ""},
		{"a container", func(m *machine) { m.link("200/ns/pid", "pid:[2]") }, "namespaces", false, true, "own pid namespace", ""},
		{"shadow stack", func(m *machine) { m.asked["x86_Thread_features"] = "shstk wrss" }, "shadow stack", false, false, "in use", "exits"},
		{"a kprobe was killed", func(m *machine) {
			m.file("200/maps", "7f00-7f01 rw-s 00000000 00:01 44588 /memfd:kprobe (deleted)\n")
		}, "leftovers", false, false, "killed", "takes them out"},
		{"Go", func(*machine) {}, "Go", false, false, "registers", "exits"},
		{"Java", func(m *machine) { m.file("200/maps", "7f00-7f01 r-xp 0 0:0 1 /usr/lib/jvm/lib/server/libjvm.so\n") }, "Java", false, false, "no symbols", "libjvm"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			tt.set(m)
			facts := m.check()
			f := find(t, facts, tt.fact)
			if f.Blocks != tt.blocks || f.OK != tt.ok || !strings.Contains(f.Text, tt.text) || !strings.Contains(f.Remedy, tt.remedy) {
				t.Errorf("%+v", f)
			}
			if Blocked(facts) != tt.blocks {
				t.Errorf("Blocked = %v, want %v: %+v", !tt.blocks, tt.blocks, facts)
			}
		})
	}
}

func TestForeignProgram(t *testing.T) {
	m := newMachine(t)
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	exe[18] = 183 // e_machine: EM_AARCH64
	m.file("exe", string(exe))
	m.link("200/exe", filepath.Join(m.root, "exe"))
	if f := find(t, m.check(), "program"); !f.Blocks || !strings.HasSuffix(f.Text, "/exe is not x86-64 code (EM_AARCH64)") {
		t.Errorf("%+v", f)
	}
}

func TestItself(t *testing.T) {
	if facts := Live().Check(os.Getpid()); !Blocked(facts) || !strings.Contains(facts[0].Text, "itself") {
		t.Errorf("%+v", facts)
	}
}

func TestNoSuchProcess(t *testing.T) {
	m := newMachine(t)
	m.check()
	facts := Proc{Root: m.root, Self: 100}.Check(300)
	if len(facts) != 1 || !facts[0].Blocks || !strings.Contains(facts[0].Text, "no process 300") {
		t.Errorf("%+v", facts)
	}
}

func TestLiveProcess(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	facts := Live().Check(c.Process.Pid)
	if Blocked(facts) {
		t.Errorf("a child can't be probed: %+v", facts)
	}
	if f := find(t, facts, "program"); !f.OK || !strings.Contains(f.Text, "x86-64") {
		t.Errorf("%+v", f)
	}
}

// TestHits: which way the hits of a process will go is said, and why.
func TestHits(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	for set, want := range map[string]string{
		"KPROBE=":                             "taken in restartable sequences",
		"GLIBC_TUNABLES=glibc.pthread.rseq=0": "by locked instructions: its C library registers no rseq areas",
	} {
		c := exec.Command(prog, "work", "1")
		c.Env = append(os.Environ(), set)
		_, out := fixture.Start(t, c)
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // ready
			t.Fatal(err)
		}
		if f := find(t, Live().Check(c.Process.Pid), "hits"); !f.OK || !strings.Contains(f.Text, want) {
			t.Errorf("%s: %+v", set, f)
		}
	}
}

// TestPolicy says that the kernel has the last word: it is asked whether the
// process may be traced, whatever the rules make of it.
func TestPolicy(t *testing.T) {
	if f := find(t, Live().Check(os.Getpid()), "process"); !f.Blocks || !strings.Contains(f.Text, "kprobe itself") {
		t.Errorf("itself: %+v", f)
	}
	supervisor := Proc{Root: "/proc", Self: os.Getpid(), Supervisor: os.Getppid()}
	if f := find(t, supervisor.Check(os.Getppid()), "process"); !f.Blocks || !strings.Contains(f.Text, "kprobe itself") {
		t.Errorf("the supervisor: %+v", f)
	}
	m := newMachine(t)
	m.file("200/mem", "")
	if err := os.Chmod(filepath.Join(m.root, "200/mem"), 0); err != nil {
		t.Fatal(err)
	}
	m.check()
	for dir := m.root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// No file refuses root: for this thread, files are another user's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	was, err := unix.SetfsuidRetUid(65534)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsuid(was) }()
	for _, asker := range []string{"0000000000000000", "000001ffffffffff"} {
		m.asker["CapEff"] = asker
		f := permission(access.Look(m.root, 100, 200))
		if !f.Blocks || !strings.Contains(f.Text, "policy") || f.Remedy == "" {
			t.Errorf("%s: %+v", asker, f)
		}
	}
}
