//go:build linux && amd64

package tracee

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/symbols"
)

func events(t testing.TB) string { return fixture.Build(t, "tracee_events.c", "-O1", "-no-pie") }

// siteOf gives the address of the nop that tests put an int3 on.
func siteOf(t testing.TB, exe string) symbols.Addr {
	t.Helper()
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if s.Name == "site_int3" {
			return symbols.Addr(s.Value)
		}
	}
	t.Fatal("no symbol site_int3")
	return 0
}

// breakpoint is a Handler for an int3 on the site's nop: skipping it is
// executing it.
type breakpoint struct {
	recorder
	site symbols.Addr
	hits map[int]int // by pid
	step bool
}

func newBreakpoint(t testing.TB, site symbols.Addr) *breakpoint {
	b := &breakpoint{site: site, hits: map[int]int{}}
	b.t = t
	b.brk = func(th *Thread) Verdict {
		r, err := th.Regs()
		if err != nil || symbols.Addr(r.Rip) != site+1 {
			return NotMine
		}
		b.hits[th.Process().PID()]++
		if b.step {
			return Step // over the second nop
		}
		return Resume
	}
	return b
}

func (b *breakpoint) arm(p *Process) error {
	return p.WithStopped(context.Background(), func([]*Thread) error {
		return p.WriteMemory([]byte{0xcc}, b.site)
	})
}

func (b *breakpoint) leave(p *Process) error {
	return p.Detach(context.Background(), func([]*Thread) error {
		return p.WriteMemory([]byte{0x90}, b.site)
	})
}

