package probe

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

func assumes(t *testing.T) string {
	return fixture.Build(t, "hazard_assumes.c", "-O2", "-g", "-fno-stack-protector")
}

// forbidsTime reports whether rdtsc faults on this machine once a program has forbidden it to
// itself. Some virtual machines run it nevertheless, whatever the kernel has set (CR4.TSD).
func forbidsTime(t *testing.T, prog string) bool {
	t.Helper()
	out, err := exec.Command(prog, "forbids").Output()
	if s := string(out); err != nil || s != "yes\n" && s != "no\n" {
		t.Fatalf("does rdtsc fault here? %q, %v", out, err)
	}
	return string(out) == "yes\n"
}

// The kinds of detours, for probes of step.
var kinds = []struct {
	name string
	o    Options
	defs []string
}{
	{"record", Options{}, []string{"p:a step v=$arg1"}},
	{"several", Options{}, []string{"p:a step", "p:b step v=$arg1 if v > 150", "p:c step"}},
	{"count", Options{CountOnly: true}, []string{"p:a step"}},
	{"text", Options{}, []string{"p:a step s=+0($arg2):string"}},
	{"filter", Options{}, []string{"p:a step v=$arg1 s=+0($arg2):string if v >= 0 && s ~ 'a*'"}},
	{"name", Options{}, []string{"p:a step c=$comm t=$tid n=$time"}},
	{"return", Options{}, []string{"r:a step v=$retval"}},
	{"both", Options{}, []string{"p:a step", "r:b step v=$retval s=+0($arg2):string"}},
	{"jprobe", Options{}, []string{"j:a step"}},
	{"stack", Options{}, []string{"p:a step stack"}},
	{"breakpoint", Options{NoOptimize: true}, []string{"p:a step v=$arg1", "r:b step"}},
}

// A program whose fs base is 0, or leads elsewhere than to its thread's control
// block, that has forbidden itself to read the time, or all system calls: it does
// what it does without probes, and every number is true.
func TestHazardD12(t *testing.T) {
	harmless(t, "fs0", "fsnone", "fszero", "fsjunk", "tsc", "strict", "blocked", "ignored")
}

// A program that checks the alignment of what it reads, or takes from detours the
// memory that they write to.
func TestHazardD16(t *testing.T) { harmless(t, "align", "protect", "unmap") }

// harmless runs the program in each mode with each kind of detour: it must do what it
// does without, and each of its 200 calls be counted, as its own.
func harmless(t *testing.T, modes ...string) {
	t.Helper()
	prog := assumes(t)
	forbids := forbidsTime(t, prog)
	for _, mode := range modes {
		want := plain(t, prog, mode)
		for _, k := range kinds {
			if mode == "strict" && k.name == "name" && !forbids {
				t.Logf("%s-%s: this machine lets rdtsc through, so strict seccomp can't be noticed (HAZARDS D13)", mode, k.name)
				continue
			}
			t.Run(mode+"-"+k.name, func(t *testing.T) {
				sub := startSubject(t, prog, mode)
				l := attach(t, sub.pid(), k.o, k.defs...)
				if got := sub.work(); got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				sum := l.finish(sub.pid())
				for _, st := range sum.Stats {
					if (mode == "protect" || mode == "unmap") && st.Missed == 200 && st.Hits == 0 && strings.Contains(strings.Join(k.defs, " "), "r:"+st.Event.Name+" ") {
						continue // a call can't be noted
					}
					if st.Hits != 200 || st.Lost != 0 || st.Missed != 0 {
						t.Errorf("%s: %+v", st.Event.Name, st)
					}
				}
				for tid := range l.sink.tids {
					if tid != sub.pid() {
						t.Errorf("%d hits are thread %d's", l.sink.tids[tid], tid)
					}
				}
				sub.end()
			})
		}
	}
}

// Threads that raw clone has made, with their parent's control block: each hit is
// its own thread's.
func TestHazardD12Clone(t *testing.T) {
	prog := assumes(t)
	want := plain(t, prog, "clone")
	sub := startSubject(t, prog, "clone")
	l := attach(t, sub.pid(), Options{}, "p:a step t=$tid")
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	if len(l.sink.tids) != 5 || l.sink.tids[sub.pid()] != 800 {
		t.Errorf("hits by thread: %v", l.sink.tids)
	}
	for _, s := range l.sink.all() {
		var tid int
		if _, err := fmt.Sscanf(s, "a t=%d", &tid); err != nil || l.sink.tids[tid] == 0 {
			t.Fatalf("a hit says %q", s)
		}
	}
	sub.end()
}

