package probe

import (
	"context"
	"os"
	"testing"

	"kprobe/internal/fixture"
)

// TestStartIFunc starts programs that choose implementations (IFUNC) only after their
// entry point: bound lazily, and static. Their probes wait for the choice; nobody is
// killed for it.
func TestStartIFunc(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		defs  []string
	}{
		{"lazy", []string{"-O2", "-fno-builtin", "-Wl,-z,lazy", "-lm"}, []string{"p:sin libm:sin", "r:out libm:sin", "p:len libc:strnlen"}},
		{"static", []string{"-O2", "-fno-builtin", "-static", "-lm"}, []string{"p:sin sin", "r:out sin", "p:len strnlen"}},
	} {
		for name, o := range failModes {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				prog := fixture.Build(t, "leave_ifunc.c", c.flags...)
				o.Log = testLog(t)
				s, err := Start(t.Context(), Command{Path: prog, Args: []string{prog}, Env: append(os.Environ(), "LD_BIND_NOW=")}, o)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close(context.Background())
				if err := s.Arm(t.Context(), parseDefs(t, c.defs...)); err != nil {
					t.Fatal(err)
				}
				sum, err := s.Run(t.Context(), &collector{})
				if err != nil || !sum.HasStatus || sum.Status.ExitStatus() != 7 {
					t.Fatalf("the program ended with %v (%v), want status 7", sum.Status, err)
				}
				for _, st := range sum.Stats {
					if st.Hits < 10 {
						t.Errorf("%s: %d hits, want 10", st.Event.Name, st.Hits)
					}
				}
			})
		}
	}
}
