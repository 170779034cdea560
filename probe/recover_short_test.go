package probe

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/area"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// TestRecoverLongJump recovers a program of which a thread has taken a short
// jump and stands at the long one, in what is padding or the middle of another
// instruction once the text is restored.
func TestRecoverLongJump(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "recover_short.c", "-O2")
	// Its long jump lies in padding, or where an instruction has made way; the last
	// one's short jump is written by its opcode alone.
	for _, place := range []string{"padded+2", "holed+0xca", "punned+2"} {
		t.Run(place, func(t *testing.T) {
			sub := startSubject(t, prog)
			trace := newFile(t).Name()
			c := startKprobe(t, bin, "trace", "-q", "-o", trace, "-p", fmt.Sprint(sub.pid()), "p:s "+place)
			prints(t, trace)
			other, err := OpenLive(sub.pid())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			site := other.Probes()[0]
			if site.Tactic != plan.ShortJump {
				t.Fatalf("the probe is a %v: the fixture is wrong", site.Tactic)
			}
			c.kill(killBoth)
			<-c.done
			if !waitUntil(func() bool { return !traced(sub.pid()) }) {
				t.Fatal("it is still traced")
			}
			long := longJumpOf(t, sub.pid(), site.Addr)
			steppedTo(t, sub.pid(), long, 0, 0, false)
			if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) != 1 {
				t.Errorf("recovered %v: %v", pids, err)
			}
			if err := unix.Kill(sub.pid(), unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if got := sub.work(); got != "done 0" {
				t.Errorf("the program printed %q, want no result wrong", got)
			}
			checkClean(t, sub.pid())
			sub.end()
		})
	}
}

// longJumpOf reads where the short jump at an address leads.
func longJumpOf(t *testing.T, pid int, at symbols.Addr) symbols.Addr {
	t.Helper()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	var b [2]byte
	if _, err := mem.ReadAt(b[:], int64(at)); err != nil || b[0] != area.JmpRel8 {
		t.Fatalf("no short jump at %v: %x, %v", at, b, err)
	}
	return at + 2 + symbols.Addr(int8(b[1]))
}
