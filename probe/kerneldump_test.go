package probe

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/area"
	"kprobe/probe/flight"
)

const corePattern = "/proc/sys/kernel/core_pattern"

// kernelDumps returns what finds the core dump that the kernel has written for a process which ran in a folder. Where
// the kernel gives dumps to a program, it has it write files for the test's time, as root. It returns nil if that can't
// be: in a container, whose user doesn't decide what the kernel does.
func kernelDumps(t *testing.T) func(dir string, pid int) string {
	t.Helper()
	if find := dumpsFound(t); find != nil {
		return find
	}
	old, err := os.ReadFile(corePattern)
	if err != nil {
		t.Fatal(err)
	}
	// The child writes the old pattern back, even if the test is killed.
	back := exec.Command("sh", "-c", `trap "" HUP INT TERM; cat; printf %s "$0" >`+corePattern, strings.TrimSpace(string(old)))
	back.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := back.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(corePattern, old, 0); err != nil {
		return nil // nothing was changed
	}
	if err := back.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		err := back.Wait()
		if now, rerr := os.ReadFile(corePattern); string(now) != string(old) {
			t.Errorf("core_pattern is %q, and was %q: %v, %v", now, old, err, rerr)
		}
	})
	if err := os.WriteFile(corePattern, []byte("core"), 0); err != nil {
		t.Fatal(err)
	}
	return dumpsFound(t)
}

// dumpsFound returns what finds core dumps by the kernel's pattern as it is, if that finds the dump of a process on trial.
func dumpsFound(t *testing.T) func(dir string, pid int) string {
	t.Helper()
	b, err := os.ReadFile(corePattern)
	pattern := strings.TrimSpace(string(b))
	if err != nil || strings.HasPrefix(pattern, "|") || strings.HasPrefix(pattern, "@") {
		return nil
	}
	find := func(dir string, pid int) string {
		names, err := filepath.Glob(dumpNames(pattern, dir, pid))
		if err != nil || len(names) != 1 {
			return ""
		}
		t.Cleanup(func() { os.Remove(names[0]) })
		return names[0]
	}
	trial := exec.Command("sh", "-c", "ulimit -c unlimited && kill -SEGV $$")
	trial.Dir = t.TempDir()
	_ = trial.Run()
	if find(trial.Dir, trial.Process.Pid) == "" {
		return nil
	}
	return find
}

// dumpNames makes a pattern of the core dump's name from the kernel's (core(5)).
func dumpNames(pattern, dir string, pid int) string {
	var name strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c != '%' || i+1 == len(pattern):
			name.WriteByte(c)
		case pattern[i+1] == 'p':
			name.WriteString(strconv.Itoa(pid))
			i++
		default:
			name.WriteByte('*')
			i++
		}
	}
	if filepath.IsAbs(pattern) {
		return name.String() + "*" // core_uses_pid
	}
	return filepath.Join(dir, name.String()) + "*"
}

// dumper has left_dies leave core dumps: written by the kernel, or, where that writes no files, by gdb when the signal
// arrives.
type dumper struct {
	find func(dir string, pid int) string // nil: by gdb
	gdb  string
}

func newDumper(t *testing.T) *dumper {
	t.Helper()
	if find := kernelDumps(t); find != nil {
		return &dumper{find: find}
	}
	t.Logf("the kernel writes no core dumps here (%s): gdb writes them", corePattern)
	return &dumper{gdb: fixture.NeedTool(t, "gdb")}
}

