package probe

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// leftSaying leaves a definition in a process, and gives what is said.
func leftSaying(t *testing.T, pid int, def string) string {
	t.Helper()
	var said []string
	s, err := Attach(t.Context(), []int{pid}, Options{Detach: true, Log: logTo(slog.LevelDebug, func(text string) { said = append(said, text) })})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(t.Context(), []*fetch.Def{parsed(t, def)}); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Detach(t.Context()); err != nil || len(out) > 0 {
		t.Fatal(out, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return strings.Join(said, "\n")
}

const (
	saysSequences = "hits are taken in restartable sequences from here on"
	saysNoted     = "hits ask the kernel once for each page"
)

// checkSwift checks that hits are taken in sequences, and that pages are noted.
func checkSwift(t *testing.T, said string) {
	t.Helper()
	for _, want := range []string{saysSequences, saysNoted} {
		if !strings.Contains(said, want) {
			t.Errorf("it doesn't say %q, but %q", want, said)
		}
	}
}

// What the kernel's probes have left in a process is code without a file, and in nobody's way.
func TestLeftAfterUprobes(t *testing.T) {
	k := openTracefs(t)
	prog := ownCopy(t, fixture.Build(t, "births.c", "-O2", "-pthread"))
	sub := startSubject(t, prog)
	k.add([]string{fmt.Sprintf("p:%s/tick %s:%#x", k.group, prog, fileOffsets(t, prog)["tick"])})
	enable := func(on string) {
		if err := os.WriteFile(filepath.Join(k.dir, "events", k.group, "enable"), []byte(on), 0); err != nil {
			t.Fatal(err)
		}
	}
	enable("1")
	sub.says("t")
	enable("0")
	maps, err := symbols.ReadMaps(sub.pid())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(maps, func(m symbols.Mapping) bool { return m.Path == "[uprobes]" && m.Exec }) {
		fixture.Missing(t, "a kernel whose probes leave a page")
	}
	checkSwift(t, leftSaying(t, sub.pid(), "p:tick tick a=$arg1:u64 s=+0($stack):u64 if a == 0x123456789"))
	sub.says("t")
	in, out := leftCounter(t, openedLive(t, sub.pid()), "tick", ring.CounterFiltered)
	if in == 0 || out > in {
		t.Errorf("%d hits are taken in sequences, %d by locked instructions", in, out)
	}
	sub.takenOut()
	sub.end()
}

// So are the fallback handlers that an earlier session has left to the program.
func TestLeftBesideFallbacks(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "sets_again.c", "-O1"))
	l, _ := engage(t, sub.pid(), Options{NoOptimize: true}, "p:w work")
	sub.line()
	sub.expect("set")
	l.fallbacks = l.s.engine.Targets[sub.pid()].Area.Fallbacks
	l.finish(sub.pid())
	maps, err := symbols.ReadMaps(sub.pid())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(maps, func(m symbols.Mapping) bool { return m.Path == "" && m.Exec }) {
		t.Fatal("no fallback handler is left")
	}
	checkSwift(t, leftSaying(t, sub.pid(), "p:w work s=+0($stack):u64"))
	if err := openedLive(t, sub.pid()).Remove(t.Context(), []string{"kprobes/w"}); err != nil {
		t.Fatal(err)
	}
	checkLeft(t, sub.pid(), true)
	endOfInput(t, sub)
}
