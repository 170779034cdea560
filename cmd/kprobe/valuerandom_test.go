package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestRandomValues compares the values of random programs with what they print of
// themselves. KPROBE_TEST_SEEDS is how many programs of each compiler and flags
// are made; with KPROBE_TEST_SEED the first has another number.
func TestRandomValues(t *testing.T) {
	seeds, first := randomSeeds(t)
	for k, c := range []struct {
		lang  string
		build string
	}{
		{"c", "gcc -g -O0"}, {"c", "gcc -g -O2"}, {"c", "clang -g -O0"}, {"c", "clang -g -O1 -gdwarf-4"},
		{"c", "gcc -g -O3 -gdwarf-4"}, {"c", "gcc -g -O1 -gsplit-dwarf"},
		{"cc", "g++ -g -O0"}, {"cc", "g++ -g -O2 -fdebug-types-section"}, {"cc", "clang++ -g -O2"},
		{"go", "go build"}, {"go", "go build -gcflags=-N\\ -l"},
		{"rust", "rustc -g"},
		{"rust", "rustc -g -O"}, {"c", "gcc -g -O2 -flto"}, {"cc", "clang++ -g -O1 -gdwarf-4 -fdebug-types-section"},
		{"c", "clang -g -O3 -gsplit-dwarf"}, {"cc", "g++ -gdwarf-4 -O1 -fdebug-types-section -gsplit-dwarf"},
	} {
		if seeds == 1 && k%3 == 1 {
			continue // the short form
		}
		for seed := first; seed < first+uint64(seeds); seed++ {
			t.Run(fmt.Sprintf("%s seed %d", c.build, seed), func(t *testing.T) { compareRandom(t, c.lang, c.build, seed+1000*uint64(k), true) })
		}
	}
}

// TestRandomValuesFound are programs that showed wrong values once.
func TestRandomValuesFound(t *testing.T) {
	for _, c := range []struct {
		lang, build string
		seed        uint64
	}{
		// Structures that optimized code stores behind the function's second line.
		{"c", "gcc -g -O2", 201002}, {"c", "gcc -g -O3 -gdwarf-4", 204006}, {"c", "gcc -g -O1 -gsplit-dwarf", 205009},
		// A parameter on the stack that counts from a frame which is made later.
		{"c", "clang -g -O1 -gdwarf-4", 203001}, {"c", "clang -g -O1 -gdwarf-4", 303013},
		// A bitfield of a packed structure that is smaller than the bitfield's type.
		{"c", "gcc -gdwarf-4 -O0", 507100},
		// A packed structure with a member that its source aligns, which LLVM
		// passes in memory because of that.
		{"cc", "clang++ -gdwarf-4 -O1", 510203},
		// A function that pushes arguments of its calls, below the frame that its own count from.
		{"c", "clang -g -O2 -gsplit-dwarf", 1272313},
		// A structure of which LLVM tells from where it is taken apart.
		{"c", "clang -g -O2", 17},
		// An argument that isn't used, in whose registers LLVM passes anything.
		{"rust", "rustc -g -O", 505200},
		// A structure of which LLVM tells at the entry where its second word is.
		{"c", "clang -g -O1 -gdwarf-4", 74001},
		// Arrays of one bool.
		{"go", "go build", 209008}, {"rust", "rustc -g", 211004},
	} {
		t.Run(fmt.Sprintf("%s seed %d", c.build, c.seed), func(t *testing.T) {
			t.Parallel()
			compareRandom(t, c.lang, c.build, c.seed, c.seed >= 500000 || c.seed == 17 || c.seed == 74001) // which have all that is generated
		})
	}
}

// compareBuilds compares programs of each build, and as many of each as randomSeeds says:
// of all builds with KPROBE_TEST_FULL=1, else of those in short; with KPROBE_TEST_BUILD of
// those whose names begin so. compare makes one of a build's number and a seed.
func compareBuilds(t *testing.T, builds []string, short []int, compare func(t *testing.T, build int, seed uint64) tally) {
	t.Helper()
	seeds, first := randomSeeds(t)
	full, only := os.Getenv("KPROBE_TEST_FULL") == "1", os.Getenv("KPROBE_TEST_BUILD")
	var sum tally
	for k, build := range builds {
		if !full && !slices.Contains(short, k) || !strings.HasPrefix(build, only) {
			continue
		}
		for seed := first; seed < first+uint64(seeds); seed++ {
			t.Run(fmt.Sprintf("%s seed %d", build, seed), func(t *testing.T) { sum.add(compare(t, k, seed*1000+uint64(k))) })
		}
	}
	t.Log(sum)
	if sum.equal == 0 {
		t.Error("nothing was compared")
	}
}

