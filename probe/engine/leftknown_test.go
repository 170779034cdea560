package engine

import (
	"slices"
	"testing"

	"kprobe/probe/detour"
	"kprobe/probe/survey"
)

// Before each system call that is looked for in files because it may end a mapping, a detour does something.
func TestUnmapping(t *testing.T) {
	if found, known := survey.Unmapping(), detour.Unmapping(); !slices.Equal(found, known) {
		t.Errorf("looked for are %v, and detours know %v", found, known)
	}
}
