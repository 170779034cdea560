package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
	"kprobe/probe/engine"
	"kprobe/probe/tracee"
)

// TestHazardP57 changes what is probed while a child has been forked that kprobe was not
// told of yet: it is made clean of what its copy of the memory has.
func TestHazardP57(t *testing.T) {
	prog := fixture.Build(t, "unborn.c", "-O1")
	removed := func(l *live, _ *engine.Target) error { return l.s.Remove(t.Context(), l.s.Events()...) }
	trapped := func(_ *live, tg *engine.Target) error {
		list := jumpsIn(tg)
		if len(list) == 0 {
			return fmt.Errorf("there is no jump")
		}
		return tg.Unoptimize(t.Context(), list[0])
	}
	restored := func(_ *live, tg *engine.Target) error {
		return tg.WithStopped(t.Context(), func(stopped []*tracee.Thread) error { return tg.RestorePatches(tg.Patches.List, stopped) })
	}
	for _, c := range []struct {
		name   string
		o      Options
		def    string
		change func(*live, *engine.Target) error
	}{
		{"removed jump", Options{}, "p:leaf leaf", removed},
		{"restored jump", Options{}, "p:leaf leaf", restored},
		{"jump made a breakpoint", Options{}, "p:leaf leaf", trapped},
		{"removed breakpoint", Options{NoOptimize: true}, "p:leaf leaf", removed},
		{"removed return", Options{}, "r:within within", removed},
		{"removed return by breakpoints", Options{NoOptimize: true}, "r:within within", removed},
		{"return made a breakpoint", Options{}, "r:within within", trapped},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := startSubject(t, prog)
			l, _ := engage(t, sub.pid(), c.o, c.def)
			sub.line()
			sub.expect("within")
			onTracer(t, l, func(tg *engine.Target) error {
				sub.line()
				if !waitUntil(func() bool { return len(procfs.Process(sub.pid()).AllChildren()) > 0 }) {
					return fmt.Errorf("no child")
				}
				return c.change(l, tg)
			})
			sub.expect("child 42")
			for _, st := range l.s.Stats() {
				if st.Hits != 0 {
					t.Errorf("%d hits: the child's", st.Hits)
				}
			}
			l.finish(sub.pid())
			sub.end()
		})
	}
}
