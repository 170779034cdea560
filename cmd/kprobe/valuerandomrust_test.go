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
	compareBuilds(t, builds, []int{0, 4}, func(t *testing.T, k int, seed uint64) tally {
		source, defs := generateRust(seed, 8)
		return compareProgram(t, "generated.rs", source, defs, append(strings.Fields(builds[k]), "-Awarnings", "--edition=2021"))
	})
}
