package probe

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// windows is a running hazard_text, which works a round for each line.
func startWindows(t *testing.T, args ...string) (*subject, string) {
	t.Helper()
	return startWindowsAs(t, "-pie", args...)
}

func startWindowsAs(t *testing.T, kind string, args ...string) (*subject, string) {
	t.Helper()
	prog := fixture.Build(t, "hazard_text.c", "-O2", kind, "-lpthread")
	return startSubject(t, prog, args...), prog
}

// quit ends the program and checks its status.
func (s *subject) quit() {
	s.t.Helper()
	if _, err := s.in.Write([]byte("q\n")); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != 7 {
		s.t.Errorf("the program ended with %v, want exit status 7", err)
	}
}

// alone probes each instruction of functions on its own, as a jump where it
// can be one, and all of a function together; the program must calculate the
// same, and the functions' entries be hit once a call.
func alone(t *testing.T, calls uint64, funcs ...string) {
	t.Helper()
	aloneAs(t, "-pie", calls, funcs...)
}

func aloneAs(t *testing.T, kind string, calls uint64, funcs ...string) {
	t.Helper()
	sub, prog := startWindowsAs(t, kind, fmt.Sprint(calls))
	want := sub.work()
	run := func(what string, defs []string) {
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, defs...)
		if got := sub.work(); got != want {
			t.Errorf("%s probed, the program printed %q, otherwise %q", what, got, want)
		}
		l.finish(sub.pid())
		for _, st := range l.s.Stats() {
			if st.Event.Name == "i0" && st.Hits != calls {
				t.Errorf("%s: %d hits of %d calls", what, st.Hits, calls)
			}
		}
	}
	for _, fn := range funcs {
		defs := everyInstruction(t, prog, fn)
		run(fn, defs)
		for _, d := range defs {
			run(d, []string{d})
		}
	}
	sub.quit()
}

// TestHazardW1: branches into what a jump would cover, from the function
// itself, from its cold part and from a table.
func TestHazardW1(t *testing.T) {
	alone(t, 40, "back_edge", "split", "split_cold", "inner_target", "forever")
}

// TestHazardW2: switch tables and computed gotos, also to no-ops behind a return,
// which are no padding then.
// In a program that is not position-independent a jump at the return can't be made
// of their bytes, which lead below all memory.
func TestHazardW2(t *testing.T) {
	for _, kind := range []string{"-pie", "-no-pie"} {
		t.Run(kind, func(t *testing.T) { aloneAs(t, kind, 40, "cases", "interpret", "padded") })
	}
}

// TestHazardR: branches without a long form, calls that read where they are,
// prefixes, operands relative to the instruction pointer.
func TestHazardR(t *testing.T) {
	t.Run("R2", func(t *testing.T) { alone(t, 40, "flags_loop") })
	t.Run("R3", func(t *testing.T) { alone(t, 40, "counted") })
	t.Run("R5", func(t *testing.T) { alone(t, 40, "pc_thunk", "caller") })
	t.Run("R6", func(t *testing.T) { alone(t, 40, "prefixes") })
}

// TestHazardW10: sites that fall over the end of a page.
func TestHazardW10(t *testing.T) {
	alone(t, 40, "page1", "page2", "page3", "page4", "pagew1", "pagew2", "pagew3", "pagew4")
}

// TestHazardW3 puts a jump in and takes it out while 8 threads spin in the
// instructions that it covers.
func TestHazardW3(t *testing.T) {
	const count = 400_000_000
	sub, _ := startWindows(t, fmt.Sprint(count), "spin", "8")
	defs := [][]string{{"p:s spin"}, {"p:s spin+1"}, {"p:s spin+2"}, {"p:s spin", "p:m spin+3"}}
	sub.line()
	hits := uint64(0)
	for i := range full(16, 1000) {
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, defs[i%len(defs)]...)
		tactics(t, l, "s")
		time.Sleep(time.Millisecond)
		if i == 0 && !waitUntil(func() bool { return l.stat("s").Hits > 0 }) {
			t.Error("nobody comes there")
		}
		l.finish(sub.pid())
		hits += l.stat("s").Hits
	}
	if hits == 0 {
		t.Error("no hit")
	}
	if got := sub.expect("done"); got != fmt.Sprint("done ", count*8) {
		t.Errorf("the program printed %q", got)
	}
	sub.quit()
}

// TestHazardW4 puts a jump over instructions between which a signal handler
// has interrupted a thread: the handler returns onto a guard.
func TestHazardW4(t *testing.T) {
	for _, def := range []string{"p:s spin", "p:s spin+1"} {
		for _, leave := range []bool{false, true} {
			t.Run(fmt.Sprint(def[4:], leave), func(t *testing.T) {
				sub, _ := startWindows(t, "1", "stale")
				sub.line()
				sub.expect("inside")
				l, _ := engage(t, sub.pid(), Options{CountOnly: true}, def)
				tactics(t, l, "s")
				if leave {
					l.finish(sub.pid())
				}
				sub.line()
				sub.expect("done")
				if !leave {
					l.finish(sub.pid())
					// The handler leaves three rounds, the first of which is begun.
					if st := l.stat("s"); st.Hits < 2 || st.Hits > 3 {
						t.Errorf("%d hits of two or three rounds", st.Hits)
					}
				}
				sub.quit()
			})
		}
	}
}

// TestHazardW8: where something else has patched the text, a probe is refused,
// and a jump is not laid over it.
func TestHazardW8(t *testing.T) {
	sub, _ := startWindows(t, "20")
	want := sub.work()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", sub.pid()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	bias := symbols.Addr(0)
	if err := s.engine.Tracer.Do(func() error {
		for _, tg := range s.engine.Targets {
			places, err := tg.Space.Resolve(symbols.Place{Symbol: "pagew1"})
			if err != nil {
				return err
			}
			bias = places[0].Addr
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var old [1]byte
	if _, err := mem.ReadAt(old[:], int64(bias)+2); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.WriteAt([]byte{int3}, int64(bias)+2); err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(t.Context(), parseDefs(t, "p:x pagew1+2")); err == nil || !strings.Contains(err.Error(), "another tracer's breakpoint") {
		t.Errorf("a probe where a breakpoint is: %v", err)
	}
	if err := s.Arm(t.Context(), parseDefs(t, "p:y pagew1")); err != nil {
		t.Errorf("a probe two bytes before a breakpoint: %v", err)
	}
	time.Sleep(time.Millisecond)
	var now [1]byte
	if _, err := mem.ReadAt(now[:], int64(bias)+2); err != nil || now[0] != int3 {
		t.Errorf("the other tracer's breakpoint was overwritten by %#x (%v)", now[0], err)
	}
	if _, err := mem.WriteAt(old[:], int64(bias)+2); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	if got := sub.work(); got != want {
		t.Errorf("afterwards the program printed %q, before %q", got, want)
	}
	sub.quit()
}
