package probe

import (
	"sync"
	"testing"

	"kprobe/internal/fixture"
)

// TestProgress: arming many places says what is done, and never more of it than
// there is.
func TestProgress(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "3")
	var mu sync.Mutex
	steps := map[string]int{}
	l := attach(t, sub.pid(), Options{Progress: func(step string, n, of int) {
		mu.Lock()
		defer mu.Unlock()
		if n < 0 || n > of {
			t.Errorf("%s: %d of %d", step, n, of)
		}
		steps[step]++
	}}, "libc:str*")
	l.finish(sub.pid())
	mu.Lock()
	defer mu.Unlock()
	for _, step := range []string{"checking places", "reading functions", "planning jumps"} {
		if steps[step] == 0 {
			t.Errorf("nothing was said of %s: %v", step, steps)
		}
	}
}
