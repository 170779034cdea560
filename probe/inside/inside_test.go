package inside

import (
	"bufio"
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/results"
)

// patient is for how long tests wait for what must happen.
const patient = 4 * time.Minute

// started runs a fixture program up to the line that it prints when its threads hang.
func started(t *testing.T, prog string) int {
	t.Helper()
	cmd := exec.Command(prog)
	in, out := fixture.Start(t, cmd)
	lines := bufio.NewScanner(out)
	expect := func(want string) {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the program printed %q, want %q", lines.Text(), want)
		}
	}
	expect("ready")
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	expect("done")
	t.Cleanup(func() { _, _ = in.Write([]byte("\n")) })
	return cmd.Process.Pid
}

// looked looks at a process until it is as it must be.
func looked(t *testing.T, pid int, o Options, ready func(*results.Inside) bool) *results.Inside {
	t.Helper()
	for deadline := time.Now().Add(patient); ; time.Sleep(20 * time.Millisecond) {
		p, err := Look(context.Background(), pid, o)
		if err != nil {
			t.Fatal(err)
		}
		if ready(p) {
			return p
		}
		if time.Now().After(deadline) {
			for _, th := range p.Threads {
				t.Logf("%+v", th)
			}
			t.Fatal("the program hasn't come to hang")
		}
	}
}

// in is the thread that is inside of a function; nil is none.
func in(p *results.Inside, name string) *results.InsideThread {
	for _, t := range p.Threads {
		if slices.ContainsFunc(t.Frames, func(f results.InsideFrame) bool { return f.Name == name }) {
			return t
		}
	}
	return nil
}

// path is the functions of a program's own that a thread is inside of, the outermost
// first; what was guessed has a mark.
func path(t *results.InsideThread, module string) string {
	var names []string
	for i := len(t.Frames) - 1; i >= 0; i-- {
		if f := &t.Frames[i]; f.Module == module && !f.Inlined && f.Name != "_start" {
			names = append(names, strings.Repeat("?", map[bool]int{true: 1}[f.Guess])+f.Name)
		}
	}
	return strings.Join(names, " ")
}

// hangs reports whether all threads of inside_hang are where they stay.
func hangs(p *results.Inside) bool {
	a := in(p, "holds")
	w := in(p, "awaits")
	s := in(p, "spins")
	return a != nil && is(a.Call, "read") && w != nil && w.Waits != nil && len(p.Deadlock) == 2 && s != nil && s.Samples > 1
}

// TestHang: threads that hang in known ways, of a program with and without frame
// pointers.
func TestHang(t *testing.T) {
	for _, flags := range [][]string{{"-O1", "-fomit-frame-pointer"}, {"-O0"}, {"-O1", "-static"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			prog := fixture.Build(t, "inside_hang.c", append(flags, "-g", "-pthread")...)
			pid := started(t, prog)
			began := time.Now()
			p := looked(t, pid, Options{}, func(p *results.Inside) bool {
				if p.Unsampled != nil {
					fixture.Missing(t, "%v", p.Unsampled)
				}
				return hangs(p)
			})
			if len(p.Threads) != 6 || p.Threads[0].TID != pid {
				t.Errorf("%d threads, the first %d", len(p.Threads), p.Threads[0].TID)
			}
			h := in(p, "holds")
			module := h.Frames[slices.IndexFunc(h.Frames, func(f results.InsideFrame) bool { return f.Name == "holds" })].Module
			plain := strings.ReplaceAll(path(h, module), "?", "")
			if flags[len(flags)-1] == "-static" {
				plain = plain[strings.Index(plain, "fourth"):]
				plain = plain[:strings.LastIndex(plain, "holds")+len("holds")]
			}
			if plain != "fourth holds holds holds" || h.State != 'S' {
				t.Errorf("in a pipe: %s, state %c", path(h, module), h.State)
			}
			if !strings.Contains(h.Call.Args, "pipe:[") || h.Frames[0].Line == 0 && h.Frames[2].Line == 0 {
				t.Errorf("in %s(%s), %+v", h.Call.Name, h.Call.Args, h.Frames)
			}
			first, second := in(p, "first"), in(p, "second")
			if first == nil || second == nil || !slices.Contains(p.Deadlock, first.TID) || !slices.Contains(p.Deadlock, second.TID) ||
				first.Waits.TID != second.TID || second.Waits.TID != first.TID {
				t.Errorf("a deadlock of %v, %+v, %+v", p.Deadlock, first, second)
			}
			if w := in(p, "awaits"); !strings.HasPrefix(w.Waits.Text, p.Comm[:5]) {
				t.Errorf("waits for %+v", w.Waits)
			}
			if s := in(p, "spins"); s.State != 'R' || s.Frames[0].Name != "spins" || s.Since != 0 {
				t.Errorf("in a loop: %+v", s)
			}
			// It went to sleep after it was told to go on, and before it was looked at.
			time.Sleep(50 * time.Millisecond)
			again, err := Look(context.Background(), pid, Options{})
			if err != nil {
				t.Fatal(err)
			}
			h = in(again, "holds")
			if most := time.Since(began) + time.Minute; h.Since < 20e6 || h.Since > uint64(most) {
				t.Errorf("hasn't run for %d ns", h.Since)
			}
			if st, err := procfs.Process(pid).Status(); err != nil || st.Int("TracerPid") != 0 {
				t.Errorf("it is traced: %v", err)
			}
		})
	}
}

