package debuginfo

import (
	"bytes"
	"slices"
	"strconv"
	"testing"

	"kprobe/internal/fixture"
)

// TestSearchBeforeIndex: the first names are searched for, and an index is made for
// those that follow, with the same answers.
func TestSearchBeforeIndex(t *testing.T) {
	for _, flags := range [][]string{{"-g", "-O2"}, {"-gdwarf-4", "-O0"}, {"-g", "-O2", "-flto"}} {
		sec := manyUnits(t, 3, flags...)
		store := &memoryStore{}
		d, plain := New(sec, Options{Store: store, IndexFrom: 1, Searches: 1000}), New(sec, Options{})
		for i, name := range []string{"area", "shapes::Box::area", "swap_in", "caller", "no_such_name"} {
			if got, want := found(d, name), found(plain, name); !slices.Equal(got, want) {
				t.Errorf("%v: %q is %q by a search, %q without", flags, name, got, want)
			}
			if store.saves != 0 || d.made.Load() != nil {
				t.Fatalf("%v: an index was made for %d names", flags, i+1)
			}
		}
		for i := range 1001 {
			d.FindFunctions("no_such_name" + strconv.Itoa(i))
		}
		if store.saves != 1 {
			t.Errorf("%v: %d indexes were made for many names", flags, store.saves)
		}
		if got, want := found(d, "area"), found(plain, "area"); !slices.Equal(got, want) {
			t.Errorf("%v: %q by the index, %q without", flags, got, want)
		}
	}
}

// TestSearchOfEveryUnit: what very much of a file has is left to the index.
func TestSearchOfEveryUnit(t *testing.T) {
	sec := sectionsOf(t, fixture.Build(t, "dwarf_vars.c", "-g", "-O2"))
	n := mostFound/len(sec.Info) + 2
	sec.Info = bytes.Repeat(sec.Info, n)
	d := New(sec, Options{IndexFrom: 1, Searches: 100})
	if _, ok := d.searched([]string{"scalars"}); ok {
		t.Error("all units are to be gone through")
	}
	if list, ok := d.searched([]string{"no_such_name", ""}); !ok || len(list) != 0 {
		t.Errorf("%v, %v", list, ok)
	}
}

// TestSearchOfNumberedNames: where strings are reached by numbers, the units are found
// that have the string in their own table.
func TestSearchOfNumberedNames(t *testing.T) {
	t.Setenv("CC", fixture.NeedTool(t, "clang"))
	sec := sectionsOf(t, fixture.Build(t, "dwarf_vars.c", "-gdwarf-5", "-O1"))
	if len(sec.StrOffsets) == 0 {
		t.Fatal("no string is reached by a number")
	}
	d := New(sec, Options{IndexFrom: 1, Searches: 100})
	list, ok := d.searched([]string{"scalars"})
	if !ok || len(list) != 1 {
		t.Errorf("%v, %v, want its unit", list, ok)
	}
	// Another unit, with a table of its own that hasn't the name.
	other := slices.Clone(sec.Info)
	two := sec
	two.Info = append(slices.Clone(sec.Info), other...)
	two.StrOffsets = append(slices.Clone(sec.StrOffsets), make([]byte, len(sec.StrOffsets))...)
	d = New(two, Options{IndexFrom: 1, Searches: 100})
	tables := []Range{{8, uint64(len(sec.StrOffsets))}, {uint64(len(sec.StrOffsets)), uint64(len(two.StrOffsets))}}
	d.strTables.get(func() []Range { return tables })
	if list, ok := d.searched([]string{"scalars"}); !ok || len(list) != 1 || list[0].u != d.Units()[0] {
		t.Errorf("%v, %v, want the first unit", list, ok)
	}
}
