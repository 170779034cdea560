package symbols

import (
	"testing"

	"kprobe/internal/fixture"
)

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
