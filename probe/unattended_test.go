package probe

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/area"
	"kprobe/probe/engine"
	"kprobe/probe/tracee"
)

// untraced waits until no thread of a process is traced, while the session runs.
func (l *live) untraced(pid int) {
	l.t.Helper()
	over := func() bool {
		select {
		case <-l.done:
			return true
		default:
			return false
		}
	}
	if !waitUntil(func() bool { return !area.HasTracer(pid) || over() }) || over() {
		why := ""
		if x, err := findLive(pid, true); err == nil {
			_, why = x.LetsGo()
			x.Close()
		}
		l.t.Fatalf("process %d stays traced (%s); the run: %v", pid, why, l.err)
	}
}

// isLetGo reports whether a kprobe has probes in a process that nobody traces.
func isLetGo(pid int) bool {
	l, err := findLive(pid, true)
	if err != nil {
		return false
	}
	l.Close()
	return !area.HasTracer(pid)
}

// wholeSink checks that hits of recorder_calls are whole, and none is there twice.
type wholeSink struct {
	vals []fetch.Value
	n    uint64
	seen [64][]uint64 // for each thread a bit for each of its hits
}

func (w *wholeSink) Hit(h *Hit) error {
	if h.Event.Name != "hit" {
		return nil
	}
	var err error
	if w.vals, err = h.Program.Decode(h.Data, w.vals); err != nil {
		return err
	}
	n, check, thread := w.vals[0].Int, w.vals[1].Int, w.vals[2].Int
	if n*factor != check || thread >= 64 || n == 0 || n > 1<<36 {
		return fmt.Errorf("torn or invented: hit(%d, %#x, %d)", n, check, thread)
	}
	seen, word, bit := &w.seen[thread], int(n/64), uint64(1)<<(n%64)
	if more := word + 1 - len(*seen); more > 0 {
		*seen = append(*seen, make([]uint64, more)...)
	}
	if (*seen)[word]&bit != 0 {
		return fmt.Errorf("twice: hit(%d, %#x, %d)", n, check, thread)
	}
	(*seen)[word] |= bit
	w.n++
	return nil
}

// TestHazardP58 lets go of a program whose threads get signals all the time, whose handlers
// hit probes too, and leave some calls by siglongjmp, and which forks and spawns: hits are
// whole, and as many as there were calls, while probes come and go between. In the end its
// children are clean, too.
func TestHazardP58(t *testing.T) {
	for _, how := range []string{"paced", "storm", "jumps"} {
		t.Run(how, func(t *testing.T) {
			s := startRecorded(t, 3, how)
			sink := &wholeSink{}
			l := engageInto(t, s.pid(), Options{LetGo: true}, sink, recordedHit, "p:rec/hit2 hit2 n=$arg1:u64")
			l.untraced(s.pid())
			s.line()
			for i := range full(2, 100) {
				link, err := l.s.Add(t.Context(), []*fetch.Def{parsed(t, fmt.Sprintf("p:rec/more%d hit c=$comm", i)), parsed(t, fmt.Sprintf("r:rec/back%d hit2", i))})
				if errors.Is(err, engine.ErrInterrupted) {
					continue // the storm's handlers were always in a detour
				}
				if err != nil {
					t.Fatal(err)
				}
				l.untraced(s.pid())
				time.Sleep(20 * time.Millisecond)
				if err := link.Close(t.Context()); err != nil && !errors.Is(err, engine.ErrInterrupted) {
					t.Fatal(err)
				}
				l.untraced(s.pid())
			}
			var calls, jumps uint64
			if _, err := fmt.Sscanf(s.work(), "done %d %d", &calls, &jumps); err != nil {
				t.Fatal(err)
			}
			l.finish(s.pid())
			st := l.sum.Stats[0]
			if st.Hits > calls || st.Hits < calls-jumps || st.Hits == 0 {
				t.Errorf("%d hits of %d calls, of which %d were left: %+v", st.Hits, calls, jumps, st.Counts())
			}
			t.Logf("%d calls, %d left, %d whole; %+v", calls, jumps, sink.n, st.Counts())
			s.end()
		})
	}
}

// TestLetGoHeld: while another tracer has the process probes can't be changed, and that is
// said; they are taken out once it lets go.
func TestLetGoHeld(t *testing.T) {
	s := startRecorded(t, 2, "paced")
	l := engageInto(t, s.pid(), Options{LetGo: true}, &recordedSink{t: t}, recordedHit)
	l.untraced(s.pid())
	s.line()
	if !waitUntil(func() bool { return l.s.Stats()[0].Hits > 0 }) {
		t.Fatal("no hit was taken")
	}
	other, err := tracee.New()
	if err != nil {
		t.Fatal(err)
	}
	p, err := other.Attach(t.Context(), s.pid())
	if err != nil {
		t.Fatal(err)
	}
	var traced *TracedError
	if err := l.s.Arm(t.Context(), parseDefs(t, "p:rec/two hit2")); !errors.As(err, &traced) {
		t.Errorf("another tracer has it: %v", err)
	}
	go func() {
		time.Sleep(100 * time.Millisecond)
		if err := errors.Join(p.Detach(context.Background(), nil), other.Close()); err != nil {
			t.Error(err)
		}
	}()
	l.finish(s.pid())
	s.work()
	s.end()
}

