package probe

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestLetGoRules has a program that is let go of set rules of seccomp that kill it for
// whatever it doesn't call itself: that is seen, its hits ask the kernel for nothing any
// more, probes come and go, and all are taken out.
func TestLetGoRules(t *testing.T) {
	prog := fixture.Build(t, "hazard_seccomp.c", "-O2", "-lpthread")
	for _, def := range []string{"p:in work $comm", "p:in work a=$arg1", "p:in work m=+0(%rsp):x64"} {
		t.Run(def, func(t *testing.T) {
			sub := startSubject(t, prog)
			l := attach(t, sub.pid(), Options{LetGo: true}, def, "r:back work $retval")
			n := uint64(0)
			work := func(times int) {
				t.Helper()
				for range times {
					n++
					sub.line()
					sub.expect(fmt.Sprint(n))
				}
			}
			l.untraced(sub.pid())
			work(3)
			fmt.Fprintln(sub.in, "only")
			sub.expect("set")
			seen := func() (seen bool) {
				_ = l.s.engine.Tracer.Do(func() error {
					tg := l.s.engine.Targets[sub.pid()]
					seen = tg != nil && tg.Renewal.Filtered
					return nil
				})
				return seen
			}
			if !waitUntil(seen) {
				t.Fatal("the rules are not seen")
			}
			work(20)
			if !strings.Contains(def, "$arg1") {
				if !waitUntil(func() bool { return !isLetGo(sub.pid()) }) {
					t.Error("it is let go of, and its hits would ask the kernel")
				}
			} else {
				l.untraced(sub.pid())
			}
			work(3)
			link, err := l.s.Add(t.Context(), parseDefs(t, "p:more/in work b=$arg1", "r:more/back work"))
			if err != nil {
				t.Fatal(err)
			}
			at := n
			work(3)
			if !waitUntil(func() bool { return l.stat("in").Hits == n }) {
				t.Errorf("%+v of %d calls", l.stat("in"), n)
			}
			if err := link.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			work(3)
			l.finish(sub.pid())
			for _, st := range l.sum.Stats {
				want := n
				if st.Event.Group == "more" {
					want = n - at - 3
				}
				if st.Hits != want {
					t.Errorf("%s/%s has %d hits of %d calls", st.Event.Group, st.Event.Name, st.Hits, want)
				}
			}
			work(3)
			sub.in.Close()
			_ = sub.cmd.Wait() // the status tells
			if status := sub.cmd.ProcessState.ExitCode(); status != 7 {
				t.Errorf("the program ended with %v, want 7", sub.cmd.ProcessState)
			}
		})
	}
}
