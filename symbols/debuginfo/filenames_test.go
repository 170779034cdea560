package debuginfo

import (
	"path"
	"slices"
	"testing"
)

// TestUnitsOf compares the units that speak of each file with those whose whole
// list of files has it: as found one by one, and by the index.
func TestUnitsOf(t *testing.T) {
	for name, file := range programs(t) {
		t.Run(name, func(t *testing.T) {
			sec := sectionsOf(t, file)
			want := map[string][]*Unit{}
			d := New(sec, Options{})
			for _, u := range d.Units() {
				for _, f := range u.Files() {
					base := path.Base(f)
					if list := want[base]; f != "" && (list == nil || list[len(list)-1] != u) {
						want[base] = append(list, u)
					}
				}
			}
			if len(want) == 0 {
				t.Fatal("no files")
			}
			asked := 0
			for base, units := range want {
				if asked++; asked > 40 {
					break
				}
				alone := New(sec, Options{}).UnitsOf(base)
				if !slices.EqualFunc(alone, units, func(x, y *Unit) bool { return x.off == y.off }) {
					t.Errorf("%s is of %d units, not %d", base, len(units), len(alone))
				}
				if got := d.UnitsOf(base); !slices.Equal(got, units) {
					t.Errorf("%s is of %d units, not %d by the index", base, len(units), len(got))
				}
			}
			if got := d.UnitsOf("no such file.c"); len(got) != 0 {
				t.Errorf("a file that nobody has is of %d units", len(got))
			}
			if len(d.UnitsOf("")) != len(d.Units()) {
				t.Error("any file isn't of all units")
			}
			if len(want) > fewFiles && (!d.files.made || d.files.many) {
				t.Error("no index was made")
			}
		})
	}
}

// TestUnitsOfReadsOnce: the tables are gone through for a few files, not for each.
func TestUnitsOfReadsOnce(t *testing.T) {
	d := New(manyUnits(t, 200, "-g"), Options{})
	for _, base := range []string{"a.c", "b.c", "c.c"} {
		d.UnitsOf(base)
	}
	d.sec.Line = nil // nobody reads it again
	for _, u := range d.Units()[:20] {
		base := path.Base(u.Name())
		if got := d.UnitsOf(base); !slices.Contains(got, u) {
			t.Errorf("%s is not of its unit, but of %d others", base, len(got))
		}
	}
}
