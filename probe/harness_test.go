package probe

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/fallbacks"
	"kprobe/probe/memory"
	"kprobe/symbols"
)

// patient is for how long tests wait for what must happen: only what never does takes
// so long, however busy the machine is.
const patient = 4 * time.Minute

// subject is a running fixture program that prints "ready", works after a
// line on its input, prints "done SUM" and ends after another line.
type subject struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	// ready is the line by which the program has said that it is.
	ready string
}

func startSubject(t *testing.T, path string, args ...string) *subject {
	t.Helper()
	cmd := exec.Command(path, args...)
	in, out := fixture.Start(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("at the end of the test, the program: %s", endOf(cmd.Process.Pid))
		}
	})
	s := &subject{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	s.ready = s.expect("ready")
	return s
}

// startSubjectSaying is startSubject for a program that may print something else at
// first: nil then.
func startSubjectSaying(t *testing.T, path, want, other string, args ...string) *subject {
	t.Helper()
	cmd := exec.Command(path, args...)
	in, out := fixture.Start(t, cmd)
	s := &subject{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	if line := s.expect(""); strings.HasPrefix(line, want) {
		s.ready = line
		return s
	} else if !strings.HasPrefix(line, other) {
		t.Fatalf("the program printed %q, want %q or %q", line, want, other)
	}
	return nil
}

func (s *subject) pid() int { return s.cmd.Process.Pid }

// expect reads a line and returns it; it must start with want.
func (s *subject) expect(want string) string {
	s.t.Helper()
	got := make(chan string, 1)
	go func() {
		line, err := s.out.ReadString('\n')
		if err != nil {
			line = fmt.Sprintf("(%v after %q)", err, line)
		}
		got <- strings.TrimSpace(line)
	}()
	select {
	case line := <-got:
		if !strings.HasPrefix(line, want) {
			s.t.Fatalf("the program printed %q, want %q…", line, want)
		}
		return line
	case <-time.After(patient):
		s.t.Fatalf("the program printed no %q within %v; %s", want, patient, threadStates(s.pid()))
		return ""
	}
}

func (s *subject) line() {
	s.t.Helper()
	if _, err := s.in.Write([]byte("\n")); err != nil {
		s.t.Fatalf("%v; the program has ended: %v", err, s.cmd.Wait())
	}
}

// work has the program do its work and returns what it printed.
func (s *subject) work() string {
	s.t.Helper()
	s.line()
	return s.expect("done")
}

// end lets the program end and checks its status.
func (s *subject) end() {
	s.t.Helper()
	s.line()
	stuck := time.AfterFunc(patient, func() {
		s.t.Errorf("the program had not ended after %v; %s", patient, threadStates(s.pid()))
		s.cmd.Process.Kill()
	})
	err := s.cmd.Wait()
	stuck.Stop()
	if s.cmd.ProcessState.ExitCode() != 7 {
		s.t.Errorf("the program ended with %v, want exit status 7", err)
	}
}

func threadStates(pid int) string {
	b, _ := exec.Command("sh", "-c", fmt.Sprintf("cat /proc/%d/task/*/status | grep -E 'State|Pid:|Tracer|Sig'; cat /proc/%d/task/*/syscall", pid, pid)).CombinedOutput()
	return string(b)
}

// plain is what the program prints when nobody traces it.
func plain(t *testing.T, path string, args ...string) string {
	t.Helper()
	s := startSubject(t, path, args...)
	out := s.work()
	s.end()
	return out
}

// unharmed runs a program with probes and without: it must print the same. It
// gives the session, which has ended.
func unharmed(t *testing.T, prog string, o Options, defs []string, args ...string) *live {
	t.Helper()
	return unharmedBut(t, prog, o, defs, false, args...)
}

// unharmedBut is unharmed of a program that, if late is set, lays an action of its own
// over a fallback handler while it is probed: it has been given the fallback handler's address, whose page stays.
func unharmedBut(t *testing.T, prog string, o Options, defs []string, late bool, args ...string) *live {
	t.Helper()
	want := plain(t, prog, args...)
	sub := startSubject(t, prog, args...)
	l := attach(t, sub.pid(), o, defs...)
	if late {
		l.fallbacks = l.s.engine.Targets[sub.pid()].Area.Fallbacks
	}
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	return l
}

// collector is a Sink that keeps hits as text.
type collector struct {
	mu    sync.Mutex
	lines []string
	tids  map[int]int
	max   int
	vals  []fetch.Value
	also  Sink // gets the hits too
}

func (c *collector) Hit(h *Hit) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.vals, err = h.Program.Decode(h.Data, c.vals); err != nil {
		return err
	}
	b := []byte(h.Event.Name)
	for i, f := range h.Program.Fields() {
		b = append(b, ' ')
		b = append(b, f.Name...)
		b = append(b, '=')
		b = fetch.AppendText(b, f.Type, c.vals[i], h.Space)
	}
	if h.RetIP != 0 {
		name, off, _, _, _ := h.Space.Symbolize(h.RetIP)
		b = fmt.Appendf(b, " (%s+%#x <- %s)", name, off, h.Func)
	}
	c.lines = append(c.lines, string(b))
	if c.also != nil {
		if err := c.also.Hit(h); err != nil {
			return err
		}
	}
	if c.tids == nil {
		c.tids = map[int]int{}
	}
	c.tids[h.TID]++
	if c.max > 0 && len(c.lines) >= c.max {
		return ErrStop
	}
	return nil
}

