package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// TestOrder has the readers of three processes look in any order, at any pace:
// what comes out is in order of time, complete, and a copy.
func TestOrder(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := &order{}
		feeds := []*feed{{}, {}, {}}
		var probes []*placed
		now := make([]uint64, len(feeds))
		for i, tp := range feeds {
			o.join(tp)
			o.join(tp) // again: another run
			probes = append(probes, &placed{feed: tp})
			now[i] = 1
		}
		if !o.many() {
			t.Fatal("three are not many")
		}
		data := make([]byte, 8)
		put, got := 0, 0
		last := uint64(0)
		take := func(all bool) {
			for q := o.next(all); q != nil; q = o.next(all) {
				if q.hit.Time < last {
					t.Fatalf("seed %d: %d after %d", seed, q.hit.Time, last)
				}
				if string(q.hit.Data) != fmt.Sprintf("%08d", q.hit.Time) {
					t.Fatalf("seed %d: the data of another hit: %q at %d", seed, q.hit.Data, q.hit.Time)
				}
				for i, tp := range feeds {
					if !all && tp.until.Load() <= q.hit.Time {
						t.Fatalf("seed %d: process %d may have an older one than %d", seed, i, q.hit.Time)
					}
				}
				last = q.hit.Time
				got++
				o.done(q)
			}
			o.tellOldest()
		}
		for range 300 {
			i := rnd.IntN(len(feeds))
			for range rnd.IntN(4) {
				now[i] += rnd.Uint64N(5)
				copy(data, fmt.Sprintf("%08d", now[i]))
				o.put(probes[i], &Hit{Time: now[i], Data: data}, now[i])
				put++
				if at := feeds[i].queued.Load(); at == 0 || at > now[i] {
					t.Fatalf("seed %d: the oldest that waits is said to be %d, not %d or older", seed, at, now[i])
				}
			}
			now[i]++
			feeds[i].until.Store(now[i])
			take(false)
		}
		if waits := len(o.queue); waits == put {
			t.Errorf("seed %d: nothing came before the end", seed)
		}
		take(true)
		if got != put {
			t.Errorf("seed %d: %d of %d hits", seed, got, put)
		}
		for _, tp := range feeds {
			if tp.queued.Load() != 0 {
				t.Errorf("seed %d: something waits still", seed)
			}
		}
		o.clear()
		if o.many() {
			t.Error("none are many")
		}
	}
}

// timesInOrder is a Sink that looks whether hits come in order of time.
type timesInOrder struct {
	last  uint64
	wrong int
	pids  map[int]int
}

func (o *timesInOrder) Hit(h *Hit) error {
	if h.Time < o.last {
		o.wrong++
	}
	o.last = max(o.last, h.Time)
	o.pids[h.PID]++
	return nil
}

// TestOrderOfBreakpoints has one process hit a breakpoint whose records take
// long to make, while another one hits a jump.
func TestOrderOfBreakpoints(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	const traps = 3000
	slow := startSubject(t, prog, "tail", fmt.Sprint(traps))
	fast := startSubject(t, fixture.Build(t, "cli_rate.c", "-O2"), "200000", "1.5")
	text := "p:trap " + prog + ":tail_a"
	for i := range 20 {
		text += fmt.Sprintf(" s%d=@global_text:string", i)
	}
	s, err := Attach(t.Context(), []int{slow.pid(), fast.pid()}, Options{
		Log:     testLog(t),
		Pending: func(*fetch.Def) bool { return true }, // each is in one of them
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	// Where there is a handler there is no jump.
	if err := s.Register(t.Context(), &Kprobe{Symbol: prog + ":tail_a", PreHandler: func(*Kprobe, *Regs) bool { return false }}); err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(t.Context(), parseDefs(t, text, "p:jump work")); err != nil {
		t.Fatal(err)
	}
	if now := tacticsNow(s); now["trap"] || !now["jump"] {
		t.Fatalf("by jumps: %v", now)
	}
	sink := &timesInOrder{pids: map[int]int{}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, sink)
		done <- err
	}()
	slow.work()
	fast.expect("") // its count
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if sink.wrong != 0 || sink.pids[slow.pid()] != traps || sink.pids[fast.pid()] == 0 {
		t.Errorf("%d hits are out of order, of %v", sink.wrong, sink.pids)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkClean(t, slow.pid())
	slow.end()
}
