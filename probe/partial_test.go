package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestPlacesWithoutVariable: of a glob's functions those are left out, and said,
// that have no such variable; it is an error if none has one.
func TestPlacesWithoutVariable(t *testing.T) {
	prog := callsFixture(t, "-O2", "-g")
	def := fmt.Sprintf("p:t %s:[tw]* n", prog) // tail_a, tail_b; work has a and s
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Check(space, parseDefs(t, def)[0]); err != nil || len(c.Sites) != 2 {
		t.Errorf("%s: %+v, %v, want 2 places", def, c, err)
	}
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog, "tail", "5")
		var warned []string
		o.Log = logTo(slog.LevelWarn, func(text string) { warned = append(warned, text) })
		s, err := Attach(context.Background(), []int{sub.pid()}, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		for bad, code := range map[string]fetch.Code{"nope": fetch.NoBTFArg, "s->nope": fetch.NoPtrStrct} {
			none := strings.TrimSuffix(def, "n") + bad
			var e *fetch.SyntaxError
			if err := s.Arm(context.Background(), parseDefs(t, none)); !errors.As(err, &e) || e.Code != code && e.Code != fetch.NoBTFArg {
				t.Errorf("%s: %v", none, err)
			}
		}
		warned = nil
		if err := s.Arm(context.Background(), parseDefs(t, def)); err != nil {
			t.Fatal(err)
		}
		if len(warned) != 1 || !strings.Contains(warned[0], "1 of 3 places are not probed") || !strings.Contains(warned[0], ": work (") || !strings.Contains(warned[0], "no variable n in work") {
			t.Errorf("warned %q", warned)
		}
		l := collecting(t, s)
		l.run()
		sub.work()
		l.finish(sub.pid())
		sub.end()
		if st := l.stat("t"); st.Hits != 10 {
			t.Errorf("%d hits, want 10 of tail_a and tail_b: %v", st.Hits, l.sink.all())
		}
	}
}

// TestLabelInsideInstruction: a pattern leaves a symbol out that lies inside an instruction,
// and says so; by its name alone it is an error.
func TestLabelInsideInstruction(t *testing.T) {
	prog := fixture.Build(t, "inside_label.c", "-O1")
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Check(space, parseDefs(t, "p:t inside_label:lab_*")[0]); err != nil || len(c.Sites) != 2 {
		t.Errorf("%+v, %v, want 2 places", c, err)
	}
	sub := startSubject(t, prog)
	var warned []string
	s, err := Attach(context.Background(), []int{sub.pid()}, Options{
		Log: logTo(slog.LevelWarn, func(text string) { warned = append(warned, text) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	var inside *BoundaryError
	for _, def := range []string{"p:t lab_inside", "p:t lab_ins*"} {
		if err := s.Arm(context.Background(), parseDefs(t, def)); !errors.As(err, &inside) {
			t.Errorf("%s: %v, want a BoundaryError", def, err)
		}
	}
	if err := s.Arm(context.Background(), parseDefs(t, "p:t lab_*")); err != nil {
		t.Fatal(err)
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "1 of 3 places are not probed") {
		t.Errorf("warned %q", warned)
	}
	l := collecting(t, s)
	l.run()
	if got := sub.work(); got != "done 300" {
		t.Errorf("the program printed %q", got)
	}
	l.finish(sub.pid())
	sub.end()
	if st := l.stat("t"); st.Hits != 200 {
		t.Errorf("%d hits, want 200", st.Hits)
	}
}
