package main

import (
	"slices"
	"strings"
	"testing"
)

// goBuilds are the flags by which random programs of Go are built.
var goBuilds = [][]string{
	nil, {"-gcflags=all=-N -l"}, {"-gcflags=-l"}, {"-gcflags=-N"}, {"-buildmode=pie"}, {"-ldflags=-compressdwarf=false"}, {"-race"},
}

// TestRandomValuesGo compares values of random programs of what Go has with what they
// print of themselves (compareBuilds).
func TestRandomValuesGo(t *testing.T) {
	var names []string
	for _, flags := range goBuilds {
		names = append(names, "go "+strings.Join(flags, " "))
	}
	compareBuilds(t, names, []int{0, 1}, func(t *testing.T, k int, seed uint64) tally {
		source, defs := generateGo(seed, 8)
		return compareProgram(t, "generated.go", source, defs, slices.Concat([]string{"go", "build"}, goBuilds[k]))
	})
}

// TestRandomValuesGoFound are programs that showed wrong values once.
func TestRandomValuesGoFound(t *testing.T) {
	for _, seed := range []uint64{
		7104005, // a time.Time of which constants are two parts, and the third is on the stack
	} {
		source, defs := generateGo(seed, 8)
		compareProgram(t, "generated.go", source, defs, []string{"go", "build"})
	}
}
