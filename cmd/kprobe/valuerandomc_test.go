package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cBuilds are the ways in which random programs of C and C++ are built.
func cBuilds(t *testing.T) (all []string) {
	t.Helper()
	for _, cc := range []string{"gcc", "clang", "g++", "clang++"} {
		for _, o := range []string{"-O0", "-O1", "-O2", "-O3", "-Os", "-Og"} {
			for _, form := range []string{"-g", "-gdwarf-4", "-g -gsplit-dwarf", "-g -gz", "-g -fdebug-types-section", "-g -flto", "-gdwarf-4 -gsplit-dwarf", "-gdwarf-4 dwz", "-gdwarf-4 dwz-m"} {
				if strings.HasPrefix(cc, "clang") && strings.Contains(form, "-flto") && !hasLinker(t) {
					continue // that is the linker's part, lld's or of a plugin
				}
				all = append(all, cc+" "+o+" "+form)
			}
		}
	}
	return all
}

// TestRandomValuesCFound are programs that showed wrong values once.
func TestRandomValuesCFound(t *testing.T) {
	for _, c := range []struct {
		build string
		seed  uint64
	}{
		// Structures in the frame of which GCC leaves stores out: beside an array that is
		// indexed from the frame's register; in the place of another block's array.
		{"gcc -O1 -g -gsplit-dwarf", 401011}, {"gcc -O2 -g", 401018}, {"gcc -O2 -g -flto", 401023}, {"g++ -O3 -g -flto", 401140},
		// A frame that GCC aligns behind a push and other instructions.
		{"gcc -O2 -gdwarf-4", 401019}, {"gcc -O1 -g", 503009},
		// A packed structure with a bitfield as wide as its type, passed in a register.
		{"clang -O0 -gdwarf-4 dwz-m", 401062},
		// A packed long double on the stack, which is less aligned than others.
		{"clang -O2 -gdwarf-4 dwz-m", 401080},
		// An array of arrays of structures, one of which is more than is recorded.
		{"clang -Os -gdwarf-4 dwz", 401097},
		// A packed structure on the stack whose members lie as those of one that isn't.
		{"g++ -Os -gdwarf-4 dwz", 611145},
		// A complex number that the prologue moves to two registers that calls preserve.
		{"gcc -O0 -g -flto", 702005},
		// A structure that is constants, behind an array up to whose end a loop counts.
		{"gcc -O2 -g -fdebug-types-section", 703022},
		// A structure of which GCC says that it is in one register, twice, and everywhere.
		{"gcc -Os -gdwarf-4 -gsplit-dwarf", 703042},
		// A bitfield as wide as its type behind bits without a name, in a packed structure.
		{"clang -O1 -gdwarf-4", 702064},
		// A result that no call uses, behind one of which the code that is looked at ends
		// within an instruction.
		{"clang++ -O2 -g", 705180},
		// A result that is passed by its address if an enum in it is no bitfield, and the
		// parameters behind that; elements of an array with a member that isn't known.
		{"clang -O3 -g -gsplit-dwarf", 701083}, {"clang -O3 -gdwarf-4", 702082},
		// A structure of which a member is nowhere, behind an array that a vector is stored to.
		{"gcc -O2 -gdwarf-4 dwz-m", 9014026},
		// A bitfield as wide as its type that a bitfield without a name has shifted, in a packed
		// structure all of whose members are bytes.
		{"clang++ -Og -g", 9019207},
		// A result with an _Atomic member, which clang has callers make room for.
		{"clang -O2 -g -gsplit-dwarf", 9021074},
	} {
		t.Run(c.build, func(t *testing.T) {
			t.Parallel()
			compareRandomC(t, c.build, c.seed)
		})
	}
}

func hasLinker(t *testing.T) bool {
	t.Helper()
	_, err := exec.LookPath("ld.lld")
	return err == nil
}

