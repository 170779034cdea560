package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// handled begins a session on a program, with probes, and runs it.
func handled(t *testing.T, sub *subject, o Options, probes ...Probe) *live {
	t.Helper()
	o.Log = testLog(t)
	s, err := Attach(t.Context(), []int{sub.pid()}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.RegisterAll(t.Context(), probes...); err != nil {
		t.Fatal(err)
	}
	l := collecting(t, s)
	l.run()
	return l
}

func sumOf(n int, f func(i int64) int64) string {
	var s int64
	for i := range int64(n) {
		s += f(i)
	}
	return fmt.Sprintf("done %d", s)
}

// TestPreHandler sees arguments and memory, on several threads and beside
// definitions at the same place.
func TestPreHandler(t *testing.T) {
	const n, threads = 500, 4
	prog := callsFixture(t, "-O1", "-pthread")
	want := plain(t, prog, "work", fmt.Sprint(n), fmt.Sprint(threads))
	sub := startSubject(t, prog, "work", fmt.Sprint(n), fmt.Sprint(threads))
	var sum, texts uint64
	tids := map[int]bool{}
	p := &Kprobe{Symbol: "work", PreHandler: func(p *Kprobe, r *Regs) bool {
		sum += r.Arg(1)
		if s, err := r.ReadString(symAddr(r.Arg(2)), 64); err == nil && s == "hello" {
			texts++
		}
		if p.Symbol != "work" || r.Symbol(r.IP()) != "work" || r.PID() != sub.pid() {
			t.Errorf("%v hit at %s in %d", p, r.Symbol(r.IP()), r.PID())
		}
		tids[r.TID()] = true
		return false
	}}
	l := handled(t, sub, Options{}, p, &Kprobe{Symbol: "work", Name: "count"})
	if _, err := l.s.Add(t.Context(), parseDefs(t, "p:def work n=$arg1")); err != nil {
		t.Fatal(err)
	}
	if got := sub.work(); got != want {
		t.Errorf("the program says %s, want %s", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	if sum != threads*n*(n-1)/2 || texts != n*threads || len(tids) != threads {
		t.Errorf("the handler saw a sum of %d, %d texts, %d threads", sum, texts, len(tids))
	}
	for _, name := range []string{"p_work_0", "count", "def"} {
		if st := l.stat(name); st.Hits != n*threads || st.Recorded != st.Hits {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if st := p.Stats(); st.Hits != n*threads || st.Trapped != 0 && st.Places != 1 {
		t.Errorf("%+v", st)
	}
	if got := len(l.sink.all()); got != n*threads {
		t.Errorf("the sink had %d hits: those of definitions, and only those, are its", got)
	}
}

// TestPreHandlerChanges changes an argument, and skips a function.
func TestPreHandlerChanges(t *testing.T) {
	const n = 200
	prog := callsFixture(t, "-O1", "-pthread")
	for _, c := range []struct {
		name string
		f    func(p *Kprobe, r *Regs) bool
		want func(i int64) int64
	}{
		{"argument", func(_ *Kprobe, r *Regs) bool { r.SetArg(1, r.Arg(1)+5); return false }, func(i int64) int64 { return (i+5)*3 + 'h' }},
		{"memory", func(_ *Kprobe, r *Regs) bool {
			if err := r.WriteMemory([]byte{'j'}, symAddr(r.Arg(2))); err != nil {
				t.Error(err)
			}
			return false
		}, func(i int64) int64 { return i*3 + 'j' }},
		{"skip", func(_ *Kprobe, r *Regs) bool {
			if err := r.SkipFunction(1000); err != nil {
				t.Error(err)
			}
			return true
		}, func(int64) int64 { return 1000 }},
		{"ip without skip", func(_ *Kprobe, r *Regs) bool { r.SetIP(0x10); return false }, func(i int64) int64 { return i*3 + 'h' }},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := startSubject(t, prog, "work", fmt.Sprint(n))
			after := &Kprobe{Symbol: "work"}
			ret := &Kretprobe{Kprobe: Kprobe{Symbol: "work"}}
			l := handled(t, sub, Options{}, &Kprobe{Symbol: "work", PreHandler: c.f}, after, ret)
			if got, want := sub.work(), sumOf(n, c.want); got != want {
				t.Errorf("the program says %s, want %s", got, want)
			}
			l.finish(sub.pid())
			sub.end()
			hits := uint64(n)
			if c.name == "skip" {
				hits = 0
			}
			if after.Stats().Hits != hits || ret.Stats().Hits != hits {
				t.Errorf("probes behind it saw %d hits, %d returns, want %d", after.Stats().Hits, ret.Stats().Hits, hits)
			}
		})
	}
}

// TestKretprobe follows calls with private data, and changes results.
func TestKretprobe(t *testing.T) {
	const n, threads = 300, 4
	prog := callsFixture(t, "-O1", "-pthread")
	sub := startSubject(t, prog, "work", fmt.Sprint(n), fmt.Sprint(threads))
	var even, wrong int
	p := &Kretprobe{Kprobe: Kprobe{Symbol: "work"}, DataSize: 8, MaxActive: 64,
		EntryHandler: func(ri *KretprobeInstance, r *Regs) bool {
			ri.Data[0], ri.Value = byte(r.Arg(1)), r.Arg(1)
			return r.Arg(1)&1 == 1
		},
		Handler: func(ri *KretprobeInstance, r *Regs) {
			even++
			v, _ := ri.Value.(uint64)
			if byte(v) != ri.Data[0] || r.RetVal() != v*3+'h' || ri.TID != r.TID() || ri.RetAddr != r.IP() {
				wrong++
			}
			r.SetRetVal(7)
		}}
	l := handled(t, sub, Options{}, p)
	want := sumOf(n, func(i int64) int64 {
		if i&1 == 0 {
			return 7 * threads
		}
		return (i*3 + 'h') * threads
	})
	if got := sub.work(); got != want {
		t.Errorf("the program says %s, want %s", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	if even != n/2*threads || wrong != 0 || p.Stats().Hits != n/2*threads || p.NMissed() != 0 {
		t.Errorf("%d returns, %d wrong, %+v", even, wrong, p.Stats())
	}
}

// TestKretprobeMissed has more calls at once than instances.
func TestKretprobeMissed(t *testing.T) {
	const n = 60 // calls of depth 0 … 5
	prog := callsFixture(t, "-O1", "-pthread")
	want := plain(t, prog, "recurse", fmt.Sprint(n))
	sub := startSubject(t, prog, "recurse", fmt.Sprint(n))
	entries, returns := 0, 0
	p := &Kretprobe{Kprobe: Kprobe{Symbol: "recurse"}, MaxActive: 2,
		EntryHandler: func(*KretprobeInstance, *Regs) bool { entries++; return false },
		Handler:      func(*KretprobeInstance, *Regs) { returns++ }}
	l := handled(t, sub, Options{}, p)
	if got := sub.work(); got != want {
		t.Errorf("the program says %s, want %s", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	// A call with depth d makes d+1 of recurse; two of them are followed.
	if entries != n/6*11 || returns != entries || p.NMissed() != n/6*10 {
		t.Errorf("%d entries, %d returns, %d missed", entries, returns, p.NMissed())
	}
}

// TestFaultHandler repairs the cause of a fault, and leaves another to the
// program.
func TestFaultHandler(t *testing.T) {
	src := fixture.Root() + "/testdata/probe_faulter.c"
	prog := fixture.BuildFile(t, src, "-O1")
	sub := startSubject(t, prog)
	var faults atomic.Int64
	p := &Kprobe{Symbol: "load",
		FaultHandler: func(_ *Kprobe, r *Regs, f *Fault) bool {
			faults.Add(1)
			if f.Signal != 11 || f.Addr != symAddr(r.Arg(1)) || r.Symbol(r.IP()) != "load" {
				t.Errorf("fault %+v at %s", f, r.Symbol(r.IP()))
			}
			if f.Addr == 8 {
				good, ok := r.Reg("si")
				r.SetArg(1, good)
				return ok
			}
			return false
		}}
	l := handled(t, sub, Options{}, p)
	// 100 loads from address 8 that are repaired, 100 from 16 that the
	// program's own handler leaves by siglongjmp.
	if got := sub.work(); got != "done 4200 100" {
		t.Errorf("the program says %s", got)
	}
	l.finish(sub.pid())
	sub.end()
	if faults.Load() != 200 || p.Stats().Hits != 300 {
		t.Errorf("%d faults, %d hits", faults.Load(), p.Stats().Hits)
	}
}

// TestHandlerPanics has each kind of handler panic: the program is not harmed.
func TestHandlerPanics(t *testing.T) {
	prog := callsFixture(t, "-O1", "-pthread")
	want := plain(t, prog, "work", "100", "3")
	boom := errors.New("boom")
	for name, p := range map[string]Probe{
		"PreHandler":   &Kprobe{Symbol: "work", PreHandler: func(_ *Kprobe, r *Regs) bool { r.SetArg(1, 99); panic(boom) }},
		"Handler":      &Kretprobe{Kprobe: Kprobe{Symbol: "work"}, Handler: func(_ *KretprobeInstance, r *Regs) { r.SetRetVal(1); panic(boom) }},
		"EntryHandler": &Kretprobe{Kprobe: Kprobe{Symbol: "work"}, EntryHandler: func(*KretprobeInstance, *Regs) bool { panic(boom) }},
		"Entry":        &Jprobe{Kprobe: Kprobe{Symbol: "work"}, Entry: func(int64) { panic(boom) }},
	} {
		t.Run(name, func(t *testing.T) {
			sub := startSubject(t, prog, "work", "100", "3")
			l := handled(t, sub, Options{}, p)
			sub.line()
			<-l.done
			var he *HandlerError
			if !errors.As(l.err, &he) || he.Handler != name || he.Probe != p || !errors.Is(he, boom) || !strings.Contains(string(he.Stack), "kprobe_test.go") {
				t.Errorf("run: %v", l.err)
			}
			if !p.kprobe().Stats().Disabled {
				t.Errorf("the probe stays on")
			}
			if err := l.s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if got := sub.expect("done"); got != want {
				t.Errorf("the program says %s, want %s", got, want)
			}
			checkClean(t, sub.pid())
			sub.end()
		})
	}
}

func symAddr(v uint64) symbols.Addr { return symbols.Addr(v) }
