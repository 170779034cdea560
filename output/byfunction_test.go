package output

import (
	"strings"
	"testing"

	"kprobe/fetch"
)

// TestPatternsGoByFunctions: a line of a pattern's event has the function's name,
// where the definition gives none; JSON has the event's, which del and disable take.
func TestPatternsGoByFunctions(t *testing.T) {
	s := newScene(t)
	for def, want := range map[string][2]string{
		"wor*":         {": work: (work+", `"event":"p_wor__0"`},
		"r wor*":       {": work: (caller+", `"event":"r_wor__0"`},
		"p:mine wor*":  {": mine: (work+", `"event":"mine"`},
		"work":         {": p_work_0: (work+", `"event":"p_work_0"`},
		"r:grp/e wor*": {": e: (caller+", `"event":"e"`},
	} {
		h := s.hit(t, def, fetch.Regs{}, nil)
		if got := line(t, Text, h); !strings.Contains(got, want[0]) {
			t.Errorf("%s: %q, want %q", def, got, want[0])
		}
		if got := line(t, JSON, h); !strings.Contains(got, want[1]) {
			t.Errorf("%s: %q, want %q", def, got, want[1])
		}
	}
	h := s.hit(t, "wor*", fetch.Regs{}, nil)
	h.IP = 0
	if got := line(t, Text, h); !strings.Contains(got, ": p_wor__0: (0x0)") {
		t.Errorf("where no function is known: %q", got)
	}
}
