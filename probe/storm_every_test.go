package probe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/assess"
	"kprobe/symbols"
)

// everyVariants are the programs of which every instruction is probed. Those
// that are not full run in CI.
var everyVariants = []struct {
	name, source string
	flags        []string
	full         bool
}{
	{"C-O0", "storm_every.c", []string{"-O0", "-w", "-lm"}, true},
	{"C-O2", "storm_every.c", []string{"-O2", "-w", "-lm"}, false},
	{"C-O3", "storm_every.c", []string{"-O3", "-march=native", "-w", "-lm"}, true},
	{"C-static", "storm_every.c", []string{"-O2", "-w", "-static", "-lm"}, true},
	{"C++-O0", "storm_every.cc", []string{"-O0", "-std=c++20", "-w"}, true},
	{"C++-O2", "storm_every.cc", []string{"-O2", "-std=c++20", "-w"}, false},
	{"C++-O3", "storm_every.cc", []string{"-O3", "-std=c++20", "-w"}, true},
}

// startEvery starts a program of the same addresses each time.
func startEvery(t *testing.T, prog string, args ...string) *subject {
	t.Helper()
	return startSubject(t, fixture.NeedTool(t, "setarch"), append([]string{"-R", prog}, args...)...)
}

// inSyscall reports whether a process's first thread waits in a system call: how /proc
// tells of it, its number first.
func inSyscall(pid int, call string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
	return err == nil && strings.HasPrefix(string(b), call)
}

// waits returns when the program's first thread waits for input.
func (s *subject) waits() {
	s.t.Helper()
	if !waitUntil(func() bool { return inSyscall(s.pid(), "0 0x0 ") }) { // read(0, …)
		s.t.Fatalf("the program does not read: %s", threadStates(s.pid()))
	}
}

// reached lists the functions that a round of the program calls.
func reached(t *testing.T, prog string) (out []symbols.Place) {
	t.Helper()
	sub := startEvery(t, prog, "1", "1")
	l, _ := engage(t, sub.pid(), Options{CountOnly: true})
	space, err := symbols.OpenProcess(sub.pid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]symbols.Place{}
	var defs []string
	for _, m := range space.Modules() {
		if m.File == nil || m.Name == "[vdso]" {
			continue
		}
		seen := map[symbols.Vaddr]bool{}
		for _, f := range m.File.Funcs() {
			if f.End <= f.Start || seen[f.Start] || f.Symbol.Name == "__restore_rt" {
				continue
			}
			seen[f.Start] = true
			name := fmt.Sprintf("f%d", len(defs))
			at[name] = symbols.Place{Kind: symbols.PlaceVaddr, Module: m.Name, Value: uint64(f.Start)}
			defs = append(defs, fmt.Sprintf("p:%s %s", name, at[name]))
		}
	}
	if err := l.s.Arm(t.Context(), parseDefs(t, defs...)); err != nil {
		t.Fatal(err)
	}
	if got := sub.work(); got != "done 0" {
		t.Fatalf("with each function's entry probed it printed %q", got)
	}
	l.finish(sub.pid())
	sub.end()
	for _, st := range l.s.Stats() {
		if st.Hits > 0 {
			out = append(out, at[st.Event.Name])
		}
	}
	return out
}

