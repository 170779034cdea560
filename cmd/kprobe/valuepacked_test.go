package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

// packing puts a program's debug information somewhere else, or together.
type packing struct {
	name string
	pack func(t *testing.T, prog string)
}

var (
	// dwz writes once what several units have.
	byDWZ = packing{"dwz", func(t *testing.T, prog string) { runTool(t, filepath.Dir(prog), "dwz", prog) }}
	// With -m that goes to a file that several programs share.
	byDWZm = packing{"dwz -m", func(t *testing.T, prog string) {
		twin := prog + "-twin"
		b, err := os.ReadFile(prog)
		if err == nil {
			err = os.WriteFile(twin, b, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		runTool(t, filepath.Dir(prog), "dwz", "-m", filepath.Join(filepath.Dir(prog), "common.dwz"), prog, twin)
		if _, err := os.Stat(filepath.Join(filepath.Dir(prog), "common.dwz")); err != nil {
			t.Fatal("dwz has left no shared file")
		}
	}}
	// A package beside the program has its .dwo files.
	byLLVMdwp = packing{"llvm-dwp", packer("llvm-dwp")}
	byDWP     = packing{"dwp", packer("dwp")}
)

func packer(tool string) func(*testing.T, string) {
	return func(t *testing.T, prog string) {
		runTool(t, filepath.Dir(prog), tool, "-e", prog, "-o", prog+".dwp")
		split, err := filepath.Glob(filepath.Join(filepath.Dir(prog), "*.dwo"))
		if err != nil || len(split) == 0 {
			t.Fatalf("no .dwo files: %v", err)
		}
		for _, f := range split {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func runTool(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(fixture.NeedTool(t, name), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// TestRandomValuesPacked compares the values of random programs whose debug
// information was packed by dwz, with and without a shared file, or lies in a package
// of .dwo files. The tools leave some out: dwz 0.15 what clang and Go write in
// DWARF 5, and packages aren't made of what gcc 12 splits in DWARF 5.
func TestRandomValuesPacked(t *testing.T) {
	seeds, first := randomSeeds(t)
	for k, c := range []struct {
		lang, build string
		by          []packing
	}{
		{"c", "gcc -g -O0", []packing{byDWZ, byDWZm}},
		{"c", "gcc -gdwarf-4 -O2 -gsplit-dwarf", []packing{byDWP}},
		{"c", "clang -g -O2 -gsplit-dwarf", []packing{byLLVMdwp}},
		{"cc", "g++ -g -O2", []packing{byDWZ, byDWZm}},
		{"cc", "g++ -gdwarf-4 -O1 -fdebug-types-section -gsplit-dwarf", []packing{byDWP}},
		{"rust", "rustc -g -O", []packing{byDWZ, byDWZm}},
		{"c", "gcc -gdwarf-4 -O3", []packing{byDWZ, byDWZm}},
		{"c", "gcc -gdwarf-4 -O0 -gsplit-dwarf", []packing{byDWP}},
		{"c", "clang -gdwarf-4 -O1", []packing{byDWZ, byDWZm}},
		{"c", "clang -gdwarf-4 -O0", []packing{byDWZ, byDWZm}},
		{"cc", "clang++ -gdwarf-4 -O1", []packing{byDWZ, byDWZm}},
		{"cc", "clang++ -gdwarf-4 -O2 -gsplit-dwarf", []packing{byLLVMdwp, byDWP}},
		{"cc", "clang++ -g -O0 -fdebug-types-section -gsplit-dwarf", []packing{byLLVMdwp}},
		{"cc", "g++ -gdwarf-4 -O1 -gsplit-dwarf", []packing{byDWP}},
		{"cc", "g++ -gdwarf-4 -O2 -fdebug-types-section", []packing{byDWZ, byDWZm}},
		{"rust", "rustc -g", []packing{byDWZ, byDWZm}},
	} {
		if seeds == 1 && k > 5 {
			break // the short form
		}
		for seed := first; seed < first+uint64(seeds); seed++ {
			for _, p := range c.by {
				t.Run(fmt.Sprintf("%s by %s seed %d", c.build, p.name, seed), func(t *testing.T) {
					t.Parallel()
					compareRandom(t, c.lang, c.build, seed+500000+1000*uint64(k), true, p)
				})
			}
		}
	}
}
