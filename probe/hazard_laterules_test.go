package probe

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/memory"
)

// TestHazardP45Rules leaves definitions that ask the kernel in a program, which then sets seccomp
// rules that kill it for what only they ask: by prctl, in a thread or in all, and by seccomp for all
// threads at once, while others hit the probes. It goes on. What was to be asked for is (fault) or
// empty from then on, and the numbers that need no question are as before.
func TestHazardP45Rules(t *testing.T) {
	for i, how := range []string{"main", "thread", "only", "main", "thread", "only", "main", "thread", "only"} {
		first := []string{"alone", "beside", "emptied"}[i/3]
		for name, flags := range map[string][]string{"dynamic": {"-O2", "-pthread"}, "static": {"-O2", "-static", "-pthread"}} {
			t.Run(how+"-"+name+"-"+first, func(t *testing.T) {
				sub := startSubject(t, fixture.Build(t, "hazard_seccomp.c", flags...))
				leaveFirst(t, sub, name == "static", first)
				leaveIn(t, sub.pid(), Options{Detach: true}, "p:late/name work n=$arg1:u64 c=$comm", "p:late/mem work m=+0($stack):u64 s=+0($arg1):string",
					`p:late/who work n=$arg1:u64 if comm == "hazard_seccomp.c"`)
				n := 0
				work := func(times int) {
					t.Helper()
					for range times {
						n++
						sub.line()
						sub.expect(fmt.Sprint(n))
					}
				}
				work(5)
				fmt.Fprintln(sub.in, how)
				sub.expect("set")
				work(50)
				sub.in.Close()
				_ = sub.cmd.Wait() // the status tells
				if status := sub.cmd.ProcessState; status.ExitCode() != 7 {
					t.Errorf("the program ended with %v, want 7", status)
				}
			})
		}
	}
}

// TestHazardP45RulesCaught leaves probes in a program that lives on by its handlers of faults, and that then sets
// seccomp rules which kill it for all but what it calls itself: rt_sigreturn, but not rt_sigprocmask. Its faults,
// which go through a fallback handler, reach its handlers as before.
func TestHazardP45RulesCaught(t *testing.T) {
	for name, flags := range map[string][]string{"dynamic": {"-O2"}, "static": {"-O2", "-static"}} {
		t.Run(name, func(t *testing.T) {
			sub := startSubject(t, fixture.Build(t, "hazard_caught.c", flags...))
			leaveIn(t, sub.pid(), Options{Detach: true}, "p:late/load work n=$arg1:u64 m=+0($stack):u64", "r:late/divide work2 v=$retval:u64")
			n := 0
			faults := func() {
				t.Helper()
				for range 5 {
					for _, what := range []string{"load", "divide"} {
						n++
						fmt.Fprintln(sub.in, what)
						sub.expect(fmt.Sprint("caught ", n))
					}
				}
			}
			faults()
			fmt.Fprintln(sub.in, "only")
			sub.expect("set")
			faults()
			sub.in.Close()
			_ = sub.cmd.Wait() // the status tells
			if status := sub.cmd.ProcessState; status.ExitCode() != 7 {
				t.Errorf("the program ended with %v, want 7", status)
			}
		})
	}
}

// TestHazardP45RulesStorm has threads ask the kernel all the time while another sets rules for all of
// them, which kill for that: none is caught between its last look and its question.
func TestHazardP45RulesStorm(t *testing.T) {
	prog := fixture.Build(t, "hazard_seccomp.c", "-O2", "-pthread")
	for i := range full(12, 400) {
		sub := startSubject(t, prog, "4")
		leaveIn(t, sub.pid(), Options{Detach: true, RingSize: 1 << 20}, "p:late/storm storm s=+0($arg1):string", "p:late/name storm c=$comm")
		time.Sleep(time.Duration(i%7) * time.Millisecond)
		fmt.Fprintln(sub.in, "only")
		sub.expect("set")
		r, err := OpenRecorder(sub.pid())
		if err != nil {
			t.Fatal(err)
		}
		if !waitUntil(func() bool {
			sink := &faultSink{hits: map[string]uint64{}, faults: map[string]uint64{}}
			if err := r.Snapshot(t.Context(), 0, sink); err != nil {
				t.Fatal(err)
			}
			return sink.faults["storm"] > 0
		}) {
			t.Error("hits ask still")
		}
		held, err := r.Held()
		if err != nil || !held.Rules {
			t.Errorf("it isn't told: %+v, %v", held, err)
		}
		r.Close()
		sub.in.Close()
		_ = sub.cmd.Wait() // the status tells
		if status := sub.cmd.ProcessState; status.ExitCode() != 7 {
			t.Fatalf("round %d: the program ended with %v, want 7", i, status)
		}
	}
}

// TestHazardP45RulesWait: who sets rules waits for a thread that asks, and not for ever.
func TestHazardP45RulesWait(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "hazard_seccomp.c", "-O2", "-pthread"))
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:late/name work c=$comm")
	l := openedLive(t, sub.pid())
	defer l.Close()
	var gate [8]byte
	if _, err := l.file().ReadAt(gate[:], l.snap.Layout.Header.Off+memory.HeaderGate); err != nil {
		t.Fatal(err)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", sub.pid()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	// As if a thread were in a question that never ends.
	if _, err := mem.WriteAt([]byte{1}, int64(binary.LittleEndian.Uint64(gate[:]))+engine.CallsOff); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	fmt.Fprintln(sub.in, "only")
	sub.expect("set")
	if d := time.Since(begin); d < 5*time.Millisecond || d > 10*time.Second {
		t.Errorf("the program has waited for %v", d)
	}
	sub.in.Close()
	_ = sub.cmd.Wait() // the status tells
	if status := sub.cmd.ProcessState; status.ExitCode() != 7 {
		t.Errorf("the program ended with %v, want 7", status)
	}
}
