package probe

import (
	"slices"
	"testing"
)

// TestLeftInAnyOrder: probes that were left by several commands are taken out in any order, and some
// are left again meanwhile. Nothing stays.
func TestLeftInAnyOrder(t *testing.T) {
	s := startRecorded(t, 2, "paced")
	defs := map[string]string{"rec/hit": recordedHit, "rec/two": "p:rec/two hit2 n=$arg1:u64", "rec/three": "p:rec/three libc:getppid", "rec/four": "p:rec/four libc:getuid"}
	s.left(Options{}, recordedHit)
	add := func(name string) {
		t.Helper()
		if err := openedLive(t, s.pid()).Add(t.Context(), parseDefs(t, defs[name])); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(names ...string) {
		t.Helper()
		if err := openedLive(t, s.pid()).Remove(t.Context(), names); err != nil {
			t.Fatal(err)
		}
	}
	for _, order := range [][]string{
		{"+rec/two", "-rec/hit", "+rec/hit"},
		{"+rec/two", "+rec/three", "-rec/two", "+rec/two", "-rec/hit", "+rec/four", "-rec/three"},
		{"+rec/two", "+rec/three", "-rec/hit", "-rec/two", "+rec/hit"},
	} {
		there := []string{"rec/hit"}
		for _, step := range order {
			name := step[1:]
			if step[0] == '+' {
				add(name)
				there = append(there, name)
				continue
			}
			remove(name)
			there = slices.DeleteFunc(there, func(n string) bool { return n == name })
		}
		remove(there...)
		checkClean(t, s.pid())
		if t.Failed() {
			t.Fatal(order)
		}
		leaveIn(t, s.pid(), Options{Detach: true}, recordedHit)
	}
	remove("rec/hit")
	checkClean(t, s.pid())
	s.work()
	s.end()
}
