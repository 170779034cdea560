package output

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/probe/results"
)

// TestManyEvents: the fixed texts of events that came and went are forgotten,
// and made again for one that hits once more.
func TestManyEvents(t *testing.T) {
	f := &Formatter{}
	first := &results.Event{Group: "kprobes", Name: "first"}
	for i := range 3 * maxHeads {
		f.choose(&results.Event{Group: "kprobes", Name: fmt.Sprintf("e%d", i)})
		if i%100 == 0 {
			f.choose(first)
			if !strings.Contains(string(f.head), " first: ") {
				t.Fatalf("the text of the event is %q", f.head)
			}
		}
		if len(f.events) > maxHeads {
			t.Fatalf("%d events are remembered", len(f.events))
		}
	}
}
