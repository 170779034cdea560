package debuginfo

import (
	"cmp"
	"slices"
	"strconv"
	"testing"

	"kprobe/internal/fixture"
)

// TestAims: who refers to an entry is the same by the table as by going through the
// bytes of all units.
func TestAims(t *testing.T) {
	for name, path := range map[string]string{
		"gcc lto": fixture.Build(t, "dwarf_vars.cc", "-g", "-O2", "-flto"),
		"gcc":     fixture.Build(t, "dwarf_vars.cc", "-g", "-O2"),
		"rust -O": fixture.Build(t, "dwarf_vars.rs", "-g", "-O"),
	} {
		sec := sectionsOf(t, path)
		d, plain := New(sec, Options{}), New(sec, Options{Searches: 1 << 30})
		var referred, others int
		for _, u := range d.Units() {
			for s := u.scan(u.planner(), u.first, u.end); s.next(); {
				if s.plan.kind != kindFunc {
					continue
				}
				got, ok := d.completionsOf(u, s.off)
				if ok != d.crosses() {
					t.Fatalf("%s: %#x: a table is there: %t", name, s.off, ok)
				}
				if !ok {
					continue
				}
				var want []aim
				home := plain.unitAt(s.off, false)
				for _, r := range plain.relatives(home, s.off) {
					for _, a := range r.aimsAt(home, s.off) {
						want = append(want, a)
						if r != home {
							others++
						}
					}
				}
				slices.SortFunc(want, func(x, y aim) int { return cmp.Compare(x.off, y.off) })
				if !slices.EqualFunc(got, want, func(c completion, a aim) bool { return c.aim == a && c.u.off <= a.off && a.off < c.u.end }) {
					t.Errorf("%s: %v refer to %#x, want %v", name, got, s.off, want)
				}
				referred += len(want)
			}
		}
		if name != "gcc" && (referred < 20 || others == 0) {
			t.Errorf("%s: %d references, %d of them from other units", name, referred, others)
		}
	}
}

// TestAnswersAreBounded: what is kept of answers stays below the bound, and a question
// is answered as the first time whether its answer is kept or not.
func TestAnswersAreBounded(t *testing.T) {
	var a answers[int, int]
	asked := 0
	ask := func(q, n int) {
		t.Helper()
		list := a.get(q, func() []int { asked++; return slices.Repeat([]int{q}, n) })
		if len(list) != n || n > 0 && list[n-1] != q {
			t.Fatalf("%d elements for %d, want %d", len(list), q, n)
		}
		sum := 0
		for _, l := range a.kept {
			sum += len(l) + perQuestion
		}
		if sum != a.cost || sum > maxAnswers {
			t.Fatalf("%d elements are kept, counted as %d", sum, a.cost)
		}
	}
	ask(1, 10)
	ask(1, 10)
	ask(2, 0)
	ask(2, 0)
	if asked != 2 {
		t.Errorf("two questions were asked %d times", asked)
	}
	ask(3, maxAnswers)
	ask(3, maxAnswers)
	ask(1, 10)
	if asked != 4 {
		t.Errorf("what is too long to keep: asked %d times in all", asked)
	}
	for q := range 3 * maxAnswers / 1000 {
		ask(100+q, 1000)
	}
	ask(1, 10)
	if _, ok := a.first(7, func() (int, bool) { return 0, false }); ok {
		t.Error("no answer is one")
	}
	if v, ok := a.first(8, func() (int, bool) { return 9, true }); !ok || v != 9 {
		t.Error(v, ok)
	}
}

// TestManyNamesOfSmallFile: a file that is too small for an index to be kept has one in
// memory when many names were asked for, with the same answers.
func TestManyNamesOfSmallFile(t *testing.T) {
	sec := manyUnits(t, 1, "-g", "-O2")
	sec = manyUnits(t, indexFrom/len(sec.Info)+1, "-g", "-O2")
	store := &memoryStore{}
	d, plain := New(sec, Options{Store: store}), New(sec, Options{IndexFrom: 1 << 30})
	for i := range 2 * fewSearches {
		if i < fewSearches && d.ready() != nil {
			t.Fatalf("an index is made for %d names", i)
		}
		d.FindFunctions("no_such_name" + strconv.Itoa(i))
	}
	if d.ready() == nil || store.loads+store.saves != 0 {
		t.Errorf("an index: %t; %d times loaded, %d times saved", d.ready() != nil, store.loads, store.saves)
	}
	for _, name := range []string{"area", "shapes::Box::area", "swap_in", "caller", "no_such_name"} {
		if got, want := found(d, name), found(plain, name); !slices.Equal(got, want) {
			t.Errorf("%q is %q by the index, %q without", name, got, want)
		}
	}
}

// BenchmarkManyFunctions asks for the bodies and instances of functions of a program
// whose units refer to each other: of five names, and of five names seventeen times.
func BenchmarkManyFunctions(b *testing.B) {
	sec := sectionsOf(b, fixture.Build(b, "dwarf_vars.rs", "-g", "-O"))
	names := allNames(New(sec, Options{}))
	names = slices.DeleteFunc(names, func(n string) bool { return n != "new" && n != "drop" && n != "fmt" && n != "push" && n != "main" })
	for _, times := range []int{1, 17} {
		b.Run(strconv.Itoa(times), func(b *testing.B) {
			for b.Loop() {
				d := New(sec, Options{})
				for range times {
					for _, n := range names {
						for _, e := range d.FindFunctions(n) {
							d.Instances(e)
							d.Bodies(e)
						}
					}
				}
			}
		})
	}
}
