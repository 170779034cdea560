package probe

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
)

// counter is a Sink that only counts.
type counter struct{ hits atomic.Uint64 }

func (c *counter) Hit(*Hit) error { c.hits.Add(1); return nil }

// storm is a running hazard_storm: threads that check after each call that a
// function changed nothing but what it is to change.
type storm struct {
	*subject
	calls []uint64 // of f0, f1, …, when it has ended
}

func startStorm(t *testing.T, args ...string) *storm {
	t.Helper()
	return &storm{subject: startSubject(t, fixture.Build(t, "hazard_storm.c", "-O2", "-lpthread"), args...)}
}

// stop ends the work and checks that the threads found nothing wrong.
func (s *storm) stop() {
	s.t.Helper()
	s.line()
	got := strings.Fields(s.expect("done"))
	for _, f := range got[1:] {
		var n uint64
		if _, err := fmt.Sscan(f, &n); err != nil {
			s.t.Fatal(err)
		}
		s.calls = append(s.calls, n)
	}
	if s.calls[0] != 0 {
		s.t.Errorf("%d calls found registers, flags, vectors or the red zone damaged", s.calls[0])
	}
	s.calls = s.calls[1:]
}

// engage arms definitions and runs them into a sink that only counts.
func engage(t *testing.T, pid int, o Options, defs ...string) (*live, *counter) {
	t.Helper()
	c := &counter{}
	return engageInto(t, pid, o, c, defs...), c
}

// full is how many rounds a storm goes: n, or all under KPROBE_TEST_FULL=1.
func full(n, all int) int {
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		return all
	}
	return n
}

// TestHazardW5 (and W6, and D4: the callers, compiled with -fipa-ra as -O2 does,
// check each register): jumps go in and out all the time while threads run
// over them and check every call. A probe that stays is hit exactly as often
// as its function is called. A cycle puts in or takes out four jumps.
func TestHazardW5(t *testing.T) {
	t.Run("3", func(t *testing.T) { stormed(t, 3, full(1500, 100_000)) })
	t.Run("16", func(t *testing.T) { stormed(t, 16, full(400, 100_000)) })
}

func stormed(t *testing.T, threads, cycles int) {
	t.Helper()
	sub := startStorm(t, fmt.Sprint(threads))
	l, _ := engage(t, sub.pid(), Options{CountOnly: true},
		"p:always f3", "p:a f0", "p:b f1 a=$arg1", "p:c f2", "p:d f4 s=%sp", "p:e f5", "p:f f6", "p:mid f1+5", "p:mid2 f0+2")
	tactics(t, l, "always", "a", "b", "c", "d", "e", "f")
	sub.line()
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	for i := range cycles {
		if err := toggle(l.s, rng, func(p *engine.Placed) bool { return p.Ev.Name == "always" }); err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
	}
	t.Logf("%d cycles in %v", cycles, time.Since(start))
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	if st := l.stat("always"); st.Hits != sub.calls[3] {
		t.Errorf("%d hits of %d calls", st.Hits, sub.calls[3])
	}
	for name, f := range map[string]int{"a": 0, "b": 1, "c": 2, "d": 4, "e": 5, "f": 6} {
		if st := l.stat(name); st.Hits == 0 || st.Hits > sub.calls[f] {
			t.Errorf("%s: %d hits of %d calls", name, st.Hits, sub.calls[f])
		}
	}
}

// TestHazardW5Sessions attaches, arms overlapping sets and leaves, with 16
// threads at work.
func TestHazardW5Sessions(t *testing.T) {
	sub := startStorm(t, "16")
	sub.line()
	sets := [][]string{
		{"p:a f0", "p:b f1", "p:c f2", "p:d f3", "p:e f4", "p:f f5", "p:g f6"},
		{"p:a f0+1", "p:b f1+5", "p:c f2+2", "p:e f4+1", "p:f f5+1", "p:g f6+1", "r100:d f3"},
		{"p:a f0", "p:a1 f0+1", "p:a2 f0+2", "p:f f5", "p:f4 f5+4", "p:f5 f5+5", "p:b f1 a=$arg1"},
	}
	rounds := full(6, 2000)
	for i := range rounds {
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, sets[i%len(sets)]...)
		time.Sleep(time.Duration(i%7) * time.Millisecond)
		l.finish(sub.pid())
	}
	sub.stop()
	sub.end()
}