// Stacks that end at each distance below a call: where the program's instruction
// overflows, it is shown that at its own instruction, with its own registers and
// address; where only the detour's frame has no room, it sees nothing. No hit is
// lost.
func TestHazardD14(t *testing.T) {
	prog := assumes(t)
	want := plain(t, prog, "guard")
	sites := func(format string) (defs []string) {
		for i, at := range []string{"leaf", "pusher", "pusher+1", "pusher+3", "caller", "caller+5", "toucher", "toucher+8"} {
			defs = append(defs, fmt.Sprintf(format, i, at))
		}
		return defs
	}
	for _, k := range []struct {
		name string
		o    Options
		defs []string
	}{
		{"record", Options{}, sites("p:a%d %s v=%%ax")},
		{"count", Options{CountOnly: true}, sites("p:a%d %s")},
		{"text", Options{}, sites("p:a%d %s s=+0(%%si):string c=$comm")},
		{"filter", Options{}, sites("p:a%d %s v=%%di w=%%si:x64 if v < 5000")},
		{"array", Options{}, sites("p:a%d %s v=+0(%%sp):x64[32] w=%%di if w < 100")},
		{"return", Options{}, []string{"r:a leaf v=$retval", "r:b pusher", "r:c caller", "r:d toucher", "r:e hopper v=$retval"}},
		{"entry", Options{}, []string{"r:a leaf v=$retval w=%di s=+0($arg2):string", "p:b leaf", "r:c caller v=$arg1", "r:d hopper s=+0($arg2):string"}},
		{"stack", Options{}, sites("p:a%d %s stack")},
	} {
		t.Run(k.name, func(t *testing.T) {
			count := func(o Options) (hits, calls []uint64) {
				sub := startSubject(t, prog, "guard")
				l := attach(t, sub.pid(), o, k.defs...)
				if got := sub.work(); got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				for _, st := range l.finish(sub.pid()).Stats {
					hits, calls = append(hits, st.Hits), append(calls, st.Hits+st.Missed)
					if st.Lost != 0 {
						t.Errorf("lost: %+v", st)
					}
				}
				sub.end()
				return hits, calls
			}
			traps := k.o
			traps.NoOptimize = true
			// A call that overflows is no return; one whose detour can't note it is missed.
			hits, calls := count(k.o)
			want, _ := count(traps)
			for i := range want {
				if hits[i] > want[i] || calls[i] < want[i] {
					t.Errorf("%s: %d hits of %d calls; %d hits as a breakpoint", k.defs[i], hits[i], calls[i], want[i])
				}
			}
		})
	}
}

// A stack pointer that is 0, none at all, or leads to data, between instructions
// that set it: the data stays as it is, and the program sees nothing.
func TestHazardD15(t *testing.T) {
	prog := assumes(t)
	for _, o := range []Options{{}, {NoOptimize: true}} {
		var defs []string
		for i, at := range []int{0, 3, 6, 7, 8, 9, 13, 18, 19, 20, 21, 24, 28} {
			defs = append(defs, fmt.Sprintf("p:s%d stray+%d v=%%sp w=$stack1", i, at))
		}
		l := unharmed(t, prog, o, defs, "stray")
		for _, st := range l.sum.Stats {
			if st.Hits != 260 || st.Lost != 0 {
				t.Errorf("%s: %+v", st.Event.Name, st)
			}
		}
	}
}

// Kprobe comes and goes while the program's stack overflows, and its detours' frames
// have no room, all the time.
func TestHazardD14Leave(t *testing.T) {
	sub := startSubject(t, assumes(t), "guards")
	for i := range full(20, 300) {
		l := attach(t, sub.pid(), Options{CountOnly: true, NoOptimize: i%5 == 4}, "p:a leaf", "p:b pusher", "p:c caller+5", "r:d toucher", "r:e caller")
		if !waitUntil(func() bool { return l.stat("a").Hits > 200 }) {
			t.Fatalf("no hits; the program printed %q", sub.work())
		}
		l.stop()
		<-l.done
		// A fallback handler that a thread is in, or may still enter, stays.
		if err := l.s.Close(t.Context()); err != nil || l.err != nil {
			t.Error(err, l.err)
		}
	}
	if got := sub.work(); got != "done the same" {
		t.Errorf("the program printed %q", got)
	}
	sub.end()
}

// Kprobe is killed while detours ask and stacks have no room, in the code behind a
// return too, whether the program has a handler of SIGSEGV or not: it goes on. An alternate stack
// it must have, as for any signal there.
func TestHazardD14Killed(t *testing.T) {
	bin := buildKprobe(t)
	for _, c := range []struct{ mode, def string }{
		{"guards", "p:a leaf s=+0(%si):string"},
		{"guards", "r:a leaf"},
		{"guards", "r:a hopper"},
		{"guards", "r:a hopper s=+0($arg2):string"},
		{"bare", "p:a leaf"},
		{"bare", "r:a leaf v=$arg1"},
		{"bare", "r:a hopper"},
		{"bare", "p:a toucher c=$comm"},
		{"odds", "p:a step s=+0(%si):string"},
		{"odds", "p:a step c=$comm"},
		{"odds", "p:a step"},
		{"odds", "r:a step"},
		{"odds", "r:a step s=+0($arg2):string"},
	} {
		t.Run(c.mode+" "+c.def, func(t *testing.T) {
			sub := startSubject(t, assumes(t), c.mode)
			trace := newFile(t).Name()
			k := startKprobe(t, bin, "trace", "-o", trace, "-p", fmt.Sprint(sub.pid()), c.def)
			prints(t, trace)
			const segv = 1 << 10
			st, err := procfs.Process(sub.pid()).Status()
			if err != nil {
				t.Fatal(err)
			}
			if set, err := strconv.ParseUint(st.Field("SigCgt"), 16, 64); err != nil || set&segv == 0 {
				t.Fatal("no fallback handler for SIGSEGV")
			}
			k.kill(killBoth)
			<-k.done
			runsOn(t, sub.pid())
			if got := sub.work(); got != "done the same" {
				t.Errorf("the program printed %q", got)
			}
			if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
				t.Error(err)
			}
			sub.end()
		})
	}
}

// A program of OCaml makes exceptions of its overflows.
func TestHazardD14OCaml(t *testing.T) {
	prog := buildOCaml(t, "hazard_overflow.ml", "overflow")
	for _, defs := range [][]string{{"p:d camlOverflow__deep_*", "p:o camlOverflow__other_*"}, {"r:d camlOverflow__deep_*", "r:o camlOverflow__other_*"}} {
		l := unharmed(t, prog, Options{CountOnly: true}, defs)
		if st := l.sum.Stats[0]; st.Hits+st.Missed < 1000 {
			t.Errorf("%+v", st)
		}
	}
}
