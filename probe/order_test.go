package probe

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

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

// TestOrderOfBreakpoints has one process hit a breakpoint whose records take long to make, while another one
// hits a jump. One record takes longer than hits otherwise wait for an older one; on a busy machine any may.
// Here they wait longer.
func TestOrderOfBreakpoints(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	const traps, longRecord, lateness = 3000, 200 * time.Millisecond, 2 * time.Second
	slow := startSubject(t, prog, "tail", fmt.Sprint(traps))
	fast := startSubject(t, fixture.Build(t, "cli_rate.c", "-O2"), "200000", "1e9") // until it is killed
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
	if err := s.engine.Tracer.Do(func() error { s.engine.Lateness = lateness; return nil }); err != nil {
		t.Fatal(err)
	}
	// Where there is a handler there is no jump.
	calls := 0
	handler := func(*Kprobe, *Regs) bool {
		if calls++; calls == traps/2 {
			time.Sleep(longRecord)
		}
		return false
	}
	if err := s.Register(t.Context(), &Kprobe{Symbol: prog + ":tail_a", PreHandler: handler}); err != nil {
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
	jumps := func() uint64 { return hitsOf(t, s.Stats(), "jump") }
	goesOn := func(when string) {
		t.Helper()
		if now := jumps(); !waitUntil(func() bool { return jumps() > now }) {
			t.Errorf("%s there are no hits of the jump", when)
		}
	}
	goesOn("before the breakpoint's hits")
	slow.work()
	goesOn("behind the breakpoint's hits")
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
	for _, sub := range []*subject{slow, fast} {
		checkClean(t, sub.pid())
	}
	slow.end()
}

// TestOrderOfHitsBeforeRun: processes have hits already when Run begins, those of the first as many as those of the
// last.
func TestOrderOfHitsBeforeRun(t *testing.T) {
	prog := fixture.Build(t, "cli_loop.c", "-O1")
	pids := make([]int, 24)
	for i := range pids {
		cmd := exec.Command(prog, "0")
		fixture.Start(t, cmd)
		pids[i] = cmd.Process.Pid
	}
	for range 3 {
		s, err := Attach(t.Context(), pids, Options{Log: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		if err := s.Arm(t.Context(), parseDefs(t, "p:w work")); err != nil {
			t.Fatal(err)
		}
		if !waitUntil(func() bool { return s.Stats()[0].Hits >= uint64(10*len(pids)) }) {
			t.Fatal("no hits")
		}
		sink := &timesInOrder{pids: map[int]int{}}
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := s.Run(ctx, sink); err != nil {
			t.Error(err)
		}
		stop()
		if sink.wrong != 0 || len(sink.pids) != len(pids) {
			t.Errorf("%d hits are out of order, of %v", sink.wrong, sink.pids)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