func TestAttachDuringThreadStorm(t *testing.T) {
	g := spawn(t, events(t), "storm")
	for range 10 {
		tr := newTracer(t)
		p := attach(t, tr, g.pid)
		h := &recorder{t: t}
		stop := running(t, tr, h)
		eventually(t, "threads come and go", func() bool {
			n := 0
			do(t, tr, func() error { n = min(h.threads, h.exits); return nil })
			return n > 0
		})
		do(t, tr, func() error {
			return p.WithStopped(context.Background(), func(ts []*Thread) error {
				tids, _ := tasks(g.pid)
				for _, tid := range tids {
					if s := taskState(g.pid, tid); s != 't' && s != 'Z' && s != 'X' && s != 0 {
						return fmt.Errorf("thread %d is in state %c", tid, s)
					}
				}
				return nil
			})
		})
		do(t, tr, func() error { return p.Detach(context.Background(), nil) })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestForks(t *testing.T) {
	exe := events(t)
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprint("follow=", follow), func(t *testing.T) {
			g := spawn(t, exe, "forks")
			tr := newTracer(t)
			p := attach(t, tr, g.pid)
			b := newBreakpoint(t, siteOf(t, exe))
			kinds := map[ForkKind]int{}
			children, ends, execs := map[int]bool{}, 0, 0
			b.fork = func(_ *Thread, child *Process, kind ForkKind) bool {
				kinds[kind]++
				if kind == Fork && !follow {
					if err := child.WriteMemory([]byte{0x90}, b.site); err != nil {
						t.Error(err)
					}
				}
				if (kind == Fork) == (child.SharesMemory() != nil) {
					t.Errorf("kind %d shares %v", kind, child.SharesMemory())
				}
				children[child.PID()] = true
				return follow
			}
			b.exec = func(*Process) { execs++ }
			b.exited = func(q *Process, st syscall.WaitStatus) {
				if q != p {
					ends++
				}
			}
			stop := running(t, tr, b)
			do(t, tr, func() error { return b.arm(p) })
			g.in.Write([]byte{'\n'})
			if out, status := g.rest(); status != 0 {
				t.Errorf("status %d, %q", status, out)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if kinds[Fork] != 20 || kinds[VFork] != 60 {
				t.Errorf("kinds %v", kinds)
			}
			inChildren := 0
			for pid := range children {
				inChildren += b.hits[pid]
			}
			want, wantEnds, wantExecs := 40, 0, 0
			if follow {
				want, wantEnds, wantExecs = 60, 80, 40
			}
			if b.hits[g.pid] != 20 || inChildren != want || ends != wantEnds || execs != wantExecs {
				t.Errorf("%d hits, %d in children, want %d; %d ends, %d execs", b.hits[g.pid], inChildren, want, ends, execs)
			}
		})
	}
}

func TestExecFromThread(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "exec")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	b := newBreakpoint(t, siteOf(t, exe))
	execs, left := 0, 0
	var ended syscall.WaitStatus
	b.exec = func(p *Process) { execs++; left = len(p.Threads()) }
	b.exited = func(_ *Process, st syscall.WaitStatus) { ended = st }
	stop := running(t, tr, b)
	do(t, tr, func() error { return b.arm(p) })
	g.in.Write([]byte{'\n'})
	if _, status := g.rest(); status != 5 {
		t.Errorf("status %d", status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if execs != 1 || left != 1 || ended.ExitStatus() != 5 {
		t.Errorf("%d execs, %d threads left, status %v", execs, left, ended)
	}
}

func TestLeaderEndsFirst(t *testing.T) {
	for _, before := range []bool{false, true} {
		g := spawn(t, events(t), "leader")
		if before {
			eventually(t, "the leader ends", func() bool { return taskState(g.pid, g.pid) == 'Z' })
		}
		tr := newTracer(t)
		p := attach(t, tr, g.pid)
		stop := running(t, tr, &recorder{t: t})
		do(t, tr, func() error {
			return p.WithStopped(context.Background(), func(ts []*Thread) error {
				if len(ts) == 0 {
					return errors.New("no thread")
				}
				return nil
			})
		})
		if _, status := g.rest(); status != 6 {
			t.Errorf("leader ended before=%v: status %d", before, status)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSignalsKeepOrderAndInfo(t *testing.T) {
	exe := events(t)
	free := spawn(t, exe, "signals")
	free.in.Write([]byte{'\n'})
	want, _ := free.rest()
	for _, mode := range []string{"deliver", "hold"} {
		g := spawn(t, exe, "signals")
		tr := newTracer(t)
		attach(t, tr, g.pid)
		h := &recorder{t: t}
		if mode == "hold" {
			h.sig = func(*Thread, *Siginfo) Verdict { return Step }
		}
		running(t, tr, h)
		g.in.Write([]byte{'\n'})
		got, status := g.rest()
		if status != 0 || mode == "deliver" && got != want || mode == "hold" && !sameSet(got, want) {
			t.Errorf("%s: status %d\n got %s\nwant %s", mode, status, got, want)
		}
	}
}

func sameSet(a, b string) bool {
	m := map[string]int{}
	for _, s := range strings.Fields(a) {
		m[s]++
	}
	for _, s := range strings.Fields(b) {
		m[s]--
	}
	for _, n := range m {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestProfilingSignals(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "sigprof")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	b := newBreakpoint(t, siteOf(t, exe))
	b.step = true
	signals := 0
	b.sig = func(th *Thread, _ *Siginfo) Verdict {
		signals++
		if th.Stepping() {
			return Step
		}
		return Deliver
	}
	stop := running(t, tr, b)
	do(t, tr, func() error { return b.arm(p) })
	eventually(t, "10 signals and 1000 hits", func() bool {
		var enough bool
		do(t, tr, func() error { enough = signals >= 10 && b.hits[g.pid] >= 1000; return nil })
		return enough
	})
	do(t, tr, func() error { return b.leave(p) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// The kernel resets the action of a blocked SIGTRAP when an int3 is hit.
func TestBlockedTrap(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "blocked")
	if l := g.line(); l != "ready" {
		t.Fatal(l)
	}
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	b := newBreakpoint(t, siteOf(t, exe))
	stop := running(t, tr, b)
	do(t, tr, func() error { return p.GuardTrap(context.Background(), nil) })
	do(t, tr, func() error { return b.arm(p) })
	g.in.Write([]byte{'\n'})
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if b.hits[g.pid] != 12 {
		t.Errorf("%d hits", b.hits[g.pid])
	}
}

func TestDetachUnderLoad(t *testing.T) {
	exe := events(t)
	g := spawn(t, exe, "loop", "4")
	for i := range 20 {
		tr := newTracer(t)
		p := attach(t, tr, g.pid)
		b := newBreakpoint(t, siteOf(t, exe))
		b.step = i%2 == 1
		stop := running(t, tr, b)
		do(t, tr, func() error { return b.arm(p) })
		eventually(t, "100 hits", func() bool {
			n := 0
			do(t, tr, func() error { n = b.hits[g.pid]; return nil })
			return n >= 100
		})
		do(t, tr, func() error { return b.leave(p) })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, status := g.rest(); status != 0 {
		t.Errorf("status %d", status)
	}
}

func TestTargetKilled(t *testing.T) {
	exe := events(t)
	rounds := 4
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		rounds = 20
	}
	for i := range rounds {
		g := spawn(t, exe, "loop", "4")
		tr := newTracer(t)
		p := attach(t, tr, g.pid)
		b := newBreakpoint(t, siteOf(t, exe))
		b.step = i%2 == 1
		var ended syscall.WaitStatus
		b.exited = func(_ *Process, st syscall.WaitStatus) { ended = st }
		stop := running(t, tr, b)
		do(t, tr, func() error { return b.arm(p) })
		go func() {
			time.Sleep(time.Duration(i) * time.Millisecond / 2)
			syscall.Kill(g.pid, syscall.SIGKILL)
		}()
		for range 1000 {
			err := tr.Do(func() error {
				if p.Gone() {
					return ErrGone
				}
				err := p.WithStopped(context.Background(), func(ts []*Thread) error { return nil })
				if err == nil {
					_, err = p.Syscall(context.Background(), nil, syscall.SYS_GETPID)
				}
				return err
			})
			if err != nil {
				if !errors.Is(err, ErrGone) && !errors.Is(err, ErrNoThread) {
					t.Errorf("round %d: %v", i, err)
				}
				break
			}
		}
		if _, status := g.rest(); status != 128+9 {
			t.Errorf("status %d", status)
		}
		eventually(t, "the tracer sees the end", p.Gone)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if ended.Signal() != syscall.SIGKILL {
			t.Errorf("round %d: ended with %v", i, ended)
		}
	}
}

func TestAttachRefused(t *testing.T) {
	tr := newTracer(t)
	ctx := context.Background()
	var traced *TracedError
	g := spawn(t, events(t), "idle")
	other := newTracer(t)
	attach(t, other, g.pid)
	if _, err := tr.Attach(ctx, g.pid); !errors.As(err, &traced) || traced.By == 0 {
		t.Errorf("traced already: %v", err)
	}
	for _, c := range []struct {
		name string
		pid  int
		want error
	}{
		{"self", os.Getpid(), ErrSelf},
		{"nobody", 1 << 22, ErrGone},
		{"zero", 0, ErrGone},
		{"negative", -1, ErrGone},
		{"kernel thread", kernelThread(), ErrKernelThread},
	} {
		if c.pid == 0 && c.want == ErrKernelThread {
			continue // a PID namespace without any
		}
		if _, err := tr.Attach(ctx, c.pid); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func kernelThread() int {
	pids, _ := procfs.Processes()
	for _, pid := range pids {
		st, _ := procfs.Process(pid).Stat()
		if flags, _ := st.Uint(procfs.FieldFlags); flags&procfs.FlagKernelThread != 0 {
			return pid
		}
	}
	return 0
}

// TestLetRun: the parent waits for its child while Fork has not answered yet.
func TestLetRun(t *testing.T) {
	g := spawn(t, events(t), "forks")
	tr := newTracer(t)
	attach(t, tr, g.pid)
	r := &recorder{t: t}
	forks := 0
	r.fork = func(parent *Thread, _ *Process, kind ForkKind) bool {
		if kind == Fork && !t.Failed() {
			forks++
			if err := parent.LetRun(); err != nil {
				t.Error(err)
			}
			end := time.Now().Add(patient)
			for taskState(g.pid, g.pid) != 'S' && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
			if st := taskState(g.pid, g.pid); st != 'S' {
				t.Errorf("the parent's state is %c", st)
			}
		}
		return true
	}
	stop := running(t, tr, r)
	g.in.Write([]byte{'\n'})
	if out, status := g.rest(); status != 0 {
		t.Errorf("status %d, %q", status, out)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if forks != 20 {
		t.Errorf("%d forks", forks)
	}
}
