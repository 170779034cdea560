package engine

import (
	"strings"
	"testing"

	"kprobe/probe/ring"
)

// TestMayHave: more places than a process can have probes are refused before any is looked at.
func TestMayHave(t *testing.T) {
	if err := mayHave(ring.MaxID); err != nil {
		t.Errorf("%d places: %v", ring.MaxID, err)
	}
	if err := mayHave(ring.MaxID + 1); err == nil || !strings.Contains(err.Error(), "1048576 places, and a process can have 1048575 probes") {
		t.Errorf("one more: %v", err)
	}
}
