package probe

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// piecePrograms is testdata/cold_calls.cc by GCC: with names, and without.
func piecePrograms(t *testing.T) (named, stripped string) {
	t.Helper()
	fixture.NeedTool(t, "g++")
	named = fixture.Build(t, "cold_calls.cc", "-O2")
	stripped = t.TempDir() + "/cold_stripped"
	if out, err := exec.Command(fixture.NeedTool(t, "strip"), "-o", stripped, named).CombinedOutput(); err != nil {
		t.Fatalf("strip: %v\n%s", err, out)
	}
	return named, stripped
}

// TestReturnOfPieces: a part of a function that is jumped to has no return: a
// pattern leaves it out, by name or address it is refused with the reason, with
// symbols or without. Calls that it leaves by throwing are in no count.
func TestReturnOfPieces(t *testing.T) {
	named, stripped := piecePrograms(t)
	space, err := symbols.OpenFileSpace(named)
	if err != nil {
		t.Fatal(err)
	}
	file := space.Modules()[0].File
	arena := file.Lookup("_ZN2ns6Server6handleEi.cold")
	if len(arena) != 1 {
		fixture.Missing(t, "a compiler that splits functions")
	}
	at := arena[0].Vaddr.String()
	for _, c := range []struct{ prog, place, reason string }{
		{named, "_ZN2ns6Server6handleEi.cold", "part of ns::Server::handle(int)"},
		{named, "ns::Server::handle(int).cold", "part of ns::Server::handle(int)"},
		{named, "*handle*cold", "part of ns::Server::handle(int)"},
		{named, "cold_calls:" + at, "part of ns::Server::handle(int)"},
		{stripped, "cold_stripped:" + at, "only jumps to this"},
		{stripped, "FDE_" + at, "only jumps to this"},
	} {
		place := strings.Replace(c.place, "cold_calls:", named+":", 1)
		place = strings.Replace(place, "cold_stripped:", stripped+":", 1)
		space, err := symbols.OpenFileSpace(c.prog)
		if err != nil {
			t.Fatal(err)
		}
		var refused *RefusedError
		if _, err := Check(space, parseDefs(t, "r "+place)[0]); !errors.As(err, &refused) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("r %s: %v, want %q", place, err, c.reason)
		}
		if _, err := Check(space, parseDefs(t, "p "+place)[0]); err != nil {
			t.Errorf("p %s: %v", place, err)
		}
	}
	for _, o := range []Options{{CountOnly: true}, {CountOnly: true, NoOptimize: true}} {
		for _, prog := range []string{named, stripped} {
			s, err := Start(t.Context(), Command{Path: prog, Args: []string{prog, "400"}}, o)
			if err != nil {
				t.Fatal(err)
			}
			pattern := "r:all ns::*"
			if prog == stripped {
				pattern = "r:all " + prog + ":*"
			}
			if err := s.Arm(t.Context(), parseDefs(t, pattern)); err != nil {
				t.Fatal(err)
			}
			sum, err := s.Run(t.Context(), &counter{})
			if err != nil || sum.Status.ExitStatus() != 42 {
				t.Errorf("status %d, %v; want 42", sum.Status, err)
			}
			hits := map[string]uint64{}
			for _, st := range s.PlaceStats() {
				hits[st.Place] = st.Hits
			}
			if n := hits["ns::Server::handle(int)"]; prog == named && (n != 300 || hits["ns::Server::retry(int)"] != 400) {
				t.Errorf("%+v: %v, want 300 calls of handle that returned and 400 of retry", o, hits)
			}
			for place, n := range hits {
				if strings.Contains(place, "cold") || place == "FDE_"+at {
					t.Errorf("%+v: %s: %d returns of a piece", o, place, n)
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReturnNeverTaken: what never returns, or doesn't this time, has no hits: not
// those of another call that returns to the same place with the same stack, whether
// that is of a function that the one that was left could have jumped to, or of one
// that nobody probes.
func TestReturnNeverTaken(t *testing.T) {
	fixture.NeedTool(t, "g++")
	prog := fixture.Build(t, "left_calls.cc", "-O2")
	for _, o := range []Options{{CountOnly: true}, {CountOnly: true, NoOptimize: true}} {
		s, err := Start(t.Context(), Command{Path: prog, Args: []string{prog, "100"}}, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Arm(t.Context(), parseDefs(t, "r:thrower thrower", "r:jumper jumper", "r:plain plain", "r:finish finish", "r:chooser chooser", "r:sometimes sometimes",
			"r:passer passer", "r:unsure unsure", "r:leaver leaver", "r:jumps jumps", "r:either either")); err != nil {
			t.Fatal(err)
		}
		sum, err := s.Run(t.Context(), &counter{})
		if err != nil || sum.Status.ExitStatus() != 42 {
			t.Errorf("status %d, %v; want 42", sum.Status, err)
		}
		for _, st := range s.Stats() {
			want := map[string]uint64{"plain": 200, "finish": 275, "either": 75, "chooser": 75, "sometimes": 250, "passer": 50, "unsure": 50, "leaver": 50, "jumps": 50}[st.Event.Name]
			if st.Hits != want || st.Missed != 0 {
				t.Errorf("%+v: %s has %d hits, %d missed, want %d", o, st.Event.Name, st.Hits, st.Missed, want)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