// TestHazardW7 arms an instruction inside the jump of a probe that is being
// hit: the jump becomes a breakpoint, and no hit is lost or taken twice.
func TestHazardW7(t *testing.T) {
	sub := startStorm(t, "3")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:a f0", "p:c f2", "p:e f4", "p:f f5", "p:g f6")
	tactics(t, l, "a", "c", "e", "f", "g")
	sub.line()
	time.Sleep(20 * time.Millisecond)
	for _, d := range []string{"p:a1 f0+1", "p:c1 f2+2", "p:e1 f4+1", "p:f1 f5+1", "p:g1 f6+1", "p:f4 f5+4", "p:a3 f0+3"} {
		if err := l.s.Arm(t.Context(), parseDefs(t, d)); err != nil {
			t.Fatalf("%s: %v", d, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	for name, f := range map[string]int{"a": 0, "c": 2, "e": 4, "f": 5, "g": 6} {
		if st := l.stat(name); st.Hits != sub.calls[f] {
			t.Errorf("%s: %d hits of %d calls", name, st.Hits, sub.calls[f])
		}
	}
}

// TestConserved has 8 threads fill the rings faster than they are read: what
// is recorded, filtered and lost adds up to what the program did.
func TestConserved(t *testing.T) {
	sub := startStorm(t, "8")
	l, c := engage(t, sub.pid(), Options{}, "p:a f0 a=$arg1 b=$arg2 s=%sp", "p:b f1 a=$arg1:u8 if a < 16", "p:c f2+0 s=+0(%sp):x64", "p:d f3")
	tactics(t, l, "a", "d")
	sub.line()
	time.Sleep(400 * time.Millisecond)
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	recorded := uint64(0)
	for name, f := range map[string]int{"a": 0, "b": 1, "c": 2, "d": 3} {
		st := l.stat(name)
		recorded += st.Recorded
		if st.Hits != sub.calls[f] {
			t.Errorf("%s: %d hits of %d calls", name, st.Hits, sub.calls[f])
		}
		t.Logf("%s: %d hits, %d recorded, %d filtered, %d lost", name, st.Hits, st.Recorded, st.Filtered, st.Lost)
	}
	if got := c.hits.Load(); got != recorded {
		t.Errorf("%d hits came out, %d are counted as recorded", got, recorded)
	}
}

// TestReplannedOften plans jumps anew, again and again, whose displacements share bytes: only an address in
// one of 256 in 16 MB does for the first of them. What the plans before have had there, and nobody is in any
// more, must do again, although the detours of later plans lie behind it.
func TestReplannedOften(t *testing.T) {
	// With this address all that the jump at f5 can reach is one block.
	prog := fixture.Build(t, "hazard_storm.c", "-O2", "-lpthread", "-no-pie", "-Wl,-Ttext-segment=0x40000000")
	sub := startSubject(t, prog, "1")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:s5 f5", "p:m5 f5+1")
	tactics(t, l, "s5", "m5")
	for n := range 150 {
		link, err := l.s.Add(t.Context(), parseDefs(t, "p:x f5+3"))
		if err != nil {
			t.Fatal(err)
		}
		if tactics(t, l, "s5", "m5", "x"); t.Failed() {
			t.Fatalf("with a probe more, round %d", n)
		}
		if err := l.s.Remove(t.Context(), link.Events()...); err != nil {
			t.Fatal(err)
		}
		if now := tacticsNow(l.s); !now["s5"] || !now["m5"] {
			t.Fatalf("after round %d s5 is a jump: %v, m5: %v", n, now["s5"], now["m5"])
		}
	}
	l.finish(sub.pid())
}