// compareProgram builds a program of a source file, by a command that is given what to make
// and of what, and compares its values. With KPROBE_TEST_KEEP it stays in that folder.
func compareProgram(t *testing.T, file, source string, defs, command []string, pack ...packing) tally {
	t.Helper()
	dir := t.TempDir()
	if keep := os.Getenv("KPROBE_TEST_KEEP"); keep != "" {
		dir = filepath.Join(keep, strings.NewReplacer(" ", "_", "/", "_").Replace(t.Name()))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path, prog := filepath.Join(dir, file), filepath.Join(dir, "generated")
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fixture.NeedTool(t, command[0]), slices.Concat(command[1:], []string{"-o", prog, path})...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range pack {
		p.pack(t, prog)
	}
	for i := range defs {
		defs[i] = strings.ReplaceAll(defs[i], "FILE:", file+":")
	}
	defs, refused, unknown := withoutRefused(t, defs, prog)
	for _, r := range refused {
		t.Log("refused: ", r)
	}
	n := compareKnown(t, defs, []string{prog}, unknown)
	n.refused += len(refused)
	t.Log(n)
	return n
}

// randomSeeds is how many programs of a kind are made, and the first one's number.
func randomSeeds(t *testing.T) (seeds int, first uint64) {
	t.Helper()
	seeds, first = 1, 1
	if n, err := strconv.Atoi(os.Getenv("KPROBE_TEST_SEEDS")); err == nil {
		seeds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("KPROBE_TEST_SEED"), 10, 64); err == nil {
		first = n
	}
	return seeds, first
}

var refusedResult = regexp.MustCompile(`(?m)^  (r:r\d+ .*)$`)

// withKnownResults leaves out results that kprobe says it can't tell.
func withKnownResults(t *testing.T, defs []string, prog string) []string {
	t.Helper()
	all := len(defs)
	for {
		text, err := exec.Command(program(t), append(append([]string{"trace", "-q", "-o", os.DevNull}, defs...), "--", prog)...).CombinedOutput()
		m := refusedResult.FindSubmatch(text)
		if err == nil || m == nil {
			t.Logf("%d of %d results can't be told", all-len(defs), all/2)
			return defs
		}
		defs = slices.DeleteFunc(slices.Clone(defs), func(d string) bool { return d == string(m[1]) })
	}
}

var refusedParameter = regexp.MustCompile(`(?m)^kprobe: .*: (p\d+): .*(?:optimized out|not known|may have left).*\n  (p:(e\d+) .*)$`)

// hiddenAtomic is why it isn't known how a structure is passed: clang's debug information before DWARF 5.
const hiddenAtomic = "may have _Atomic members, of which DWARF 4 doesn't tell"

// withKnownParameters leaves out parameters that kprobe says are optimized out, and
// names them: LLVM has callers pass anything for what it takes to be unused.
func withKnownParameters(t *testing.T, defs []string, prog string) (known []string, left map[string]bool) {
	t.Helper()
	known, left, all, atomic := slices.Clone(defs), map[string]bool{}, 0, 0
	for _, d := range defs {
		all += strings.Count(d, "=")
	}
	for {
		text, err := exec.Command(program(t), append(append([]string{"trace", "-q", "-o", os.DevNull}, known...), "--", prog)...).CombinedOutput()
		m := refusedParameter.FindStringSubmatch(string(text))
		if err == nil || m == nil {
			break
		}
		if left[m[3]+" "+m[1]] = true; strings.Contains(m[0], hiddenAtomic) {
			atomic++
		}
		i := slices.Index(known, m[2])
		if i < 0 {
			t.Fatalf("%s is none of the definitions", m[2])
		}
		without := regexp.MustCompile(" "+m[1]+`=\S+`).ReplaceAllString(known[i], "")
		if without == known[i] {
			t.Fatalf("%s has no %s", known[i], m[1])
		}
		known[i] = without
	}
	// What a generated function is passed it prints, so its callers pass it. Only where clang's debug information
	// doesn't tell of _Atomic may it be unknown how a structure is passed.
	if t.Logf("%d of %d values are optimized out, %d of them structures that may have _Atomic members", len(left), all, atomic); len(left) > atomic {
		t.Errorf("of %d values %d are said to be optimized out", all, len(left)-atomic)
	}
	return known, left
}

// compareRandom makes a program, packs its debug information, and compares its values.
func compareRandom(t *testing.T, lang, compiler string, seed uint64, more bool, pack ...packing) {
	t.Helper()
	dir := t.TempDir()
	words := strings.Fields(strings.ReplaceAll(compiler, "\\ ", "\x00"))
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "\x00", " ")
	}
	source, defs := generate(lang, seed, 8, more)
	file := filepath.Join(dir, "generated."+map[string]string{"c": "c", "cc": "cc", "go": "go", "rust": "rs"}[lang])
	prog := filepath.Join(dir, "generated")
	for i := range defs {
		defs[i] = strings.ReplaceAll(defs[i], "PROGRAM", "generated")
	}
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command(fixture.NeedTool(t, words[0]), append(words[1:], "-o", prog, file)...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, source)
	}
	for _, p := range pack {
		p.pack(t, prog)
	}
	if lang == "go" || lang == "rust" {
		defs = withKnownResults(t, defs, prog)
	}
	var left map[string]bool
	if strings.HasPrefix(compiler, "clang") { // which doesn't tell of all bitfields: members may be null
		left = map[string]bool{}
	}
	if strings.HasPrefix(compiler, "clang") && !strings.Contains(compiler, "-O0") {
		defs, left = withKnownParameters(t, defs, prog)
	}
	var lacking func(string) bool
	if strings.HasPrefix(compiler, "clang") && strings.Contains(compiler, "-O0") {
		lacking = bitfieldsOf(source).may // everything else is in memory
	}
	compareLacking(t, defs, []string{prog}, left, lacking)
	if t.Failed() {
		t.Log(source)
	}
}