// TestStopped: a process that a signal has stopped.
func TestStopped(t *testing.T) {
	pid := started(t, fixture.Build(t, "inside_hang.c", "-O1", "-pthread"))
	looked(t, pid, Options{}, func(p *results.Inside) bool {
		if p.Unsampled != nil {
			fixture.Missing(t, "%v", p.Unsampled)
		}
		return hangs(p)
	})
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p := looked(t, pid, Options{}, func(p *results.Inside) bool {
		return !slices.ContainsFunc(p.Threads, func(t *results.InsideThread) bool { return t.State != 'T' })
	})
	if s := in(p, "spins"); s == nil || s.Samples != 0 {
		t.Errorf("in a loop: %+v", s)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// TestGoroutines: goroutines that no thread runs.
func TestGoroutines(t *testing.T) {
	pid := started(t, fixture.BuildFile(t, "testdata/inside_go.go"))
	find := func(p *results.Inside, name string) *results.Goroutine {
		for _, g := range p.Goroutines {
			if slices.ContainsFunc(g.Frames, func(f results.InsideFrame) bool { return f.Name == name }) {
				return g
			}
		}
		return nil
	}
	p := looked(t, pid, Options{}, func(p *results.Inside) bool {
		return find(p, "main.takes") != nil && find(p, "main.locks") != nil && find(p, "main.locks").Status == "waits"
	})
	g := find(p, "main.takes")
	var own []string
	for _, f := range slices.Backward(g.Frames) {
		if strings.HasPrefix(f.Name, "main.") {
			own = append(own, f.Name)
		}
	}
	if got := strings.Join(own, " "); got != "main.main.func1 main.takes main.takes main.takes" || g.Reason != "chan receive" || g.Status != "waits" || g.End != 0 {
		t.Errorf("in a channel: %s, %s, %q, end %v", got, g.Status, g.Reason, g.End)
	}
	if g := find(p, "main.locks"); g.Reason != "sync.Mutex.Lock" {
		t.Errorf("in a mutex: %q", g.Reason)
	}
	if p.GoError != nil || p.GoOwn == 0 {
		t.Errorf("%v, %d of the runtime", p.GoError, p.GoOwn)
	}
	bare := started(t, fixture.BuildFile(t, "testdata/inside_go.go", "-ldflags=-w"))
	if p, err := Look(context.Background(), bare, Options{}); err != nil || p.GoError != results.ErrNoGoroutines {
		t.Errorf("without debug information: %v", err)
	}
}

// TestGone: a process that isn't there.
func TestGone(t *testing.T) {
	if _, err := Look(context.Background(), 1<<30, Options{}); err == nil {
		t.Error("a process that isn't there")
	}
}