func (c *collector) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.lines...)
}

// live is a session that runs on a subject.
type live struct {
	t         *testing.T
	s         *Session
	sink      *collector
	stop      context.CancelFunc
	done      chan struct{}
	sum       Summary
	err       error
	fallbacks *fallbacks.Fallbacks // if set, those that finish asks whether they stay
}

func parseDefs(t *testing.T, lines ...string) []*fetch.Def {
	t.Helper()
	var defs []*fetch.Def
	for _, l := range lines {
		d, err := fetch.Parse(l)
		if err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		defs = append(defs, d)
	}
	return defs
}

// attach arms definitions in a process and runs them into the session's
// collector.
func attach(t *testing.T, pid int, o Options, defs ...string) *live {
	t.Helper()
	return engageInto(t, pid, o, nil, defs...)
}

// engageInto arms definitions in a process and runs them into a sink, nil for
// the session's collector.
func engageInto(t *testing.T, pid int, o Options, sink Sink, defs ...string) *live {
	t.Helper()
	o.Log = testLog(t)
	s, err := Attach(context.Background(), []int{pid}, o)
	if err != nil {
		t.Fatalf("%v; the program: %s", err, endOf(pid))
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.Arm(context.Background(), parseDefs(t, defs...)); err != nil {
		t.Fatalf("%v; the program: %s, killed: %v", err, endOf(pid), s.killed)
	}
	l := collecting(t, s)
	if sink == nil {
		sink = l.sink
	}
	l.begin(sink)
	return l
}

func (l *live) run() { l.begin(l.sink) }

// begin runs the session into a sink.
func (l *live) begin(sink Sink) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	go func() {
		defer close(l.done)
		l.sum, l.err = l.s.Run(ctx, sink)
	}()
}

// collecting is a session whose hits a collector will have. It doesn't run yet.
func collecting(t *testing.T, s *Session) *live {
	return &live{t: t, s: s, sink: &collector{}, done: make(chan struct{})}
}

// finish ends the run, takes the probes out and checks that nothing is left
// in the process and that hits are conserved.
func (l *live) finish(pid int) Summary {
	l.t.Helper()
	l.stop()
	<-l.done
	if l.err != nil {
		l.t.Errorf("run: %v", l.err)
	}
	if err := l.s.Close(context.Background()); err != nil {
		l.t.Errorf("close: %v", err)
	}
	if len(l.sum.Killed) > 0 {
		l.t.Errorf("killed: %v", l.sum.Killed)
	}
	checkLeft(l.t, pid, l.fallbacks != nil && l.fallbacks.Stay())
	for _, st := range l.sum.Stats {
		if st.Hits != st.Recorded+st.Filtered+st.Lost+st.Limited {
			l.t.Errorf("%s: %d hits are not %d recorded + %d filtered + %d lost + %d limited", st.Event.Name, st.Hits, st.Recorded, st.Filtered, st.Lost, st.Limited)
		}
	}
	return l.sum
}