// TestLetGoIsSomebodys: a process that a session has let go of is that session's: another
// is refused, recovery leaves it alone, a bystander sees it.
func TestLetGoIsSomebodys(t *testing.T) {
	bin := buildKprobe(t)
	t.Setenv("KPROBE_EVENTS", filepath.Join(t.TempDir(), "events"))
	s := startRecorded(t, 2, "paced")
	l := engageInto(t, s.pid(), Options{LetGo: true}, &recordedSink{t: t}, recordedHit)
	l.untraced(s.pid())
	s.line()
	pid := strconv.Itoa(s.pid())
	if out, err := exec.Command(bin, "trace", "-q", "-t", "100ms", "-p", pid, "hit2").CombinedOutput(); err == nil || !strings.Contains(string(out), "is traced already by process") {
		t.Errorf("a second session: %v, %s", err, out)
	}
	if out, err := exec.Command(bin, "add", "-p", pid, "p:rec/asked hit2").CombinedOutput(); err != nil {
		t.Errorf("to add is refused: %v, %s", err, out)
	}
	if st := openedLive(t, s.pid()).Stats(); len(st) != 2 || st[1].Event.Name != "asked" {
		t.Errorf("a bystander sees %v", st)
	}
	l.untraced(s.pid())
	if out, err := exec.Command(bin, "del", "-p", pid, "rec/asked").CombinedOutput(); err != nil {
		t.Errorf("to delete is refused: %v, %s", err, out)
	}
	l.untraced(s.pid())
	l.finish(s.pid())
	s.work()
	s.end()
}

// TestLetGoKilled kills kprobe at any moment while it has let go of a program that gets
// signals and forks, or is about to: whichever of supervisor and tracer is left, or the next
// kprobe, takes everything out.
func TestLetGoKilled(t *testing.T) {
	bin := buildKprobe(t)
	for _, how := range []string{"paced", "storm"} {
		t.Run(how, func(t *testing.T) {
			s := startRecorded(t, 2, how)
			s.line()
			for i := range full(8, 300) {
				c := startKprobe(t, bin, "trace", "-q", "--let-go", "-o", filepath.Join(t.TempDir(), "out"), "-p", strconv.Itoa(s.pid()), recordedHit, "r:rec/back hit2")
				if i%2 == 0 && !waitUntil(func() bool { return isLetGo(s.pid()) || c.ended() }) || c.ended() {
					t.Fatalf("round %d: it is never let go of: %s", i, c.stderr.String())
				}
				time.Sleep(time.Duration(i*7%40) * time.Millisecond)
				c.kill(i / 2 % killKinds)
				<-c.done // the supervisor's end and the tracer's: both hold its standard error
				if !waitUntil(func() bool { return !area.HasTracer(s.pid()) }) {
					t.Fatalf("round %d: it is still traced: %s", i, c.stderr.String())
				}
				if _, err := Recover(t.Context(), []int{s.pid()}); err != nil {
					var traced *TracedError
					if !errors.As(err, &traced) || !waitUntil(func() bool { _, err = Recover(t.Context(), []int{s.pid()}); return err == nil }) {
						t.Fatalf("round %d: %v; the program: %s", i, err, endOf(s.pid()))
					}
				}
				checkLeft(t, s.pid(), true)
				if t.Failed() {
					t.Fatalf("round %d; the program: %s", i, endOf(s.pid()))
				}
			}
			if got := s.work(); !strings.HasPrefix(got, "done ") {
				t.Errorf("the program printed %q", got)
			}
			s.end()
		})
	}
}