// TestRandomValuesC compares values of random programs of all that C has with what they
// print of themselves (compareBuilds).
func TestRandomValuesC(t *testing.T) {
	builds := cBuilds(t)
	compareBuilds(t, builds, []int{0, 38, 171}, func(t *testing.T, k int, seed uint64) tally { // -O0; -Os, split; C++
		return compareRandomC(t, builds[k], seed)
	})
}

// refusedArgument is what kprobe says of a definition's argument that can't be had: the
// definition, and where the argument stands.
var refusedArgument = regexp.MustCompile(`(?m)^kprobe: (.*)\n  ([prj]:.*)\n( +)\^`)

// withoutRefused leaves out what kprobe says can't be had, and gives what it says.
func withoutRefused(t *testing.T, defs []string, prog string) (kept, refused []string, unknown map[string]bool) {
	t.Helper()
	kept, unknown = slices.Clone(defs), map[string]bool{}
	for {
		var errs bytes.Buffer
		cmd := exec.Command(program(t), append(append([]string{"trace", "-q", "-o", os.DevNull}, kept...), "--", prog)...)
		cmd.Stderr = &errs
		err := cmd.Run()
		if err == nil {
			return kept, refused, unknown
		}
		m := refusedArgument.FindStringSubmatch(errs.String())
		if m == nil {
			t.Fatalf("%v\n%s", err, errs.String())
		}
		at := len(m[3]) - 2
		if at < 0 || at >= len(m[2]) {
			t.Fatalf("not understood: %s", errs.String())
		}
		from := max(strings.LastIndexByte(m[2][:at], ' '), 0)
		to := len(m[2])
		if n := strings.IndexByte(m[2][at:], ' '); n >= 0 {
			to = at + n
		}
		word := m[2][from:to]
		refused = append(refused, eventOf(m[2])+word+": "+m[1])
		_, what, _ := strings.Cut(word, "=")
		root := variableOf.FindString(strings.TrimLeft(what, "(*"))
		place := strings.Fields(m[2])[1]
		found := false
		for i, d := range kept {
			words := strings.Split(d, " ")
			if words[1] != place || d[0] != m[2][0] {
				continue
			}
			words = slices.DeleteFunc(words, func(w string) bool {
				as, x, named := strings.Cut(w, "=")
				if !named || root == "" || variableOf.FindString(strings.TrimLeft(x, "(*")) != root {
					return false
				}
				found, unknown[eventOf(d)+" "+as] = true, true
				return true
			})
			if filtered := slices.Index(words, "if"); filtered >= 0 && unknown[eventOf(d)+" "+words[filtered+1]] || !strings.Contains(strings.Join(words, " "), "=") {
				words = nil // nothing is left, or what the filter is of isn't
			}
			kept[i] = strings.Join(words, " ")
		}
		if !found {
			t.Fatalf("not understood: %s", errs.String())
		}
		kept = slices.DeleteFunc(kept, func(d string) bool { return d == "" })
	}
}

// variableOf is the variable that an argument begins with.
var variableOf = regexp.MustCompile(`^\$?\w+`)

// compareRandomC makes a program of a build's name and compares its values.
func compareRandomC(t *testing.T, build string, seed uint64) tally {
	t.Helper()
	words := strings.Fields(build)
	cxx := strings.HasSuffix(words[0], "++")
	source, defs := generateC(cxx, seed, 8)
	command := []string{words[0], "-w"}
	var pack []packing
	for _, w := range words[1:] {
		switch w {
		case "dwz":
			pack = append(pack, byDWZ)
		case "dwz-m":
			pack = append(pack, byDWZm)
		case "-flto":
			if words[0][0] == 'c' {
				command = append(command, "-fuse-ld=lld")
			}
			fallthrough
		default:
			command = append(command, w)
		}
	}
	return compareProgram(t, map[bool]string{false: "generated.c", true: "generated.cc"}[cxx], source, defs, command, pack...)
}