// instructionsOf lists definitions for the instructions of functions of a
// running program, function by function.
func instructionsOf(t *testing.T, pid int, funcs []symbols.Place) (out [][]string) {
	t.Helper()
	space, err := symbols.OpenProcess(pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sites []symbols.Site
	for _, p := range funcs {
		at, err := space.Resolve(p)
		if err != nil {
			t.Fatal(err)
		}
		sites = append(sites, at...)
	}
	j, err := assess.NewJudge(space, sites)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, w := range sites {
		l, err := j.Inspect(w)
		if err != nil {
			t.Errorf("%v: %v", funcs[i], err)
			continue
		}
		var defs []string
		for _, line := range l.Lines {
			if line.Probe == KindRefused {
				continue
			}
			n++
			defs = append(defs, fmt.Sprintf("p:i%d_%x %s:0x%x", n, line.Offset, funcs[i].Module, uint64(l.Module.Vaddr(line.Addr))))
		}
		if len(defs) > 0 {
			out = append(out, defs)
		}
	}
	return out
}

// TestStormEvery puts probes on all instructions of a program's functions and
// of those of its libraries that it calls, and takes them out, in batches of
// every size, while four threads work: each round has the result of before.
func TestStormEvery(t *testing.T) {
	forEvery(t, func(t *testing.T, prog string, funcs []symbols.Place) {
		for _, o := range []Options{{CountOnly: true}, {CountOnly: true, NoOptimize: true}} {
			stormEvery(t, prog, funcs, o, time.Duration(full(1, 60))*time.Second)
		}
	})
}

// forEvery tests with each variant of the program and the functions that it
// reaches.
func forEvery(t *testing.T, test func(t *testing.T, prog string, funcs []symbols.Place)) {
	for _, v := range everyVariants {
		t.Run(v.name, func(t *testing.T) {
			if v.full && full(0, 1) == 0 {
				return
			}
			prog := fixture.Build(t, v.source, v.flags...)
			test(t, prog, reached(t, prog))
		})
	}
}

func stormEvery(t *testing.T, prog string, funcs []symbols.Place, o Options, span time.Duration) {
	t.Helper()
	sub := startEvery(t, prog, "4")
	text := sameText(t, sub.pid())
	l, _ := engage(t, sub.pid(), o)
	all := instructionsOf(t, sub.pid(), funcs)
	sub.line()
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	var in [][]*Event // the batches that are in
	armed, changes := 0, 0
	for end := time.Now().Add(span); time.Now().Before(end); {
		if len(in) > 0 && (armed > 3000 || rng.IntN(5) < 2) {
			k := rng.IntN(len(in))
			batch := in[k]
			if rng.IntN(3) == 0 && len(batch) > 1 { // a part of it
				rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
				n := 1 + rng.IntN(len(batch)-1)
				in[k], batch = batch[n:], batch[:n]
			} else {
				in = slices.Delete(in, k, k+1)
			}
			if err := l.s.Remove(t.Context(), batch...); err != nil {
				t.Fatalf("remove %d: %v", len(batch), err)
			}
			armed -= len(batch)
			changes += len(batch)
			continue
		}
		defs := pick(rng, all)
		for i, d := range defs {
			defs[i] = strings.Replace(d, ":i", fmt.Sprintf(":b%d_", changes), 1)
		}
		link, err := l.s.Add(t.Context(), parseDefs(t, defs...))
		var refused *DefError
		if errors.As(err, &refused) {
			t.Fatalf("add %d: %v", len(defs), err)
		} else if err != nil {
			t.Fatal(err)
		}
		evs := link.Events()
		in = append(in, evs)
		armed += len(evs)
		changes += len(evs)
	}
	t.Logf("%d probes were put in or taken out", changes)
	sub.line()
	if got := sub.expect("done"); got != "done 0" {
		t.Errorf("probed, it printed %q", got)
	}
	l.finish(sub.pid())
	if got := sameText(t, sub.pid()); got != text {
		t.Errorf("its text is\n%s\nand was\n%s", got, text)
	}
	sub.end()
}

// pick takes instructions: all of a function, some of one, or some of all.
func pick(rng *rand.Rand, all [][]string) (out []string) {
	f := all[rng.IntN(len(all))]
	switch rng.IntN(4) {
	case 0:
		out = slices.Clone(f)
	case 1:
		for _, d := range f {
			if rng.IntN(2) == 0 {
				out = append(out, d)
			}
		}
	case 2:
		from := rng.IntN(len(f))
		out = slices.Clone(f[from:min(len(f), from+1+rng.IntN(12))])
	default:
		for range 1 + rng.IntN(300) {
			f := all[rng.IntN(len(all))]
			if d := f[rng.IntN(len(f))]; !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	if len(out) == 0 {
		out = []string{f[0]}
	}
	return out
}

// TestCountEvery counts the executions of instructions, of one thread that does
// the same each time: jumps and breakpoints count the same.
func TestCountEvery(t *testing.T) {
	forEvery(t, func(t *testing.T, prog string, funcs []symbols.Place) {
		seed := uint64(time.Now().UnixNano())
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(funcs), func(i, j int) { funcs[i], funcs[j] = funcs[j], funcs[i] })
		t.Logf("seed %d", seed)
		for range full(1, 20) {
			// Those that the instructions of the first functions fill up.
			jumps := countEvery(t, prog, funcs, Options{CountOnly: true})
			traps := countEvery(t, prog, funcs, Options{CountOnly: true, NoOptimize: true})
			bad := 0
			for name, n := range jumps {
				if traps[name] != n {
					if bad++; bad < 20 {
						t.Errorf("%s: %d hits by jumps, %d by breakpoints", name, n, traps[name])
					}
				}
			}
			rng.Shuffle(len(funcs), func(i, j int) { funcs[i], funcs[j] = funcs[j], funcs[i] })
		}
	})
}

// countEvery gives the hits of the first functions' instructions in one round,
// by place.
func countEvery(t *testing.T, prog string, funcs []symbols.Place, o Options) map[string]uint64 {
	t.Helper()
	const most = 2500 // at once
	sub := startEvery(t, prog, "1", "1")
	sub.waits()
	l, _ := engage(t, sub.pid(), o)
	var defs []*fetch.Def
	for _, f := range instructionsOf(t, sub.pid(), funcs[:min(len(funcs), 60)]) {
		if len(defs)+len(f) <= most {
			defs = append(defs, parseDefs(t, f...)...)
		}
	}
	if err := l.s.Arm(t.Context(), defs); err != nil {
		t.Fatal(err)
	}
	if got := sub.work(); got != "done 0" {
		t.Errorf("probed, it printed %q", got)
	}
	sub.waits()
	l.finish(sub.pid())
	sub.end()
	counts, sum := map[string]uint64{}, uint64(0)
	places := map[string]string{}
	for _, d := range defs {
		places[d.Event] = d.Place.String()
	}
	for _, st := range l.s.Stats() {
		counts[places[st.Event.Name]] = st.Hits
		sum += st.Hits
	}
	t.Logf("%d probes, %d hits", len(defs), sum)
	if sum == 0 {
		t.Error("nothing was hit")
	}
	return counts
}
