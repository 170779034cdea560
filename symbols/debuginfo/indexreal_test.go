package debuginfo

import (
	"debug/dwarf"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kprobe/internal/fixture"
)

// indexed are builds whose names and references are written in all ways.
func indexed(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{
		"go":         fixture.Build(t, "dwarf_vars.go", "-ldflags=-compressdwarf=false"),
		"rust -O":    fixture.Build(t, "dwarf_vars.rs", "-g", "-O"),
		"gcc 5":      fixture.Build(t, "dwarf_vars.cc", "-g", "-O2"),
		"gcc 4":      fixture.Build(t, "dwarf_vars.cc", "-gdwarf-4", "-O2", "-fdebug-types-section"),
		"gcc lto":    fixture.Build(t, "dwarf_vars.cc", "-g", "-O2", "-flto"),
		"gcc strict": fixture.Build(t, "dwarf_vars.cc", "-gdwarf-3", "-gstrict-dwarf", "-O1"),
	}
	b, err := os.ReadFile(filepath.Join(fixture.Root(), "testdata", "dwarf_vars.cc"))
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(t.TempDir(), "vars.c") // clang++ reads it as C++
	if err := os.WriteFile(src, b, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CC", fixture.NeedTool(t, "clang++"))
	for name, flag := range map[string]string{"clang 5": "-gdwarf-5", "clang 4": "-gdwarf-4", "clang pubnames": "-ggnu-pubnames"} {
		out[name] = fixture.BuildFile(t, src, "-g", flag, "-O2", "-Wno-deprecated")
	}
	return out
}

// places are the instances and bodies of all functions, by name, as found by
// going through every entry and following each one's references.
func places(d *Data) map[string][]uint64 {
	out := map[string][]uint64{}
	for _, u := range d.Units() {
		u.walk(func(e *Entry, _ int) bool {
			switch {
			case e.tag == dwarf.TagInlinedSubroutine:
			case e.tag == dwarf.TagSubprogram && len(e.Ranges()) > 0:
			default:
				return true
			}
			names := map[string]bool{}
			at := *e
			for range maxChain {
				names[at.Str(dwarf.AttrName)], names[linkageName(&at)] = true, true
				r, ok := at.RefTo(dwarf.AttrAbstractOrigin)
				if !ok {
					if r, ok = at.RefTo(dwarf.AttrSpecification); !ok {
						break
					}
				}
				if at, ok = r.Entry(); !ok {
					break
				}
			}
			for n := range names {
				out[n] = append(out[n], e.off)
			}
			return true
		})
	}
	delete(out, "")
	return out
}

// TestIndexOfPrograms: by an index, which is made, or which was kept, or
// without, each function's instances and bodies are all that there are, and
// the function at an address, its name and its line are the same.
func TestIndexOfPrograms(t *testing.T) {
	for name, path := range indexed(t) {
		t.Run(name, func(t *testing.T) {
			sec := sectionsOf(t, path)
			store := &memoryStore{}
			plain := New(sec, Options{})
			made := New(sec, Options{IndexFrom: 1, Store: store})
			made.index()
			kept := New(sec, Options{IndexFrom: 1, Store: store})
			searched := New(sec, Options{IndexFrom: 1, Searches: math.MaxInt32})
			want := places(plain)
			names := make([]string, 0, len(want))
			for n := range want {
				names = append(names, n)
			}
			slices.Sort(names)
			count, step := 0, len(names)/120+1
			for i := 0; i < len(names); i += step {
				n := names[i]
				for k, d := range []*Data{plain, made, kept, searched} {
					var got []uint64
					for _, e := range d.FindFunctions(n) {
						for _, x := range slices.Concat(d.Instances(e), d.Bodies(e)) {
							if x.tag == dwarf.TagInlinedSubroutine || len(x.Ranges()) > 0 {
								got = append(got, x.off)
							}
						}
					}
					slices.Sort(got)
					got = slices.Compact(got)
					need := slices.Compact(slices.Sorted(slices.Values(want[n])))
					count += len(need)
					// What has no code at all is nobody's place.
					entered := func(list []uint64) []uint64 {
						return slices.DeleteFunc(slices.Clone(list), func(off uint64) bool {
							e, _, _ := plain.unitAt(off, false).entryAt(off)
							_, ok := e.EntryPC()
							return !ok
						})
					}
					if got, need := entered(got), entered(need); !slices.Equal(got, need) {
						t.Errorf("%s, %d: %q is at %#x, want %#x", name, k, n, got, need)
					}
				}
			}
			if count < 100 {
				t.Errorf("only %d places", count)
			}
			addrs := 0
			var asked []uint64
			for _, r := range plain.unitRanges() {
				for pc := r.Low; pc < r.High; pc += 1 + (r.High-r.Low)/20 {
					a, ok := plain.FuncAt(pc)
					for _, d := range []*Data{made, kept} {
						if b, ok2 := d.FuncAt(pc); ok != ok2 || ok && (a.off != b.off || a.QualifiedName() != b.QualifiedName()) {
							t.Errorf("%#x is in %#x %s, want %#x %s", pc, b.off, b.QualifiedName(), a.off, a.QualifiedName())
						}
					}
					row, ok := plain.UnitAt(pc).Lines().At(pc)
					one, file, ok2 := kept.UnitAt(pc).LineAt(pc)
					if ok != ok2 || ok && (row != one || file != plain.UnitAt(pc).Lines().File(row)) {
						t.Errorf("%#x is of %+v, %v, want %+v, %v", pc, one, ok2, row, ok)
					}
					kept.tables.Clear()
					kept.UnitAt(pc).linesAsked.Store(0)
					asked = append(asked, pc)
					addrs++
				}
				if addrs > 600 {
					break
				}
			}
			for some := range slices.Chunk(append(asked, 0, ^uint64(0)), 100) {
				d := New(sec, Options{})
				d.Locate(append(asked[:2*fewQuestions:2*fewQuestions], some...)) // fewer would be looked for one by one
				for _, pc := range some {
					u, ok := d.located.Load(pc)
					if want := plain.skeletonAt(pc); ok != (want != nil) || ok && u.(*Unit).off != want.off {
						t.Errorf("%#x is located in another unit", pc)
					}
				}
			}
			t.Logf("%d names, %d places, %d addresses", len(names), count, addrs)
		})
	}
}
