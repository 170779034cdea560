package probe

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestGoAssembly probes the instructions of the assembly that a Go program runs, a
// part of them at a time so that their jumps have room, and the entries alone, with
// records: registers that are taken to be free are changed at each hit, and the
// program computes what it computes without kprobe. Hazard D5.
func TestGoAssembly(t *testing.T) {
	prog := fixture.Build(t, "go_asm.go")
	want := plain(t, prog)
	const parts = 4
	defs := make([][]string, parts+1)
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	m := space.Modules()[0]
	n, entries := 0, 0
	for fn := range m.File.EachFunc() {
		name := fn.Symbol.Name
		// What starts threads and handles signals is run by kprobe's own doing, too.
		if m.File.GoKind(fn.Start) != symbols.GoAssembled || strings.Contains(name, "rt0") || strings.Contains(name, "sig") || fn.End <= fn.Start {
			continue
		}
		list, err := inspectAll(space, symbols.Place{Kind: symbols.PlaceVaddr, Module: m.Name, Value: uint64(fn.Start)})
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range list[0].Lines {
			if !line.Tactic.Jump() {
				continue
			}
			def := fmt.Sprintf(" %s:0x%x", m.Name, uint64(line.Addr))
			defs[i%parts] = append(defs[i%parts], fmt.Sprintf("p:i%d%s", n, def))
			if n++; line.Offset == 0 {
				entries++
				defs[parts] = append(defs[parts], fmt.Sprintf("p:e%d%s a=%%ax f=%%flags", n, def))
			}
		}
	}
	if n < 5000 || entries < 100 {
		t.Fatalf("only %d instructions, %d of them entries", n, entries)
	}
	for part, defs := range defs {
		if part > 0 && part < parts && os.Getenv("KPROBE_TEST_FULL") == "" {
			continue
		}
		sub := startSubject(t, prog)
		l := attach(t, sub.pid(), Options{CountOnly: part < parts}, defs...)
		if got := sub.work(); got != want {
			t.Errorf("part %d: probed, the program printed %q, otherwise %q", part, got, want)
		}
		hits, jumps, ran := uint64(0), 0, 0
		for _, st := range l.s.Stats() {
			n, _ := optimizedOf(l, st.Event.Name)
			jumps += n
			if hits += st.Hits; st.Hits > 0 {
				ran++
			}
		}
		l.finish(sub.pid())
		sub.end()
		t.Logf("part %d: %d of %d by jumps, %d were hit, %d hits, %d had no room on the stack", part, jumps, len(defs), ran, hits, noRoomHits(l))
		if jumps*100 < len(defs)*85 || ran*4 < len(defs) {
			t.Errorf("part %d: only %d of %d are jumps, %d were hit", part, jumps, len(defs), ran)
		}
	}
}
