package probe

import (
	"errors"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestReturnNeedsAddress: a return probe is refused where no return address lies
// at the stack pointer, which it would put its own over; a glob leaves such
// places out. The program checks what lies there.
func TestReturnNeedsAddress(t *testing.T) {
	prog := fixture.Build(t, "not_called.c")
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"_start", "_st*", "whole_rest", "whole_resolve", "whole_label"} {
		var refused *RefusedError
		if _, err := Check(space, parseDefs(t, "r "+name)[0]); !errors.As(err, &refused) {
			t.Errorf("r %s: %v, want a *RefusedError", name, err)
		}
		if _, err := Check(space, parseDefs(t, "p "+name)[0]); err != nil {
			t.Errorf("p %s: %v", name, err)
		}
	}
	for _, o := range []Options{{CountOnly: true}, {CountOnly: true, NoOptimize: true}} {
		s, err := Start(t.Context(), Command{Path: prog, Args: []string{prog}}, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Arm(t.Context(), parseDefs(t, "r:whole whole*", "r:most _*", "r:main main", "p:rest whole_rest")); err != nil {
			t.Fatal(err)
		}
		sum, err := s.Run(t.Context(), &counter{})
		if err != nil || sum.Status.ExitStatus() != 42 {
			t.Errorf("status %d, %v; want 42", sum.Status, err)
		}
		hits := map[string]uint64{}
		for _, st := range s.Stats() {
			hits[st.Event.Name] = st.Hits
		}
		if hits["whole"] != 4000 || hits["main"] != 1 || hits["rest"] != 1000 {
			t.Errorf("hits %v", hits)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
