package symbols

import (
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

// TestFormer says that code of a library that was unloaded keeps its names,
// until something else is mapped there.
func TestFormer(t *testing.T) {
	s, err := OpenFileSpace(fixture.Build(t, "sym_main.c", "-O1", "-g", filepath.Join(fixture.Root(), "testdata", "sym_other.c")))
	if err != nil {
		t.Fatal(err)
	}
	lib := s.Modules()[0]
	fn := lib.File.Funcs()[0]
	at := lib.Addr(fn.Start)
	want, _, _, _, ok := s.Symbolize(at)
	if !ok {
		t.Fatal("the function has no name")
	}
	before := s.now.Load()
	gone := newView(nil, nil, nil)
	gone.former = former(before, nil)
	s.now.Store(gone)
	if name, off, _, m, ok := s.Symbolize(at); !ok || name != want || off != 0 || m != lib {
		t.Errorf("unloaded, it is %q+%d in %v", name, off, m)
	}
	if s.ModuleAt(at) != nil || len(s.Modules()) != 0 {
		t.Error("a module that is unloaded counts as one that is there")
	}

	// Another mapping is something else.
	taken := newView([]Mapping{{Start: at &^ 0xfff, End: at&^0xfff + 0x1000, Read: true}}, nil, nil)
	taken.former = former(gone, nil)
	if len(taken.former) != 1 {
		t.Fatalf("%d modules are remembered", len(taken.former))
	}
	s.now.Store(taken)
	if name, _, _, _, ok := s.Symbolize(at); ok {
		t.Errorf("what is mapped there now is called %s", name)
	}

	// It comes back: it is remembered no longer.
	if list := former(taken, []*Module{lib}); len(list) != 0 {
		t.Errorf("%d modules are remembered that are there", len(list))
	}
	// Libraries come and go for ever.
	v := newView(nil, nil, nil)
	for range 3 * maxFormer {
		next := newView(nil, []*Module{{}}, nil)
		next.former = former(v, next.modules)
		v = next
	}
	if len(v.former) != maxFormer {
		t.Errorf("%d are remembered", len(v.former))
	}
}