// TestLetGoEnds: the end of a program that is let go of ends the run, and is told.
func TestLetGoEnds(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGKILL, unix.SIGSEGV, 0} {
		t.Run(fmt.Sprint(sig), func(t *testing.T) {
			s := startRecorded(t, 2, "paced")
			l := engageInto(t, s.pid(), Options{LetGo: true}, &recordedSink{t: t}, recordedHit)
			l.untraced(s.pid())
			s.line()
			if !waitUntil(func() bool { return l.stat("hit").Hits > 10 }) {
				t.Fatal("no hits")
			}
			if sig == 0 {
				s.work()
				s.end()
			} else if err := syscall.Kill(s.pid(), sig); err != nil {
				t.Fatal(err)
			}
			select {
			case <-l.done:
			case <-time.After(patient):
				t.Fatal("the run goes on")
			}
			if l.err != nil || l.sum.Reason != EndTarget {
				t.Errorf("it ends by %v, %v", l.sum.Reason, l.err)
			}
			if n := len(l.sum.Killed); sig == 0 && n != 0 || n == 1 && l.sum.Killed[0].Signal != sig || n > 1 {
				t.Errorf("killed by %v: %v", sig, l.sum.Killed)
			} else if sig != 0 && n == 0 {
				t.Log("this kernel doesn't tell how others' children end")
			}
			_ = s.cmd.Wait() // it was killed
		})
	}
}

// TestLetGoExec: a program that is executed while nobody traces gets the probes, too.
func TestLetGoExec(t *testing.T) {
	bin := fixture.Build(t, "recorder_calls.c", "-O2", "-pthread")
	dir := t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", `read x; exec "$0" 1 "$1" paced`, bin, filepath.Join(dir, "counts"))
	in, out := fixture.Start(t, cmd)
	pid := cmd.Process.Pid
	l := attach(t, pid, Options{LetGo: true, Pending: func(*fetch.Def) bool { return true }}, "p:x/read libc:read")
	l.untraced(pid)
	fmt.Fprintln(in)
	ready := make([]byte, 64)
	if _, err := out.Read(ready); err != nil {
		t.Fatal(err)
	}
	before := l.stat("read").Hits
	if !waitUntil(func() bool { return isLetGo(pid) }) {
		t.Fatalf("the new program isn't probed: %+v", l.s.Stats())
	}
	fmt.Fprintln(in)
	time.Sleep(20 * time.Millisecond)
	fmt.Fprintln(in)
	if !waitUntil(func() bool { return l.stat("read").Hits > before }) {
		t.Error("the new program has no hits")
	}
	l.finish(pid)
}

// TestLetGoChildren: forked children that were made while nobody traced record nothing, and
// are made clean with their parent.
func TestLetGoChildren(t *testing.T) {
	s := startSubject(t, fixture.Build(t, "left_children.c", "-O1"))
	l := attach(t, s.pid(), Options{LetGo: true}, "p:c/work work")
	l.untraced(s.pid())
	var kid int
	s.line()
	if _, err := fmt.Sscanf(s.expect("child"), "child %d", &kid); err != nil {
		t.Fatal(err)
	}
	if !waitUntil(func() bool { return l.stat("work").Hits >= 1 }) {
		t.Fatal("the parent has no hits")
	}
	l.finish(s.pid())
	if hits := l.sum.Stats[0].Hits; hits != 1 {
		t.Errorf("%d hits of one call: the child's are not to be among them", hits)
	}
	checkClean(t, kid)
	s.end()
}

// letGoWaits is how often it is looked for libraries that probes wait for.
const letGoWaits = 100 * time.Millisecond

// TestLetGoLibraries: while nobody traces, a library that is loaded gets the probes that
// wait for it, and one that is unloaded and loaded again gets them back.
func TestLetGoLibraries(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("waits=%v", waits), func(t *testing.T) {
			_, lib := loaderFixture(t, "cc")
			s := startSubject(t, fixture.Build(t, "left_library.c", "-O1", "-ldl"), lib)
			step := func(want string) {
				t.Helper()
				s.line()
				s.expect(want)
			}
			var l *live
			places := func(n int) {
				t.Helper()
				if !waitUntil(func() bool { return l.stat("work").Places == n }) {
					t.Fatalf("there are not %d places: %+v", n, l.stat("work"))
				}
				l.untraced(s.pid())
			}
			if !waits {
				step("loaded")
			}
			l = attach(t, s.pid(), Options{LetGo: true, Pending: func(*fetch.Def) bool { return true }}, "p:part/work "+lib+":part_work")
			rounds := 2
			if waits {
				rounds = 1
				places(0)
				// Who holds the process meanwhile delays that, and no more.
				other, err := tracee.New()
				if err != nil {
					t.Fatal(err)
				}
				p, err := other.Attach(t.Context(), s.pid())
				if err != nil {
					t.Fatal(err)
				}
				step("loaded")
				time.Sleep(2 * letGoWaits)
				if err := errors.Join(p.Detach(context.Background(), nil), other.Close()); err != nil {
					t.Fatal(err)
				}
			}
			for round := range rounds {
				places(1)
				step("called")
				if hits := l.stat("work").Hits; hits != uint64(round+1) {
					t.Errorf("%d hits of %d calls", hits, round+1)
				}
				step("unloaded")
				places(0)
				step("loaded")
			}
			places(1)
			l.finish(s.pid())
		})
	}
}