// start starts left_dies, which may leave a dump of any size.
func (d *dumper) start(t *testing.T, how, filter string) (s *recorderSubject, dir string) {
	t.Helper()
	dir, counts := t.TempDir(), filepath.Join(t.TempDir(), "counts")
	prog := fixture.Build(t, "left_dies.c", "-O2", "-pthread")
	s = &recorderSubject{startSubject(t, "/bin/sh", "-c", `cd "$0" && { ulimit -c unlimited || :; } 2>/dev/null && exec "$@"`, dir, prog, how, counts), 2, counts}
	if err := os.WriteFile(procfs.Image(s.pid()).Path("coredump_filter"), []byte(filter), 0); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// die lets it die and returns the dump's name.
func (d *dumper) die(t *testing.T, s *recorderSubject, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "core.gdb")
	var gdb *exec.Cmd
	if d.find == nil {
		gdb = exec.Command(d.gdb, "-nx", "-batch", "-p", strconv.Itoa(s.pid()), "-ex", "continue", "-ex", "generate-core-file "+name, "-ex", "kill")
		out := &strings.Builder{}
		gdb.Stdout, gdb.Stderr = out, out
		if err := gdb.Start(); err != nil {
			t.Fatal(err)
		}
		if !waitUntil(func() bool { return area.HasTracer(s.pid()) }) {
			t.Fatal("gdb doesn't attach")
		}
		defer func() {
			if t.Failed() {
				t.Log(out)
			}
		}()
	}
	s.line()
	if gdb != nil {
		if err := gdb.Wait(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait()
		return name
	}
	_ = s.cmd.Wait()
	if status := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.CoreDump() {
		t.Fatalf("it left no dump: %v", s.cmd.ProcessState)
	}
	if name = d.find(dir, s.pid()); name == "" {
		t.Fatal("its dump isn't found")
	}
	return name
}

// TestKernelDumps has a program of threads, in which two commands have left probes, die with a core dump: by a fault, by one
// of an instruction under a probe's jump, by abort and by a quit. The last hits in the dump are the last calls that each
// thread counted itself, or those that it was about to make. What the dump doesn't have is said, with where it is or how
// the next dump has it.
func TestKernelDumps(t *testing.T) {
	d := newDumper(t)
	for _, tt := range []struct {
		name, how string
		filter    string // of what is dumped
		keep      bool   // the hits of the first command go to a file
		gone      bool   // which is removed in the end
		has       string // events that the dump has hits of
		lacks     string // what is said
	}{
		{name: "fault", how: "fault", filter: "0x33", has: "first second"},
		{name: "covered", how: "covered", filter: "0x33", has: "first second"},
		{name: "abort", how: "abort", filter: "0x7f", has: "first second"},
		{name: "quit", how: "quit", filter: "0x2", has: "first second"},
		{name: "kept", how: "fault", filter: "0x33", keep: true, has: "second", lacks: "what --keep puts into a file: kprobe snapshot /dev/shm/"},
		{name: "kept and dumped", how: "abort", filter: "0x3b", keep: true, has: "first second"},
		{name: "only kept dumped", how: "covered", filter: "0x39", keep: true, has: "first", lacks: "bit 1 of /proc/PID/coredump_filter"},
		{name: "nothing shared", how: "fault", filter: "0x31", lacks: "bit 1 of /proc/PID/coredump_filter"},
		{name: "nothing shared, kept", how: "quit", filter: "0x31", keep: true, lacks: "ring has some (--keep); bit 1 of /proc/PID/coredump_filter"},
		{name: "kept and gone", how: "fault", filter: "0x31", keep: true, gone: true, lacks: "it isn't here: the process had mapped /dev/shm/"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, dir := d.start(t, tt.how, tt.filter)
			o := Options{Detach: true, RingSize: MinRing}
			leaveIn(t, s.pid(), o, "p:rec/second second n=$arg2:u64 check=$arg3:u64 thread=$arg4:u64")
			if tt.keep {
				o.Keep = shmFile(t)
			}
			s.left(o, "p:rec/first first n=$arg1:u64 check=$arg2:u64 thread=$arg3:u64")
			core := d.die(t, s, dir)
			if tt.gone {
				if err := os.Remove(o.Keep); err != nil {
					t.Fatal(err)
				}
			}
			s.checkDump(core, strings.Fields(tt.has), tt.lacks)
			if tt.how == "quit" && !tt.keep {
				s.cutDump(core)
			}
		})
	}
}

