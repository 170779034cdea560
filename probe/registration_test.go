package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/symbols"
)

// TestRegisterAllOrNone registers good probes with one that is wrong: no byte of
// the text changes, and the same probes can be registered after.
func TestRegisterAllOrNone(t *testing.T) {
	prog := callsFixture(t, "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "100")
	ctx := t.Context()
	s, err := Attach(ctx, []int{sub.pid()}, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if _, err := s.Add(ctx, parseDefs(t, "p:mine loops")); err != nil {
		t.Fatal(err)
	}
	before := textBytes(t, sub.pid(), prog)
	twice := &Kprobe{Symbol: "many"}
	for name, c := range map[string]struct {
		bad   Probe
		cause any
	}{
		"no symbol":     {&Kprobe{Symbol: "no_such_function"}, new(*symbols.NotFoundError)},
		"boundary":      {&Kprobe{Symbol: "work", Offset: 1, PreHandler: func(*Kprobe, *Regs) bool { return true }}, new(*BoundaryError)},
		"both places":   {&Kprobe{Symbol: "work", Addr: 4096}, new(*InvalidProbeError)},
		"no place":      {&Kprobe{}, new(*InvalidProbeError)},
		"pattern":       {&Kprobe{Symbol: "w*"}, new(*InvalidProbeError)},
		"two words":     {&Kprobe{Symbol: "work a=1"}, new(error)},
		"quote":         {&Kprobe{Symbol: `work" "a`}, new(*fetch.SyntaxError)},
		"return":        {&Kprobe{Symbol: "work%return"}, new(*InvalidProbeError)},
		"flags":         {&Kprobe{Symbol: "work", Flags: 4}, new(*InvalidProbeError)},
		"name":          {&Kprobe{Symbol: "work", Name: "mine"}, new(*InvalidProbeError)},
		"return inside": {&Kretprobe{Kprobe: Kprobe{Symbol: "work", Offset: 4}}, new(*fetch.SyntaxError)},
		"maxactive":     {&Kretprobe{Kprobe: Kprobe{Symbol: "work"}, MaxActive: 5000}, new(*InvalidProbeError)},
		"data size":     {&Kretprobe{Kprobe: Kprobe{Symbol: "work"}, DataSize: -1}, new(*InvalidProbeError)},
		"pre at return": {&Kretprobe{Kprobe: Kprobe{Symbol: "work", PreHandler: func(*Kprobe, *Regs) bool { return true }}}, new(*InvalidProbeError)},
		"jprobe inside": {&Jprobe{Kprobe: Kprobe{Symbol: "work", Offset: 4}, Entry: func() {}}, new(error)},
		"hit and fault": {&Jprobe{Kprobe: Kprobe{Symbol: "work", FaultHandler: func(*Kprobe, *Regs, *Fault) bool { return false }}, Entry: func(*Hit) {}}, new(*InvalidProbeError)},
		"signature":     {&Jprobe{Kprobe: Kprobe{Symbol: "work"}, Entry: 1}, new(*SignatureError)},
		"data":          {&Kprobe{Symbol: "global_text"}, new(error)},
		"twice":         {twice, new(error)},
		"nil":           {(*Kprobe)(nil), new(*InvalidProbeError)},
	} {
		good := &Kprobe{Symbol: "recurse", PreHandler: func(*Kprobe, *Regs) bool { return false }}
		err := s.RegisterAll(ctx, twice, good, c.bad, &Kprobe{Symbol: "pair_sum"})
		var re *RegisterError
		if !errors.As(err, &re) || re.Index != 2 || !errors.As(re.Err, c.cause) {
			t.Errorf("%s: %v (%T)", name, err, errors.Unwrap(err))
			continue
		}
		if name == "twice" != errors.Is(err, ErrRegistered) {
			t.Errorf("%s: %v", name, err)
		}
		if good.Registered() || twice.Registered() || good.Event() != nil {
			t.Errorf("%s: a probe stays registered", name)
		}
		if got := names(s.Events()); len(got) != 1 {
			t.Errorf("%s: events %v", name, got)
		}
		if textBytes(t, sub.pid(), prog) != before {
			t.Errorf("%s: the text has changed", name)
		}
	}
	good := []Probe{twice, &Kretprobe{Kprobe: Kprobe{Symbol: "recurse"}}, &Kprobe{Symbol: "work"}, &Kprobe{Symbol: "work"}}
	if err := s.RegisterAll(ctx, good...); err != nil {
		t.Fatal(err)
	}
	if err := s.Register(ctx, twice); !errors.Is(err, ErrRegistered) {
		t.Errorf("registered twice: %v", err)
	}
	if _, err := s.Add(ctx, parseDefs(t, "p:p_work_0 work")); err == nil {
		t.Error("a definition took the event of a probe")
	}
	if got := strings.Join(names(s.Events()), " "); got != "kprobes/mine kprobes/p_many_0 kprobes/r_recurse_0 kprobes/p_work_0 kprobes/p_work_0_1" {
		t.Errorf("events %v", got)
	}
	// One that isn't registered: the others go.
	err = s.UnregisterAll(ctx, good[0], &Kprobe{Symbol: "work"}, good[1], good[2], good[3])
	var re *RegisterError
	if !errors.As(err, &re) || re.Index != 1 || !errors.Is(err, ErrNotRegistered) {
		t.Errorf("unregister: %v", err)
	}
	if got := names(s.Events()); len(got) != 1 {
		t.Errorf("events %v", got)
	}
	if textBytes(t, sub.pid(), prog) != before {
		t.Error("the text has changed")
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	sub.work()
	sub.end()
}

// textBytes is the executable memory of a program in a process.
func textBytes(t *testing.T, pid int, prog string) string {
	t.Helper()
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	var b strings.Builder
	for _, m := range maps {
		if m.Exec && filepath.Base(m.Path) == filepath.Base(prog) {
			buf := make([]byte, m.End-m.Start)
			if _, err := mem.ReadAt(buf, int64(m.Start)); err != nil {
				t.Fatal(err)
			}
			b.Write(buf)
		}
	}
	if b.Len() == 0 {
		t.Fatal("no text")
	}
	return b.String()
}

// TestUnregisterUnderLoad registers and unregisters probes from goroutines while
// eight threads hit them: no handler runs after Unregister has returned, and the
// program counts right.
func TestUnregisterUnderLoad(t *testing.T) {
	sub := startStorm(t, "8")
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	stay := &Kprobe{Symbol: "f0"}
	if err := s.Register(t.Context(), stay); err != nil {
		t.Fatal(err)
	}
	l := collecting(t, s)
	l.run()
	sub.line()
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			fn := fmt.Sprintf("f%d", g)
			for i := range full(4, 300) {
				var mu sync.Mutex
				gone, late, hits := false, 0, 0
				hit := func() {
					mu.Lock()
					defer mu.Unlock()
					hits++
					if gone {
						late++
					}
				}
				ps := []Probe{
					&Kprobe{Symbol: fn, PreHandler: func(*Kprobe, *Regs) bool { hit(); return false }},
					&Kretprobe{Kprobe: Kprobe{Symbol: fn}, Handler: func(*KretprobeInstance, *Regs) { hit() }},
					&Jprobe{Kprobe: Kprobe{Symbol: fn}, Entry: func(int64) { hit() }},
				}
				if i&1 == 1 {
					ps = ps[2:] // jumps alone
				}
				if err := s.RegisterAll(t.Context(), ps...); err != nil {
					t.Error(err)
					return
				}
				seen := func() bool {
					mu.Lock()
					defer mu.Unlock()
					return hits > 20
				}
				if !waitUntil(seen) {
					t.Errorf("%s: the handlers had %d hits", fn, hits)
				}
				if err := s.UnregisterAll(t.Context(), ps...); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				gone = true
				mu.Unlock()
				time.Sleep(time.Millisecond) // time for one that is late, if there is one
				mu.Lock()
				if late > 0 {
					t.Errorf("%s: %d hits after Unregister", fn, late)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	select {
	case <-l.done:
		_ = sub.cmd.Wait()
		t.Fatalf("the run ended: %+v, %v; the program: %v", l.sum, l.err, sub.cmd.ProcessState)
	default:
	}
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	if st := stay.Stats(); st.Hits != sub.calls[0] {
		t.Errorf("%d hits of %d calls", st.Hits, sub.calls[0])
	}
}

// TestEnableProbe switches probes on and off, from outside and by a handler.
func TestEnableProbe(t *testing.T) {
	prog := callsFixture(t, "-O1", "-pthread")
	sub := startSubject(t, prog, "work", "100")
	var s *Session
	hits, blocked := 0, 0
	off := &Kprobe{Symbol: "work", Flags: FlagDisabled, PreHandler: func(*Kprobe, *Regs) bool { hits += 1000; return false }}
	once := &Kprobe{Symbol: "work", PreHandler: func(p *Kprobe, _ *Regs) bool {
		hits++
		for _, err := range []error{
			s.Register(context.Background(), &Kprobe{Symbol: "many"}), s.Unregister(context.Background(), p), s.Close(context.Background()),
		} {
			if errors.Is(err, ErrInHandler) {
				blocked++
			}
		}
		if hits == 10 {
			if err := s.DisableProbe(p); err != nil {
				t.Error(err)
			}
		}
		return false
	}}
	var err error
	if s, err = Attach(t.Context(), []int{sub.pid()}, Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.RegisterAll(t.Context(), off, once); err != nil {
		t.Fatal(err)
	}
	if err := s.EnableProbe(once, &Kprobe{}); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("a probe that isn't registered: %v", err)
	}
	l := collecting(t, s)
	l.run()
	sub.work()
	l.finish(sub.pid())
	sub.end()
	if hits != 10 || blocked != 30 || off.Stats().Hits != 0 || !off.Stats().Disabled || once.Stats().Hits != 10 {
		t.Errorf("%d hits, %d calls refused, %+v, %+v", hits, blocked, off.Stats(), once.Stats())
	}
}
