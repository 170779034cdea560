package probe

import (
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// functionsIn gives the places of those functions of a process's program of which it has
// just one.
func functionsIn(t *testing.T, pid int, names ...string) (funcs []symbols.Place) {
	t.Helper()
	space, err := symbols.OpenProcess(pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := space.Modules()[0]
	for _, name := range names {
		if syms := m.File.Lookup(name); len(syms) == 1 {
			funcs = append(funcs, symbols.Place{Kind: symbols.PlaceVaddr, Module: m.Name, Value: uint64(syms[0].Vaddr)})
		}
	}
	return funcs
}

// TestGoEveryInstruction probes every instruction of functions of Go: where they
// check their stack, have it grown, or don't check it at all, down to the last
// byte of some stacks. The program computes what it computes without kprobe, and
// each instruction of one that doesn't branch is hit once a call. Hazard D5.
func TestGoEveryInstruction(t *testing.T) {
	prog := fixture.Build(t, "probe_go.go")
	want := plain(t, prog)
	sub := startSubject(t, prog)
	funcs := functionsIn(t, sub.pid(), "main.leaf", "main.walk", "main.chain", "main.link", "main.last", "main.grow", "main.spin", "main.caught",
		"runtime.nanotime1", "runtime.findObject", "runtime.acquirem", "runtime.releasem", "runtime.casgstatus", "runtime.newstack")
	var defs []string
	leaf := map[string]bool{} // those of main.leaf, the first: each is run once a call
	for i, list := range instructionsOf(t, sub.pid(), funcs) {
		for _, d := range list {
			if i == 0 {
				name, _, _ := strings.Cut(strings.TrimPrefix(d, "p:"), " ")
				leaf[name] = true
			}
		}
		defs = append(defs, list...)
	}
	l := attach(t, sub.pid(), Options{CountOnly: true}, defs...)
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	tight, jumps := noRoomHits(l), 0
	for _, st := range l.s.Stats() {
		n, why := optimizedOf(l, st.Event.Name)
		if jumps += n; n == 0 {
			t.Logf("%s is a breakpoint: %s", st.Event.Name, why)
		}
		if want := goCalls["leaf"]; leaf[st.Event.Name] && st.Hits != want {
			t.Errorf("%s: %d hits, want %d", st.Event.Name, st.Hits, want)
		}
	}
	if len(leaf) == 0 || len(defs) < 300 || jumps*100 < len(defs)*90 {
		t.Errorf("only %d of %d instructions are probed by a jump", jumps, len(defs))
	}
	l.finish(sub.pid())
	sub.end()
	t.Logf("%d of %d by jumps; %d hits had no room on the stack", jumps, len(defs), tight)
	if tight == 0 {
		t.Error("no stack was so small that a detour had no room: nothing was shown")
	}
}
