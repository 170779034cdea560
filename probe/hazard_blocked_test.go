package probe

import (
	"strconv"
	"testing"

	"kprobe/internal/fixture"
)

// TestHazardP25 kills kprobe while threads that block every signal hit its
// breakpoints: they block SIGTRAP no more, so the fallback handler can lead them on.
func TestHazardP25(t *testing.T) {
	bin := buildKprobe(t)
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "2", "block")
	for kind := range killKinds {
		trace := newFile(t).Name()
		c := startKprobe(t, bin, "trace", "-q", "-o", trace, "--no-optimize", "-p", strconv.Itoa(sub.pid()), "p:in work a=$arg1", "r100:out recurse")
		prints(t, trace)
		c.kill(kind)
		<-c.done
		if !waitUntil(func() bool { return !traced(sub.pid()) }) {
			t.Fatal("it is still traced")
		}
		runsOn(t, sub.pid())
		if kind == killBoth {
			if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) != 1 {
				t.Errorf("recovered %v: %v", pids, err)
			}
		}
		if !waitUntil(func() bool { return leftBehind(sub.pid()) == "" }) {
			t.Errorf("kind %d: %s", kind, leftBehind(sub.pid()))
		}
		checkClean(t, sub.pid())
	}
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}
