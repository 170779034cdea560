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

// goBuilds are the flags by which random programs of Go are built.
var goBuilds = [][]string{
	nil, {"-gcflags=all=-N -l"}, {"-gcflags=-l"}, {"-gcflags=-N"}, {"-buildmode=pie"}, {"-ldflags=-compressdwarf=false"}, {"-race"},
}

// TestRandomValuesGo compares values of random programs of what Go has with what they
// print of themselves. KPROBE_TEST_SEEDS is how many programs of each build there are,
// KPROBE_TEST_FULL=1 takes all builds; else there are a few.
func TestRandomValuesGo(t *testing.T) {
	seeds, first := randomSeeds(t)
	full := os.Getenv("KPROBE_TEST_FULL") == "1"
	var sum tally
	for k, flags := range goBuilds {
		if !full && k > 1 {
			continue
		}
		for seed := first; seed < first+uint64(seeds); seed++ {
			t.Run(fmt.Sprintf("go %s seed %d", strings.Join(flags, " "), seed), func(t *testing.T) {
				n := compareRandomGo(t, flags, seed*1000+uint64(k))
				sum.equal, sum.wrong, sum.refused = sum.equal+n.equal, sum.wrong+n.wrong, sum.refused+n.refused
			})
		}
	}
	t.Logf("%d values are equal, %d differ, %d can't be had", sum.equal, sum.wrong, sum.refused)
	if sum.equal == 0 {
		t.Error("nothing was compared")
	}
}

// compareRandomGo makes a program and compares its values.
func compareRandomGo(t *testing.T, flags []string, seed uint64) tally {
	t.Helper()
	dir := t.TempDir()
	if keep := os.Getenv("KPROBE_TEST_KEEP"); keep != "" {
		dir = filepath.Join(keep, strings.NewReplacer(" ", "_", "/", "_").Replace(t.Name()))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	source, defs := generateGo(seed, 8)
	file, prog := filepath.Join(dir, "generated.go"), filepath.Join(dir, "generated")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fixture.NeedTool(t, "go"), append(append([]string{"build"}, flags...), "-o", prog, file)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i := range defs {
		defs[i] = strings.ReplaceAll(defs[i], "FILE:", "generated.go:")
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
