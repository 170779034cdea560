package probe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/area"
)

// ownersSink counts hits by process.
type ownersSink struct {
	mu   sync.Mutex
	hits map[int]int
	tids map[int]int // processes by thread
}

func (o *ownersSink) Hit(h *Hit) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hits == nil {
		o.hits, o.tids = map[int]int{}, map[int]int{}
	}
	o.hits[h.PID]++
	o.tids[h.TID] = h.PID
	return nil
}

func (o *ownersSink) of(pid int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hits[pid]
}

// forksSubject is a program that forks, let go of and followed.
type forksSubject struct {
	*subject
	l     *live
	sink  *ownersSink
	calls uint64
	kids  [2]int
}

func startForks(t *testing.T, many int, defs ...string) *forksSubject {
	t.Helper()
	f := &forksSubject{subject: startSubject(t, fixture.Build(t, "let_go_forks.c", "-O1", "-pthread"), fmt.Sprint(many)), sink: &ownersSink{}}
	f.l = engageInto(t, f.pid(), Options{LetGo: true, Follow: true}, f.sink, defs...)
	f.l.untraced(f.pid())
	f.line()
	if _, err := fmt.Sscanf(f.expect("calls"), "calls %d", &f.calls); err != nil {
		t.Fatal(err)
	}
	f.again()
	return f
}

// again has the children that stay call once more.
func (f *forksSubject) again() {
	f.t.Helper()
	f.line()
	if _, err := fmt.Sscanf(f.expect("again"), "again %d %d", &f.kids[0], &f.kids[1]); err != nil {
		f.t.Fatal(err)
	}
	f.calls += 2
}

// told waits until an event has so many hits.
func (f *forksSubject) told(name string, n uint64) {
	f.t.Helper()
	if !waitUntil(func() bool { return f.l.stat(name).Hits >= n }) || f.l.stat(name).Hits != n {
		f.t.Fatalf("%s has %d hits of %d calls", name, f.l.stat(name).Hits, n)
	}
}

// over ends the program.
func (f *forksSubject) over() {
	f.t.Helper()
	if _, err := io.WriteString(f.in, "end\n"); err != nil {
		f.t.Fatal(err)
	}
	_ = f.cmd.Wait()
	if f.cmd.ProcessState.ExitCode() != 7 {
		f.t.Errorf("the program ended by %v", f.cmd.ProcessState)
	}
}

// TestLetGoForks: what a process forks while nobody traces it records each of its calls,
// its threads', its own children's and those of one whose parent has ended, is never traced,
// and is clean in the end.
func TestLetGoForks(t *testing.T) {
	for _, def := range []string{"p:f/work work x=$arg1:s32", "r:f/work work x=$retval:s32"} {
		t.Run(def[:1], func(t *testing.T) {
			f := startForks(t, full(20, 500), def)
			f.told("work", f.calls)
			for _, kid := range f.kids {
				if area.HasTracer(kid) {
					t.Errorf("child %d is traced", kid)
				}
			}
			if !waitUntil(func() bool { return f.sink.of(f.kids[0]) == 2 && f.sink.of(f.kids[1]) == 2 }) {
				t.Errorf("the children that stay have %d and %d hits of 2 calls", f.sink.of(f.kids[0]), f.sink.of(f.kids[1]))
			}
			f.l.finish(f.pid())
			for _, kid := range f.kids {
				checkClean(t, kid)
			}
			if got := f.sink.of(f.pid()); got != 0 {
				t.Errorf("%d hits are the parent's, which made no call", got)
			}
			f.over()
		})
	}
}

// TestLetGoForksChange: probes that come and go are those of forked children, too.
func TestLetGoForksChange(t *testing.T) {
	f := startForks(t, 2, "p:f/work work")
	f.told("work", f.calls)
	link, err := f.l.s.Add(t.Context(), parseDefs(t, "r:f/more work r=$retval"))
	if err != nil {
		t.Fatal(err)
	}
	f.again()
	f.told("work", f.calls)
	f.told("more", 2)
	if err := link.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.again()
	f.told("work", f.calls)
	f.l.untraced(f.pid())
	for _, kid := range f.kids {
		if !area.HasTracer(kid) {
			t.Errorf("child %d, whose parent was changed, isn't traced", kid)
		}
	}
	f.again()
	f.told("work", f.calls)
	f.l.finish(f.pid())
	for _, kid := range f.kids {
		checkClean(t, kid)
	}
	f.over()
}

