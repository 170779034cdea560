package probe

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// armed waits until a live trace has n probes in a process, whose text differs
// from the file's in at least so many bytes.
func (c *command) armed(pid, n int, exe string) {
	c.t.Helper()
	if !waitUntil(func() bool {
		maps, err := symbols.ReadMaps(pid)
		if err != nil {
			return false
		}
		changed := 0
		for _, m := range maps {
			if !m.Exec || m.Path != exe {
				continue
			}
			want, have := twoTexts(c.t, pid, m)
			for i := range want {
				if want[i] != have[i] {
					changed++
				}
			}
		}
		return changed >= n
	}) {
		c.t.Fatalf("the probes are not in: %s", c.said())
	}
}

// TestHazardP26 kills both of kprobe's processes, then has probed instructions
// fault: the program's handler finds its own addresses and registers, may repair
// the cause, and go on at the instruction or behind it.
func TestHazardP26(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "probe_faults.c", "-O2")
	defs := map[string][]string{
		"repair": {"p:load load p=$arg1", "p:push push_load", "p:call call_load+4", "p:add store_add n=$arg2", "p:copy copy+3 n=%cx", "p:rip load_rip"},
		"skip":   {"p:load load p=$arg1", "p:behind load+3"},
		"jump":   {"p:load load", "r:out jumps_out", "p:handler jump_segv"},
	}
	for _, flag := range []string{"--no-optimize=false", "--no-optimize"} {
		for mode, defs := range defs {
			t.Run(flag+" "+mode, func(t *testing.T) {
				args := []string{mode, "30", "early"}
				want := plain(t, prog, args...)
				if !strings.HasSuffix(want, "bad 0") {
					t.Fatalf("the fixture is wrong: it printed %q", want)
				}
				sub := startSubject(t, prog, args...)
				c := startKprobe(t, bin, append([]string{"trace", "-q", "-o", "/dev/null", flag, "-p", fmt.Sprint(sub.pid())}, defs...)...)
				c.armed(sub.pid(), len(defs), prog)
				c.kill(killBoth)
				<-c.done
				if !waitUntil(func() bool { return !traced(sub.pid()) }) {
					t.Fatal("it is still traced")
				}
				if got := sub.work(); got != want {
					t.Errorf("with nobody at its probes the program printed %q, otherwise %q", got, want)
				}
				if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) != 1 {
					t.Errorf("recovered %v: %v; killed %s, which said %s", pids, err, c.killed, c.said())
				}
				checkClean(t, sub.pid())
				sub.end()
			})
		}
	}
}
