package probe

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// pairData is struct pair of probe_calls.c.
type pairData struct {
	A    int32
	B    int64
	Name [16]byte
	Next uintptr
}

// TestJprobe has functions of many signatures called with a program's
// arguments, with debug information and without.
func TestJprobe(t *testing.T) {
	const n, threads = 200, 3
	for _, flags := range [][]string{{"-O1", "-pthread"}, {"-O1", "-g", "-pthread"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			prog := callsFixture(t, flags...)
			for _, c := range []struct {
				mode string
				make func(add func(i int64, ok bool)) Probe
			}{
				{"work", func(add func(int64, bool)) Probe {
					return &Jprobe{Kprobe: Kprobe{Symbol: "work"}, Entry: func(a int64, s string) { add(a, s == "hello") }}
				}},
				{"work", func(add func(int64, bool)) Probe {
					return &Jprobe{Kprobe: Kprobe{Symbol: "work"}, Entry: func(h *Hit, a uint16, s *string) {
						add(int64(a), s != nil && *s == "hello" && h.Comm == "probe_calls.c" && h.Event.Name == "p_work_0" || h.TID != 0 && *s == "hello")
					}}
				}},
				{"work", func(add func(int64, bool)) Probe {
					return &Jprobe{Kprobe: Kprobe{Symbol: "work"}, Entry: func(r *Regs, a int, s *[6]uint8) bool {
						add(int64(a), uint64(a) == r.Arg(1) && s != nil && string(s[:]) == "hello\x00")
						return false
					}}
				}},
				{"real", func(add func(int64, bool)) Probe {
					return &Jprobe{Kprobe: Kprobe{Symbol: "real"}, Entry: func(x float64, y float32) { add(int64(x-0.5), y == 1.25) }}
				}},
				{"many", func(add func(int64, bool)) Probe {
					return &Jprobe{Kprobe: Kprobe{Symbol: "many"}, Entry: func(a, b, c, d, e, f, g, h int64) {
						add(a, b == a+1 && c == a+2 && d == a+3 && e == a+4 && f == a+5 && g == a+6 && h == a+7)
					}}
				}},
				{"pair", func(add func(int64, bool)) Probe {
					return &Jprobe{Kprobe: Kprobe{Symbol: "pair_sum"}, Entry: func(p *pairData, c uint8, neg int32) {
						name := strings.TrimRight(string(p.Name[:]), "\x00")
						// Threads write B while others read it.
						add(int64(c), p.A == 7 && name == "first" && p.Next != 0 && -neg == int32(c&15))
					}}
				}},
			} {
				sub := startSubject(t, prog, c.mode, fmt.Sprint(n), fmt.Sprint(threads))
				var mu sync.Mutex
				var sum, calls, wrong int64
				p := c.make(func(i int64, ok bool) {
					mu.Lock()
					defer mu.Unlock()
					sum += i
					calls++
					if !ok {
						wrong++
					}
				})
				l := handled(t, sub, Options{}, p)
				sub.work()
				l.finish(sub.pid())
				sub.end()
				k := p.kprobe()
				if sum != threads*n*(n-1)/2 || calls != n*threads || wrong != 0 {
					t.Errorf("%s: the function saw a sum of %d in %d calls, %d wrong", reflect.TypeOf(p.(*Jprobe).Entry), sum, calls, wrong)
				}
				if st := k.Stats(); st.Hits != n*threads || st.Recorded != st.Hits || st.Lost != 0 {
					t.Errorf("%s: %+v", k, st)
				}
				if got := len(l.sink.all()); got != 0 {
					t.Errorf("the sink had %d hits of a jprobe", got)
				}
			}
		})
	}
}

// TestJprobeJumps has a jprobe be a jump, and give way to a handler.
func TestJprobeJumps(t *testing.T) {
	prog := callsFixture(t, "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "1000", "2")
	calls, hits := 0, 0
	j := &Jprobe{Kprobe: Kprobe{Symbol: "work"}, Entry: func(int64) { calls++ }}
	l := handled(t, sub, Options{}, j)
	if n := j.Stats().Trapped; n != 0 {
		t.Errorf("%d places of a jprobe are breakpoints", n)
	}
	k := &Kprobe{Symbol: "work", PreHandler: func(*Kprobe, *Regs) bool { hits++; return false }}
	if err := l.s.Register(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if j.Stats().Trapped != 1 || k.Stats().Trapped != 1 {
		t.Errorf("with a handler beside it: %d, %d", j.Stats().Trapped, k.Stats().Trapped)
	}
	sub.work()
	if err := l.s.Unregister(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if n := j.Stats().Trapped; n != 0 {
		t.Errorf("it stays a breakpoint when the handler has gone")
	}
	l.finish(sub.pid())
	sub.end()
	if calls != 2000 || hits != 2000 {
		t.Errorf("%d calls, %d hits", calls, hits)
	}
}

// TestJprobeFault reads texts that aren't there.
func TestJprobeFault(t *testing.T) {
	prog := callsFixture(t, "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "100")
	good, nils := 0, 0
	// The number is no address.
	text := &Jprobe{Kprobe: Kprobe{Symbol: "work"}, Entry: func(string) { good++ }}
	maybe := &Jprobe{Kprobe: Kprobe{Symbol: "work"}, Entry: func(s *string, n *int64) {
		if s == nil && n != nil {
			nils++
		}
	}}
	l := handled(t, sub, Options{}, text, maybe)
	sub.work()
	l.finish(sub.pid())
	sub.end()
	if st := text.Stats(); good != 0 || st.Hits != 100 || st.Lost != 100 {
		t.Errorf("%d calls, %+v", good, st)
	}
	if st := maybe.Stats(); nils != 100 || st.Recorded != 100 {
		t.Errorf("%d calls, %+v", nils, st)
	}
}
