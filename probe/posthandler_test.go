package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/regs"
	"kprobe/symbols"
)

// everyKprobe makes probes for all instructions of a function.
func everyKprobe(t *testing.T, prog, fn string, make func(off uint64) *Kprobe) (probes []Probe) {
	t.Helper()
	for _, line := range inspectFile(t, prog, fn)[0].Lines {
		if line.Probe != KindRefused {
			probes = append(probes, make(line.Offset))
		}
	}
	return probes
}

// registering starts a session in which probes with handlers run.
func registering(t *testing.T, sub *subject, probes ...Probe) *live {
	t.Helper()
	l, _ := engage(t, sub.pid(), Options{CountOnly: true})
	if err := l.s.RegisterAll(t.Context(), probes...); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPostHandlerRegs probes all instructions of functions before and after: what
// a post handler sees is what the next instruction's pre handler sees, wherever
// the one has led, and what the thread has is what it has without probes.
func TestPostHandlerRegs(t *testing.T) {
	prog := callsFixture(t)
	for mode, fns := range map[string][]string{
		"red": {"red_zone"}, "switch": {"switcher"}, "loops": {"loops"}, "recurse": {"recurse"}, "real": {"real"},
		"indirect": {"indirect", "work", "red_zone"}, "tail": {"tail_a", "tail_b"}, "jump": {"deep", "jumper"},
	} {
		t.Run(mode, func(t *testing.T) {
			want := plain(t, prog, mode, "60", "2")
			sub := startSubject(t, prog, mode, "60", "2")
			type state struct {
				regs [17]uint64
				ip   symbols.Addr
			}
			after := map[int]state{} // by thread: at its last post handler
			posts, nexts, stepped := 0, 0, 0
			last := map[int]symbols.Addr{}
			var probes []Probe
			for _, fn := range fns {
				probes = append(probes, everyKprobe(t, prog, fn, func(off uint64) *Kprobe {
					return &Kprobe{
						Symbol: fn, Offset: off,
						PreHandler: func(k *Kprobe, r *Regs) bool {
							if a, ok := after[r.TID()]; ok && a.ip == r.IP() {
								nexts++
								if a.regs != generalOf(r) {
									t.Errorf("at %v registers are %x, after the instruction before %x", r.IP(), generalOf(r), a.regs)
								}
							}
							delete(after, r.TID())
							last[r.TID()] = r.IP()
							return false
						},
						PostHandler: func(k *Kprobe, r *Regs) {
							posts++
							if r.IP() == last[r.TID()] && !strings.Contains(k.String(), "rep") {
								stepped++
							}
							after[r.TID()] = state{generalOf(r), r.IP()}
						},
					}
				})...)
			}
			l := registering(t, sub, probes...)
			if got := sub.work(); got != want {
				t.Errorf("probed, the program printed %q, otherwise %q", got, want)
			}
			l.finish(sub.pid())
			sub.end()
			hits := uint64(0)
			for _, p := range probes {
				hits += p.kprobe().Stats().Hits
			}
			if uint64(posts) != hits || hits == 0 {
				t.Errorf("%d post handlers ran for %d hits", posts, hits)
			}
			if nexts*10 < posts*5 || stepped > 0 {
				t.Errorf("of %d, %d were seen by the next instruction's handler, %d went nowhere", posts, nexts, stepped)
			}
		})
	}
}

// TestPostHandlerChanges: what a post handler changes is changed, the place where
// the thread goes on too; several of a place see each other's changes; an
// instruction that a pre handler skips has none.
func TestPostHandlerChanges(t *testing.T) {
	prog := callsFixture(t)
	const count = 50
	lines := inspectFile(t, prog, "work")[0].Lines
	ret := lines[len(lines)-1]
	if !strings.HasPrefix(ret.Text, "ret") {
		t.Fatalf("work ends in %s", ret.Text)
	}
	sub := startSubject(t, prog, "work", fmt.Sprint(count))
	var order []string
	see := func(name string, do func(*Regs)) func(*Kprobe, *Regs) {
		return func(_ *Kprobe, r *Regs) {
			order = append(order, name)
			do(r)
		}
	}
	skipped := 0
	l := registering(t, sub,
		&Kprobe{Symbol: "work", Offset: ret.Offset, PostHandler: see("first", func(r *Regs) { r.SetRetVal(1000) })},
		&Kprobe{Symbol: "work", Offset: ret.Offset, PostHandler: see("second", func(r *Regs) { r.SetRetVal(r.RetVal() + 1) })},
		// The first instruction is skipped, and with it all of the function.
		&Kprobe{Symbol: "recurse", PreHandler: func(_ *Kprobe, r *Regs) bool {
			if err := r.SkipFunction(5); err != nil {
				t.Error(err)
			}
			return true
		}, PostHandler: func(*Kprobe, *Regs) { skipped++ }})
	if got, want := sub.work(), fmt.Sprint("done ", 1001*count); got != want {
		t.Errorf("the program printed %q, want %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	if got, want := strings.Join(order, " "), strings.TrimSpace(strings.Repeat("first second ", count)); got != want {
		t.Errorf("order: %s", got)
	}

	// The first instruction leads behind the function's last.
	sub = startSubject(t, prog, "recurse", fmt.Sprint(count))
	l = registering(t, sub, &Kprobe{Symbol: "recurse", PreHandler: func(_ *Kprobe, r *Regs) bool {
		return r.SkipFunction(7) == nil
	}, PostHandler: func(*Kprobe, *Regs) { skipped++ }})
	if got, want := sub.work(), fmt.Sprint("done ", 7*count); got != want {
		t.Errorf("the program printed %q, want %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	if skipped != 0 {
		t.Errorf("%d post handlers ran for instructions that were skipped", skipped)
	}

	sub = startSubject(t, prog, "work", fmt.Sprint(count))
	l = registering(t, sub, &Kprobe{Symbol: "work", PostHandler: func(_ *Kprobe, r *Regs) {
		to, err := r.StackWord(0)
		if err != nil {
			t.Error(err)
		}
		r.SetRetVal(3)
		r.SetSP(r.SP() + 8)
		r.SetIP(symbols.Addr(to))
	}})
	if got, want := sub.work(), fmt.Sprint("done ", 3*count); got != want {
		t.Errorf("led elsewhere, the program printed %q, want %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
}

// TestPostHandlerFaults: an instruction that faults, and is executed again when
// the program has repaired the cause, has one post handler's call; one that the
// program leaves has none.
func TestPostHandlerFaults(t *testing.T) {
	prog := fixture.Build(t, "probe_faults.c", "-O2")
	const count = 60
	for mode, want := range map[string]int{"repair": count, "skip": 0, "jump": 0} {
		t.Run(mode, func(t *testing.T) {
			line := plain(t, prog, mode, fmt.Sprint(count))
			sub := startSubject(t, prog, mode, fmt.Sprint(count))
			pres, posts := 0, 0
			l := registering(t, sub, &Kprobe{
				Symbol: "load", PreHandler: func(*Kprobe, *Regs) bool { pres++; return false },
				PostHandler: func(*Kprobe, *Regs) { posts++ },
			})
			if got := sub.work(); got != line {
				t.Errorf("probed, the program printed %q, otherwise %q", got, line)
			}
			l.finish(sub.pid())
			sub.end()
			if posts != want || pres == 0 {
				t.Errorf("%d pre handlers and %d post handlers ran, want %d of these", pres, posts, want)
			}
		})
	}
}

// TestPostHandlerStorm has threads that hit probes with post handlers, while
// signals come and the probes, and others beside them, come and go.
func TestPostHandlerStorm(t *testing.T) {
	sub := startStorm(t, "3", "prof")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:always f3")
	sub.line()
	var posts atomic.Uint64
	post := func(*Kprobe, *Regs) { posts.Add(1) }
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range full(15, 3000) {
		var inner, outer []Probe
		for fn, offs := range map[string][]uint64{"f0": {0, 1, 2, 3}, "f2": {0, 2}, "f4": {0, 1}, "f5": {0, 1, 3, 4}, "f6": {0, 1, 2}} {
			for _, off := range offs {
				if rng.IntN(2) == 0 {
					inner = append(inner, &Kprobe{Symbol: fn, Offset: off, PostHandler: post})
				}
				if rng.IntN(3) == 0 {
					outer = append(outer, &Kprobe{Symbol: fn, Offset: off})
				}
			}
		}
		inner = append(inner, &Kprobe{Symbol: "f0", PostHandler: post})
		outer = append(outer, &Kprobe{Symbol: "f0"})
		before := posts.Load()
		for _, err := range []error{l.s.RegisterAll(t.Context(), inner...), l.s.RegisterAll(t.Context(), outer...)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if !waitUntil(func() bool { return posts.Load() > before }) {
			t.Fatalf("no post handler ran in round %d; %s", round, threadStates(sub.pid()))
		}
		for _, err := range []error{l.s.UnregisterAll(t.Context(), inner...), l.s.UnregisterAll(t.Context(), outer...)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	if st := l.stat("always"); st.Hits != sub.calls[3] {
		t.Errorf("%d hits of %d calls", st.Hits, sub.calls[3])
	}
	t.Logf("%d post handlers ran", posts.Load())
}

// postPID names, in a copy of this test program, the process to probe.
const postPID = "PROBE_TEST_POST_PID"

// TestPostHandlerOf is what TestPostHandlerKilled runs and kills: it probes until
// it is killed.
func TestPostHandlerOf(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv(postPID))
	if err != nil {
		return // it is run for TestPostHandlerKilled only
	}
	s, err := Attach(context.Background(), []int{pid}, Options{CountOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	hit := sync.OnceFunc(func() { fmt.Println("hit") })
	var probes []Probe
	for _, fn := range []string{"work", "recurse", "table", "text"} {
		probes = append(probes, everyKprobe(t, os.Getenv("PROBE_TEST_POST_PROG"), fn, func(off uint64) *Kprobe {
			return &Kprobe{Symbol: fn, Offset: off, PostHandler: func(*Kprobe, *Regs) { hit() }}
		})...)
	}
	if err := s.RegisterAll(context.Background(), probes...); err != nil {
		t.Fatal(err)
	}
	_, err = s.Run(context.Background(), nil)
	t.Fatalf("the run has ended: %v", err)
}

// TestPostHandlerKilled kills the process whose post handlers run, at random
// moments: the program runs on over the breakpoints, out of the middle of a
// step too, and Recover takes them out.
func TestPostHandlerKilled(t *testing.T) {
	prog := fixture.Build(t, "probe_forever.c", "-O2")
	sub := startSubject(t, prog, "2")
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range full(6, 300) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPostHandlerOf$")
		cmd.Env = append(os.Environ(), postPID+"="+fmt.Sprint(sub.pid()), "PROBE_TEST_POST_PROG="+prog)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 3)
		if _, err := out.Read(said); err != nil || string(said) != "hit" {
			t.Errorf("it printed %q: %v", said, err)
		}
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		if !waitUntil(func() bool { return !traced(sub.pid()) }) {
			t.Fatal("it is still traced")
		}
		if i%2 == 0 {
			runsOn(t, sub.pid())
		}
		if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) != 1 {
			t.Fatalf("round %d: recovered %v: %v", i, pids, err)
		}
		checkClean(t, sub.pid())
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
	runsOn(t, sub.pid())
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}

// generalOf is general for what a handler sees.
func generalOf(r *Regs) [17]uint64 {
	now := regs.Registers(r)
	return engine.General(&now)
}
