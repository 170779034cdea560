package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// A program's children are born without kprobe's memory: what they inherit of the text
// leads nowhere else.
func TestHazardP36(t *testing.T) {
	prog := fixture.Build(t, "dontfork.c", "-O1")
	for _, tt := range []struct {
		o    Options
		hits uint64 // of 20 calls of the program, 10 of children in its memory, 10 of others
	}{{Options{}, 60}, {Options{NoOptimize: true}, 60}, {Options{Follow: true}, 80}} {
		sub := startSubject(t, prog)
		l, c := engage(t, sub.pid(), tt.o, "p:in work n=$arg1", "r:out work $retval")
		var left, bad int
		if _, err := fmt.Sscanf(sub.work(), "done %d %d", &left, &bad); err != nil {
			t.Fatal(err)
		}
		l.finish(sub.pid())
		sub.end()
		if left < 2 || bad > 0 || c.hits.Load() != tt.hits {
			t.Errorf("%+v: %d mappings left out, %d calls or children went wrong, %d hits, want %d", tt.o, left, bad, c.hits.Load(), tt.hits)
		}
	}
}
