package probe

import (
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/area"
	"kprobe/symbols"
)

// TestLiftBreakpoints takes the int3s of a kprobe that was killed out of a
// program whose threads run over them all the time, and leaves its jumps.
func TestLiftBreakpoints(t *testing.T) {
	bin := buildKprobe(t)
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "2")
	for _, c := range []struct {
		args []string
		left bool // of the changes of the text
	}{
		{[]string{"--no-optimize", "p:in work", "r100:out recurse"}, false},
		{[]string{"p:in work"}, true},
	} {
		trace := newFile(t).Name()
		k := startKprobe(t, bin, append([]string{"trace", "-o", trace, "-p", strconv.Itoa(sub.pid())}, c.args...)...)
		prints(t, trace)
		// They are put in one after the other.
		if !waitUntil(func() bool { return strings.Contains(k.stderr.String(), "in after") }) {
			t.Fatal(k.stderr.String())
		}
		changed := changedText(t, sub.pid())
		m, err := area.FindMemfile(sub.pid())
		if err != nil || m == nil {
			t.Fatalf("no memory file: %v", err)
		}
		// Its kprobe lives.
		if err := area.LiftBreakpoints(sub.pid(), m); err != nil {
			t.Error(err)
		}
		if now := changedText(t, sub.pid()); now == 0 || now != changed {
			t.Errorf("%q: %d bytes of the text differ while kprobe lives, then %d", c.args, changed, now)
		}
		k.kill(killBoth)
		<-k.done
		if !waitUntil(func() bool { return !traced(sub.pid()) }) {
			t.Fatal("it is still traced")
		}
		if err := area.LiftBreakpoints(sub.pid(), m); err != nil {
			t.Error(err)
		}
		if now := changedText(t, sub.pid()); c.left && now != changed || !c.left && now != 0 {
			t.Errorf("%q: of %d bytes %d differ once the breakpoints are lifted", c.args, changed, now)
		}
		runsOn(t, sub.pid())
		if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
			t.Errorf("recover: %v", err)
		}
		checkClean(t, sub.pid())
	}
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}

// changedText counts the bytes of a program's own text that aren't its file's.
func changedText(t *testing.T, pid int) (n int) {
	t.Helper()
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Exec && m.IsFile() {
			want, have := twoTexts(t, pid, m)
			for i := range want {
				if want[i] != have[i] {
					n++
				}
			}
		}
	}
	return n
}