func (l *live) stat(name string) Stats {
	for _, st := range l.s.Stats() {
		if st.Event.Name == name {
			return st
		}
	}
	l.t.Fatalf("no event %s", name)
	return Stats{}
}

// checkClean fails if the process still carries anything of kprobe: changed
// text, mappings, a tracer, a stopped thread.
func checkClean(t *testing.T, pid int) {
	t.Helper()
	checkLeft(t, pid, false)
}

// checkLeft is checkClean of a process in which the fallback handlers' page of code may stay, as
// a thread was in it.
func checkLeft(t *testing.T, pid int, fallbacks bool) {
	t.Helper()
	pages := 0
	if fallbacks {
		pages = 1
	}
	checkStaying(t, pid, pages)
}

// checkStaying is checkClean of a process in which so many pages of fallback handlers may stay: one for
// each kprobe whose probes were there at the same time.
func checkStaying(t *testing.T, pid, pages int) {
	t.Helper()
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if strings.Contains(m.Path, "memfd:kprobe") {
			t.Errorf("%v-%v %s is still mapped", m.Start, m.End, m.Path)
		}
		if m.Path == "" && m.Exec && pages > 0 && m.End-m.Start == memory.PageSize {
			pages--
		} else if m.Path == "" && m.Exec {
			t.Errorf("%v-%v: executable memory without a file is still mapped", m.Start, m.End)
		}
		if m.Exec && m.IsFile() {
			compareText(t, pid, m)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(status, []byte("TracerPid:\t0\n")) {
		t.Errorf("the process is still traced")
	}
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		if err == nil && (bytes.Contains(b, []byte("State:\tt")) || bytes.Contains(b, []byte("State:\tT"))) {
			t.Errorf("thread %s is stopped", task.Name())
		}
	}
}

func compareText(t *testing.T, pid int, m symbols.Mapping) {
	t.Helper()
	want, have := twoTexts(t, pid, m)
	for i := range want {
		if want[i] != have[i] {
			t.Errorf("%s: byte %#x of the text is %#x, the file has %#x", m.Path, int(m.Off)+i, have[i], want[i])
			return
		}
	}
}

// twoTexts reads a mapping as its file has it and as it is; nothing where the file
// can't be had. The former may be shorter.
func twoTexts(t *testing.T, pid int, m symbols.Mapping) (want, have []byte) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, uint64(m.Start), uint64(m.End)))
	if err != nil {
		if f, err = os.Open(m.Path); err != nil {
			return nil, nil
		}
	}
	defer f.Close()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	n := int(m.End - m.Start)
	want, have = make([]byte, n), make([]byte, n)
	k, _ := f.ReadAt(want, int64(m.Off))
	if _, err := mem.ReadAt(have, int64(m.Start)); err != nil {
		t.Fatal(err)
	}
	return want[:k], have
}

// calls is the fixture that most tests trace.
func callsFixture(t *testing.T, flags ...string) string {
	t.Helper()
	if len(flags) == 0 {
		flags = []string{"-O2"}
	}
	return fixture.Build(t, "probe_calls.c", flags...)
}

// inspectAll gives all of what Inspect lists.
func inspectAll(space *symbols.Space, p symbols.Place) (list []*Listing, err error) {
	err = Inspect(space, p, func(l *Listing) error {
		list = append(list, l)
		return nil
	})
	return list, err
}

func inspectFile(t *testing.T, path, fn string) []*Listing {
	t.Helper()
	space, err := symbols.OpenFileSpace(path)
	if err != nil {
		t.Fatal(err)
	}
	ls, err := inspectAll(space, symbols.Place{Symbol: fn})
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

func parsed(t *testing.T, text string) *fetch.Def {
	t.Helper()
	return parseDefs(t, text)[0]
}

// readsBases reports whether programs may read fs_base by an instruction here. Where they may not,
// what needs it is a breakpoint.
func readsBases() bool { return procfs.CPUHas("fsgsbase") }
