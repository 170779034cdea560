package output

import (
	"testing"
	"time"

	"kprobe/probe/results"
)

func TestArmed(t *testing.T) {
	tests := []struct {
		stats      []results.Stats
		line, json string
	}{
		{[]results.Stats{{Places: 1}}, "1 probe is in after 0.05 s: 1 jump",
			`{"type":"armed","events":1,"jumps":1,"breakpoints":0,"waiting":0,"seconds":0.050}` + "\n"},
		{[]results.Stats{{Places: 3, Trapped: 1}, {Places: 1, Trapped: 1}, {}}, "4 probes are in after 0.05 s: 2 jumps, 2 breakpoints; 1 event waits for the file that has it",
			`{"type":"armed","events":3,"jumps":2,"breakpoints":2,"waiting":1,"seconds":0.050}` + "\n"},
		{[]results.Stats{{}, {}}, "no probe is in yet: 2 events wait for the file that has them",
			`{"type":"armed","events":2,"jumps":0,"breakpoints":0,"waiting":2,"seconds":0.050}` + "\n"},
	}
	for _, tt := range tests {
		a := CountArmed(tt.stats, 50*time.Millisecond)
		if got := a.Line(); got != tt.line {
			t.Errorf("%+v: %q, want %q", tt.stats, got, tt.line)
		}
		if got := string(a.AppendJSON(nil)); got != tt.json {
			t.Errorf("%+v: %s, want %s", tt.stats, got, tt.json)
		}
	}
}
