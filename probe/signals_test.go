package probe

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// faultModes are the ways of probe_faults to run: what is probed, how often
// the program goes round, and how often each event is hit in n rounds.
var faultModes = []struct {
	mode  string
	count int
	defs  []string
	hits  map[string]func(n int) int
}{
	{"prof", 2000, []string{"p:in work a=$arg1", "r:out work v=$retval"},
		map[string]func(int) int{"in": twice, "out": twice}},
	{"repair", 50, []string{
		"p:load load p=$arg1", "p:push push_load", "p:call call_load+4", "p:add store_add n=$arg2", "p:copy copy+3 n=%cx",
		"p:rip load_rip", "p:nothing nothing", "r:rload load v=$retval", "r:rcall call_load"},
		map[string]func(int) int{"load": id, "push": id, "call": id, "add": id, "copy": id, "rip": id, "nothing": id, "rload": id, "rcall": id}},
	{"skip", 200, []string{"p:load load p=$arg1", "r:out load v=$retval"}, map[string]func(int) int{"load": id, "out": id}},
	{"jump", 300, []string{"p:load load", "r:out jumps_out", "r:rload load", "p:handler jump_segv", "p:sj libc:siglongjmp"},
		map[string]func(int) int{"load": id, "out": none, "rload": none, "handler": id, "sj": id}},
	{"same", 300, []string{"p:load load"}, map[string]func(int) int{"load": id}},
	{"int3", 200, []string{"p:own own_int3", "p:work work", "p:after own_int3+4", "r:out own_int3", "p:trap on_trap"},
		map[string]func(int) int{"own": id, "work": id, "after": id, "out": id, "trap": thrice}},
	{"block", 300, []string{"p:in work a=$arg1", "r:out work"}, map[string]func(int) int{"in": id, "out": id}},
	{"ignore", 300, []string{"p:in work a=$arg1", "r:out work"}, map[string]func(int) int{"in": id, "out": id}},
	{"alt", 200, []string{"p:in work a=$arg1", "r3:out work", "r2:usr on_usr", "r:raise libc:raise"},
		map[string]func(int) int{"in": fourfold, "out": fourfold, "usr": id, "raise": id}},
}

func none(int) int       { return 0 }
func twice(n int) int    { return 2 * n }
func thrice(n int) int   { return 3 * n }
func fourfold(n int) int { return 4 * n }

// TestFaults runs programs whose signals and faults meet probes. The program
// itself checks what its handlers see (instruction pointer, address, how
// often); it must find what it finds without kprobe, and each execution of a
// probed instruction is one hit, however often it faulted.
func TestFaults(t *testing.T) { testFaults(t, fixture.Build(t, "probe_faults.c", "-O2")) }

// TestFaultsUnwinder does it with an unwinder in the process: no return may be
// followed by a return trampoline.
func TestFaultsUnwinder(t *testing.T) {
	testFaults(t, fixture.Build(t, "probe_faults.c", "-O2", "-Wl,--no-as-needed", "-lgcc_s"))
}

func testFaults(t *testing.T, prog string) {
	for _, m := range faultModes {
		t.Run(m.mode, func(t *testing.T) {
			args := []string{m.mode, fmt.Sprint(m.count)}
			if want := plain(t, prog, args...); !strings.HasSuffix(want, "bad 0") {
				t.Fatalf("the fixture is wrong: it printed %q", want)
			}
			late := slices.Contains([]string{"repair", "skip", "jump", "same"}, m.mode)
			l := unharmedBut(t, prog, Options{}, m.defs, late, args...)
			if late {
				unharmed(t, prog, Options{}, m.defs, append(args, "early")...)
			}
			for name, f := range m.hits {
				if st := l.stat(name); st.Hits != uint64(f(m.count)) || st.Missed != 0 {
					t.Errorf("%s: %d hits and %d missed, want %d and 0", name, st.Hits, st.Missed, f(m.count))
				}
			}
		})
	}
}

// TestEveryFaultingInstruction probes all instructions around the faulting
// ones at once: copies that meet copies.
func TestEveryFaultingInstruction(t *testing.T) {
	prog := fixture.Build(t, "probe_faults.c", "-O2")
	var defs []string
	for _, fn := range []string{"load", "load_rip", "push_load", "call_load", "store_add", "copy", "on_segv"} {
		for _, d := range everyInstruction(t, prog, fn) {
			defs = append(defs, strings.Replace(d, "p:i", "p:"+fn+"_", 1))
		}
	}
	want := plain(t, prog, "repair", "20")
	sub := startSubject(t, prog, "repair", "20")
	l := attach(t, sub.pid(), Options{}, defs...)
	l.fallbacks = l.s.engine.Targets[sub.pid()].Area.Fallbacks // the program's handler is laid over one
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	for _, st := range l.s.Stats() {
		want := uint64(20)
		if strings.HasPrefix(st.Event.Name, "on_segv") {
			continue // its branches are not all taken
		}
		if st.Hits != want {
			t.Errorf("%s: %d hits, want %d", st.Event.Name, st.Hits, want)
		}
	}
}

// processState is the letter of proc_pid_stat(5).
func processState(pid int) string {
	st, err := procfs.Process(pid).Stat()
	if err != nil {
		return ""
	}
	return string(rune(st.State()))
}

// TestStopAndContinue stops the program by SIGSTOP while it is traced: it
// stays stopped, and all is as before after SIGCONT.
func TestStopAndContinue(t *testing.T) {
	prog := fixture.Build(t, "probe_faults.c", "-O2")
	want := plain(t, prog, "slow", "100")
	sub := startSubject(t, prog, "slow", "100")
	l := attach(t, sub.pid(), Options{}, "p:in work a=$arg1", "r:out work v=$retval")
	sub.line()
	for range 3 {
		time.Sleep(20 * time.Millisecond)
		if err := syscall.Kill(sub.pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// At a breakpoint it is stopped, too: it is now where it stays so.
		stays := func() bool {
			before := l.stat("in").Hits
			time.Sleep(50 * time.Millisecond)
			state := processState(sub.pid())
			return l.stat("in").Hits == before && (state == "T" || state == "t")
		}
		if !waitUntil(stays) {
			t.Errorf("the program runs although it was stopped")
		}
		if before := l.stat("in").Hits; !stays() {
			t.Errorf("%d hits while the program was stopped, which is in state %s", l.stat("in").Hits-before, processState(sub.pid()))
		}
		if err := syscall.Kill(sub.pid(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if got := sub.expect("done"); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	for _, ev := range []string{"in", "out"} {
		if st := l.stat(ev); st.Hits != 100 {
			t.Errorf("%s: %d hits, want 100", ev, st.Hits)
		}
	}
}

// TestDetachWhileStopped leaves a program that SIGSTOP has stopped: it stays
// stopped until SIGCONT, and then runs on.
func TestDetachWhileStopped(t *testing.T) {
	prog := fixture.Build(t, "probe_faults.c", "-O2")
	want := plain(t, prog, "slow", "60")
	sub := startSubject(t, prog, "slow", "60")
	l := attach(t, sub.pid(), Options{}, "p:in work a=$arg1", "r:out work v=$retval")
	sub.line()
	time.Sleep(20 * time.Millisecond)
	if err := syscall.Kill(sub.pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	l.stop()
	<-l.done
	if err := l.s.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	if !waitUntil(func() bool { return processState(sub.pid()) == "T" && !traced(sub.pid()) }) {
		t.Errorf("left while stopped, the program is not as it was: %s", threadStates(sub.pid()))
	}
	if err := syscall.Kill(sub.pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := sub.expect("done"); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	checkClean(t, sub.pid())
	sub.end()
}