// TestLetGoForksOutlive: children go on recording when their parent has ended, and the run
// ends with them.
func TestLetGoForksOutlive(t *testing.T) {
	f := startForks(t, 1, "p:f/work work")
	f.told("work", f.calls)
	orphan := f.kids[1] // the other one ends with its parent
	if err := f.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = f.cmd.Wait()
	select {
	case <-f.l.done:
	case <-time.After(patient):
		t.Fatalf("the run goes on; %s", threadStates(orphan))
	}
	if f.l.err != nil || f.l.sum.Reason != EndTarget {
		t.Errorf("%v, %v", f.l.sum.Reason, f.l.err)
	}
}

// TestLetGoForksPID: who looks at the number of the process stays traced.
func TestLetGoForksPID(t *testing.T) {
	s := startSubject(t, fixture.Build(t, "left_children.c", "-O1"))
	var mu sync.Mutex
	var said []string
	o := Options{LetGo: true, Follow: true, Log: slog.New(logOf{slog.LevelInfo, func(msg string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, msg)
	}})}
	ses, err := Attach(t.Context(), []int{s.pid()}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer ses.Close(context.Background())
	if err := ses.Arm(t.Context(), parseDefs(t, "p:c/work work p=$pid")); err != nil {
		t.Fatal(err)
	}
	l := collecting(t, ses)
	l.begin(l.sink)
	why := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(said, func(m string) bool {
			return strings.Contains(m, "stays traced: work at work: it looks at the number of its process")
		})
	}
	if !waitUntil(why) {
		t.Fatalf("it isn't said why it stays traced: %q", said)
	}
	var kid int
	s.line()
	if _, err := fmt.Sscanf(s.expect("child"), "child %d", &kid); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("work p=%d", kid)
	if !waitUntil(func() bool { return slices.Contains(l.sink.all(), want) }) {
		t.Errorf("no hit %q among %q", want, l.sink.all())
	}
	l.finish(s.pid())
	s.end()
}

// TestLetGoForksKilled kills kprobe while it has let go of a program and of what that has
// forked: all are clean after recovery, also one whose parent has ended, and if the program
// itself is gone.
func TestLetGoForksKilled(t *testing.T) {
	bin := buildKprobe(t)
	t.Setenv("KPROBE_EVENTS", filepath.Join(t.TempDir(), "events"))
	for i := range full(6, 60) {
		f := &forksSubject{subject: startSubject(t, fixture.Build(t, "let_go_forks.c", "-O1", "-pthread"), "3")}
		pid := strconv.Itoa(f.pid())
		c := startKprobe(t, bin, "trace", "-q", "-f", "--let-go", "-o", filepath.Join(t.TempDir(), "out"), "-p", pid, "p:f/work work", "r:f/more work")
		if !waitUntil(func() bool { return isLetGo(f.pid()) || c.ended() }) || c.ended() {
			t.Fatalf("round %d: it is never let go of: %s", i, c.stderr.String())
		}
		f.line()
		f.expect("calls")
		f.again()
		alone := i%2 == 1
		if i%3 == 2 { // in the midst of a change
			go exec.Command(bin, "add", "-p", pid, "p:f/third work").Run()
			time.Sleep(time.Duration(i*11%40) * time.Millisecond)
		}
		c.kill(killBoth)
		<-c.done
		if alone {
			if err := f.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = f.cmd.Wait()
		}
		left := f.kids[:]
		if alone {
			left = left[1:] // the other one ends with its parent
		}
		var err error
		if !waitUntil(func() bool { _, err = Recover(t.Context(), []int{f.pid()}); return err == nil }) {
			t.Fatalf("round %d: %v", i, err)
		}
		for _, kid := range left {
			checkLeft(t, kid, true)
		}
		if !alone {
			checkLeft(t, f.pid(), true)
			f.again()
			f.over()
		} else if err := syscall.Kill(left[0], syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
}
