package main

import (
	"strings"
	"testing"
)

// rustBuilds are the ways in which random programs of Rust are built.
func rustBuilds() (all []string) {
	for _, o := range []string{"", "-O", "-Copt-level=1", "-Copt-level=3", "-Copt-level=s", "-Copt-level=z", "-O -Clto=fat", "-O -Ccodegen-units=1 -Cpanic=abort"} {
		for _, form := range []string{"-g", "-g -Csplit-debuginfo=packed", "-g -Csplit-debuginfo=unpacked", "-g -Csymbol-mangling-version=v0"} {
			all = append(all, strings.Join(strings.Fields("rustc "+o+" "+form), " "))
		}
	}
	return all
}

// TestRandomValuesRust compares values of random programs of what Rust has with what they
// print of themselves (compareBuilds).
func TestRandomValuesRust(t *testing.T) {
	builds := rustBuilds()
	compareBuilds(t, builds, []int{0, 4}, func(t *testing.T, k int, seed uint64) tally { return compareRandomRust(t, builds[k], seed) })
}

// TestRandomValuesRustFound are programs that showed wrong values once.
func TestRandomValuesRustFound(t *testing.T) {
	for _, c := range []struct {
		build string
		seed  uint64
	}{
		// Parameters on the stack that the function doesn't use: callers store nothing there.
		{"rustc -O -Clto=fat -g -Csplit-debuginfo=packed", 9012025},
	} {
		t.Run(c.build, func(t *testing.T) {
			t.Parallel()
			compareRandomRust(t, c.build, c.seed)
		})
	}
}

// compareRandomRust makes a program of a build's name and compares its values.
func compareRandomRust(t *testing.T, build string, seed uint64) tally {
	t.Helper()
	source, defs := generateRust(seed, 8)
	return compareProgram(t, "generated.rs", source, defs, append(strings.Fields(build), "-Awarnings", "--edition=2021"))
}
