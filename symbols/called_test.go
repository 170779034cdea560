package symbols

import (
	"testing"

	"kprobe/internal/fixture"
)

// TestCalledOfMany: of many functions the same is known as of one.
func TestCalledOfMany(t *testing.T) {
	path := fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6")
	many, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range fewEntries {
		many.Called(0)
	}
	one, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := map[entry]int{}
	for i, fn := range many.Funcs() {
		for _, v := range []Vaddr{fn.Start, fn.Start + 1, fn.End} {
			got := many.entry(v)
			known[got]++
			if i%16 > 0 && v == fn.Start {
				continue // each search takes long
			}
			row, ok := one.ehTable().At(uint64(v))
			if want := entryByRow(&row, ok); got != want {
				t.Errorf("%s+%#x: %d, want %d", fn.Symbol.Name, uint64(v-fn.Start), got, want)
			}
			if i%512 > 0 {
				continue
			}
			if want := one.searchEntry(v); got != want {
				t.Errorf("%s+%#x: %d, a search finds %d", fn.Symbol.Name, uint64(v-fn.Start), got, want)
			}
		}
	}
	if known[undescribed] == 0 || known[entered] == 0 || known[enteredOtherwise] == 0 {
		t.Errorf("not all cases occur: %v", known)
	}
}

// TestCalled tells functions that are called from what is only jumped to.
func TestCalled(t *testing.T) {
	f, err := OpenFile(fixture.Build(t, "not_called.c"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"main": true, "whole": true, "whole_way": true, "whole_bare": true, "whole_rest": false, "whole_resolve": false, "whole_label": false, "_start": false} {
		syms := f.Lookup(name)
		if len(syms) != 1 {
			t.Fatalf("%s: %v", name, syms)
		}
		if got := f.Called(syms[0].Vaddr); got != want {
			t.Errorf("%s is called: %v, want %v", name, got, want)
		}
	}
}
