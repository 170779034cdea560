package probe

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestKilledUnderSignals kills the command at random moments while signals come all the
// time whose handlers' returns are followed: nobody holds the signals back then, and
// their frames lead into kprobe's code.
func TestKilledUnderSignals(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "leave_signals.c", "-O2", "-lpthread")
	for _, mode := range []string{"nested alt wait", "deep jump exits"} {
		for name, o := range failModes {
			t.Run(strings.ReplaceAll(mode, " ", "-")+"/"+name, func(t *testing.T) {
				sub := startSubject(t, prog, strings.Fields(mode)...)
				rng := rand.New(rand.NewPCG(3, 5))
				call := append([]string{"trace", "-q", "-o", "/dev/null", "-p", strconv.Itoa(sub.pid())}, failDefs...)
				if o.NoOptimize {
					call = append(call, "--no-optimize")
				}
				found := 0
				rounds := full(9, 150)
				for i := range rounds {
					if killOnce(t, bin, call, sub.pid(), i%killKinds, 300*time.Millisecond, rng) {
						found++
					}
					if t.Failed() {
						t.Fatalf("round %d, kind %d; the program: %s", i, i%killKinds, endOf(sub.pid()))
					}
				}
				t.Logf("%d of %d kills left something to take out", found, rounds)
				if got := sub.work(); got != "done 0" {
					t.Errorf("the program printed %q, want done 0", got)
				}
				sub.end()
			})
		}
	}
}
