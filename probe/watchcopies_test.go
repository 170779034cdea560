package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestWatchBehindCopies: an access by the last copy before the code of a probe is the program's. A thread whose access is
// seen there stands at the start of that code already.
func TestWatchBehindCopies(t *testing.T) {
	if unwatchable(t) {
		return
	}
	prog := watchFixture(t)
	want := watchIn(t, prog, "plain", "4", Options{}, "w:c rw@counter old=$old new=$value")
	var defs []string
	for _, fn := range []string{"add", "get", "set", "same", "push"} {
		lines := inspectFile(t, prog, fn)[0].Lines
		defs = append(defs, fmt.Sprintf("p:%s %[1]s+%d", fn, lines[len(lines)-1].Offset))
	}
	sub := startSubject(t, prog, "plain", "4")
	sink := &whereSink{}
	l := engageInto(t, sub.pid(), Options{}, sink, append(defs, "w:c rw@counter old=$old new=$value")...)
	first := 0
	err := l.s.engine.Tracer.Do(func() error {
		for _, p := range l.s.engine.Targets[sub.pid()].Patches.List {
			for i := range p.Stages {
				if p.Stages[i].RunsOn() != 0 {
					first++
				}
			}
		}
		return nil
	})
	if err != nil || first == 0 {
		t.Errorf("%d stages run on into the next, %v", first, err)
	}
	sub.work()
	l.finish(sub.pid())
	sub.end()
	var lines, at []string
	for i, line := range sink.all() {
		if strings.HasPrefix(line, "c ") {
			lines, at = append(lines, line), append(at, sink.at[i])
		}
	}
	if !slices.Equal(lines, want.all()) || !slices.Equal(at, want.at) {
		t.Errorf("hits\n%s\nat\n%s\nwant\n%s\nat\n%s", strings.Join(lines, "\n"), strings.Join(at, "\n"), strings.Join(want.all(), "\n"), strings.Join(want.at, "\n"))
	}
}