// cutDump cuts a dump of two commands' hits off behind the first and then before it.
func (s *recorderSubject) cutDump(core string) {
	t := s.t
	t.Helper()
	f, err := os.Open(core)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	files, err := flight.InCore(f, info.Size())
	if err != nil || len(files) != 2 {
		t.Fatal(len(files), err)
	}
	var at [2]int64
	var first string
	for i, file := range files {
		_, at[i], _ = file.Outer()
		r, err := flight.New(io.NewSectionReader(file, 0, file.Size()), flight.Options{Dead: true})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 || at[0] > at[1] {
			first = r.Book.Probes[0].Event
		}
	}
	for i, has := range [][]string{{first}, nil} {
		end := max(at[0], at[1])
		if i == 1 {
			end = min(at[0], at[1])
		}
		if err := os.Truncate(core, end+4096); err != nil {
			t.Fatal(err)
		}
		s.checkDump(core, has, "the dump was cut off")
	}
}

// checkDump checks the hits of a program that has died, and what is said of those that its dump doesn't have.
func (s *recorderSubject) checkDump(core string, has []string, lacks string) {
	t := s.t
	t.Helper()
	r, missing, err := OpenBlackBox(core)
	if len(has) == 0 {
		if err == nil || !strings.Contains(err.Error(), lacks) {
			t.Errorf("%v, want %q", err, lacks)
		}
		return
	}
	if err != nil || len(missing) > 0 {
		t.Fatal(err, missing)
	}
	defer r.Close()
	begun, returned := s.counted()
	last := map[string]*[64]uint64{}
	var vals []fetch.Value
	given, time := uint64(0), uint64(0)
	err = r.Snapshot(t.Context(), 0, sinkOf(func(h *Hit) error {
		var err error
		if vals, err = h.Program.Decode(h.Data, vals); err != nil {
			return err
		}
		of := last[h.Event.Name]
		if of == nil {
			of = &[64]uint64{}
			last[h.Event.Name] = of
		}
		n, check, thread := vals[0].Int, vals[1].Int, vals[2].Int
		if n*factor != check || thread >= 64 || n <= of[thread] || h.Time < time {
			return fmt.Errorf("%s(%d, %#x, %d) behind call %d at %d", h.Event.Name, n, check, thread, of[thread], time)
		}
		if name, off, _, _, _ := h.Space.NameAt(h.IP, true); name != h.Event.Name || off != 0 {
			return fmt.Errorf("%#x is %s+%#x", uint64(h.IP), name, off)
		}
		of[thread], time = n, h.Time
		given++
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	held, err := r.Held()
	if err != nil || !held.Dump {
		t.Fatalf("%+v: %v", held, err)
	}
	calls := uint64(0)
	for _, name := range has {
		of := last[name]
		if of == nil {
			t.Errorf("no hits of %s", name)
			continue
		}
		for th := range s.threads {
			calls += of[th]
			if of[th] > begun[th] || of[th] < returned[th] {
				t.Errorf("%s of thread %d: the last hit is %d, of %d calls that returned and %d that were begun", name, th, of[th], returned[th], begun[th])
			}
		}
	}
	if len(last) != len(has) || given+held.Before != calls {
		t.Errorf("%d hits of %d events, and %d before; want %d of %q", given, len(last), held.Before, calls, has)
	}
	if said := strings.Join(held.Lacks(), "\n"); lacks == "" && said != "" || !strings.Contains(said, lacks) {
		t.Errorf("it says %q, want %q", said, lacks)
	}
}

// TestTracedNotDumped: the memory file of a traced process is left out of its core dumps, where nobody would read it: the
// kernel would take memory for all of it.
func TestTracedNotDumped(t *testing.T) {
	s := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	a, err := Attach(t.Context(), []int{s.pid()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close(t.Context())
	if err := a.Arm(t.Context(), parseDefs(t, "p hit")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(procfs.Image(s.pid()).Path("smaps"))
	if err != nil {
		t.Fatal(err)
	}
	_, of, ok := strings.Cut(string(b), "/memfd:kprobe (deleted)\n")
	_, flags, _ := strings.Cut(of, "\nVmFlags: ")
	if flags, _, _ = strings.Cut(flags, "\n"); !ok || !slices.Contains(strings.Fields(flags), "dd") {
		t.Errorf("the memory file is dumped: %q", flags)
	}
}
