package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// rustBuilds are the ways in which random programs of Rust are built.
func rustBuilds() (all []string) {
	for _, o := range []string{"", "-O", "-Copt-level=1", "-Copt-level=3", "-Copt-level=s", "-Copt-level=z", "-O -Clto=fat", "-O -Ccodegen-units=1 -Cpanic=abort"} {
		for _, form := range []string{"-g", "-g -Zdwarf-version=4", "-g -Csplit-debuginfo=packed", "-g -Csplit-debuginfo=unpacked", "-g -Csymbol-mangling-version=v0"} {
			if !strings.Contains(form, "-Z") {
				all = append(all, strings.TrimSpace("rustc "+o+" "+form))
			}
		}
	}
	return all
}

// TestRandomValuesRust compares values of random programs of what Rust has with what they
// print of themselves. KPROBE_TEST_SEEDS is how many programs of each build there are,
// KPROBE_TEST_FULL=1 takes all builds; else there are a few.
func TestRandomValuesRust(t *testing.T) {
	seeds, first := randomSeeds(t)
	full := os.Getenv("KPROBE_TEST_FULL") == "1"
	var sum tally
	for k, build := range rustBuilds() {
		if !full && k != 0 && k != 4 {
			continue
		}
		if only := os.Getenv("KPROBE_TEST_BUILD"); only != "" && build != only {
			continue
		}
		for seed := first; seed < first+uint64(seeds); seed++ {
			t.Run(fmt.Sprintf("%s seed %d", build, seed), func(t *testing.T) {
				n := compareRandomRust(t, build, seed*1000+uint64(k))
				sum.equal, sum.wrong, sum.refused = sum.equal+n.equal, sum.wrong+n.wrong, sum.refused+n.refused
			})
		}
	}
	t.Logf("%d values are equal, %d differ, %d can't be had", sum.equal, sum.wrong, sum.refused)
	if sum.equal == 0 {
		t.Error("nothing was compared")
	}
}

// compareRandomRust makes a program of a build's name and compares its values.
func compareRandomRust(t *testing.T, build string, seed uint64) tally {
	t.Helper()
	dir := t.TempDir()
	if keep := os.Getenv("KPROBE_TEST_KEEP"); keep != "" {
		dir = filepath.Join(keep, strings.NewReplacer(" ", "_", "/", "_").Replace(t.Name()))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	source, defs := generateRust(seed, 8)
	file, prog := filepath.Join(dir, "generated.rs"), filepath.Join(dir, "generated")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(build)
	cmd := exec.Command(fixture.NeedTool(t, words[0]), append(words[1:], "-Awarnings", "--edition=2021", "-o", prog, file)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i := range defs {
		defs[i] = strings.ReplaceAll(defs[i], "FILE:", "generated.rs:")
	}
	defs, refused, unknown := withoutRefused(t, defs, prog)
	for _, r := range refused {
		t.Log("refused: ", r)
	}
	n := compareKnown(t, defs, []string{prog}, unknown)
	n.refused += len(refused)
	t.Logf("%d values are equal, %d differ, %d can't be had", n.equal, n.wrong, n.refused)
	return n
}
