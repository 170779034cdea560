package probe

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// TestHazardR10: a program that counts in restartable sequences of its own counts right,
// and isn't kept from it, while everything around them is probed. What can't be is
// refused, with what to do instead.
func TestHazardR10(t *testing.T) {
	prog := fixture.Build(t, "own_sequences.c", "-O2", "-pie", "-lpthread")
	file, err := symbols.OpenFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	threads, calls := 4, full(2_000, 100_000)
	sub := startSubject(t, prog, fmt.Sprint(threads), fmt.Sprint(calls))
	done := threads * calls
	want := fmt.Sprintf("done %d %d %d few", done, done, done)
	if got := sub.work(); got != want {
		t.Fatalf("without probes it prints %q, want %q", got, want)
	}
	for _, fn := range []string{"bump", "move"} {
		defs, refused := around(t, file, prog, fn)
		run := func(what string, o Options, defs []string) {
			t.Helper()
			l, _ := engage(t, sub.pid(), o, defs...)
			asItWas(t, sub.pid(), file, what)
			if got := sub.work(); got != want {
				t.Errorf("%s probed: it prints %q, want %q", what, got, want)
			}
			l.finish(sub.pid())
			for _, st := range l.s.Stats() {
				if st.Event.Name == "i0" && st.Hits < uint64(done) {
					t.Errorf("%s probed: %d hits of %d calls", what, st.Hits, done)
				}
			}
		}
		run("all of "+fn, Options{CountOnly: true}, defs)
		run("all of "+fn+", recorded", Options{}, defs)
		for _, d := range defs {
			run(d, Options{CountOnly: true}, []string{d})
		}
		l := attach(t, sub.pid(), Options{}, defs[0])
		for _, d := range refused {
			var e *RefusedError
			if err := l.s.Arm(t.Context(), parseDefs(t, d)); !errors.As(err, &e) || e.Many != survey.SequenceRule || !strings.Contains(e.Rule, "probe "+fn) {
				t.Errorf("%s: %v", d, err)
			}
		}
		l.finish(sub.pid())
	}
	var warned []string
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Log: logTo(slog.LevelWarn, func(text string) { warned = append(warned, text) })})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Arm(t.Context(), parseDefs(t, "p:some own_sequences:*o*")); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if all := strings.Join(warned, "\n"); !strings.Contains(all, ": 1 of ") || !strings.Contains(all, survey.SequenceRule) {
		t.Errorf("of a pattern that leaves a sequence out is said: %q", all)
	}
	sub.quit()
}

// asItWas compares what is to stay as it is with the file.
func asItWas(t *testing.T, pid int, file *symbols.File, what string) {
	t.Helper()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	m := mappedText(t, pid, file.Name)
	bias := m.Start - symbols.Addr(m.Off) // code lies as far from the file's start as in it
	for _, q := range file.Sequences() {
		for _, r := range [][2]symbols.Vaddr{{q.Start - 4, q.End}, {q.Abort - 4, q.Abort}} { // mov takes 4 bytes
			have := make([]byte, r[1]-r[0])
			want, err := file.Text(r[0], len(have))
			if _, err2 := mem.ReadAt(have, int64(bias)+int64(r[0])); err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if !bytes.Equal(have, want) {
				t.Errorf("%s probed: at %v is %x, in the file %x", what, r[0], have, want)
			}
		}
	}
}

// around gives a definition for each instruction of a function that can be probed, and
// for each that can't as a sequence is about.
func around(t *testing.T, file *symbols.File, prog, fn string) (defs, refused []string) {
	t.Helper()
	sequences := file.Sequences()
	if len(sequences) != 3 {
		t.Fatalf("%d sequences are found, want 3: %v", len(sequences), sequences)
	}
	for _, line := range inspectFile(t, prog, fn)[0].Lines {
		entry := file.Lookup(fn)[0].Vaddr
		at := entry + symbols.Vaddr(line.Offset)
		kept := false
		for _, q := range sequences {
			end := at + symbols.Vaddr(len(line.Bytes))
			kept = kept || at < q.End && end >= q.Start || at < q.Abort && end > q.Abort-4 // the signature
		}
		def := fmt.Sprintf("p:i%d %s+%d", line.Offset, fn, line.Offset)
		switch {
		case kept:
			if refused = append(refused, def); line.Probe != KindRefused {
				t.Errorf("%s+%d %s would be probed: %v", fn, line.Offset, line.Text, line.Probe)
			}
		case line.Probe != KindRefused:
			defs = append(defs, def)
		case !strings.Contains(line.Why, "trap instruction"):
			t.Errorf("%s+%d %s is refused: %s", fn, line.Offset, line.Text, line.Why)
		}
	}
	if len(refused) < 5 || len(defs) < 5 {
		t.Errorf("of %s %d instructions can be probed, %d not", fn, len(defs), len(refused))
	}
	return defs, refused
}
