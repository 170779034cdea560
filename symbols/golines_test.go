package symbols

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"kprobe/symbols/debuginfo"
)

// TestGoLinesStripped: a stripped Go program has the lines, and the inlined calls,
// that it has with debug information, from the table of its runtime.
func TestGoLinesStripped(t *testing.T) {
	whole, _ := openFixture(t, "sym_go.go")
	bare, f := openFixture(t, "sym_go.go", "-ldflags=-s -w")
	if err := f.ReadDebug(func(*debuginfo.Data) error { return nil }); !errors.Is(err, ErrNoDebugInfo) {
		t.Fatalf("the stripped program has debug information: %v", err)
	}
	inlined := 0
	for file, every := range map[string]int{"sym_go.go": 1, "runtime/proc.go": 40, "strconv/itoa.go": 4} {
		want, name, err := whole.FileLines("", file)
		if err != nil {
			t.Fatal(err)
		}
		got, same, err := bare.FileLines("", file)
		if err != nil || same != name {
			t.Fatalf("%s of the stripped program is %s: %v", file, same, err)
		}
		for i, l := range want {
			if !slices.ContainsFunc(got, func(have LineCode) bool { return have.Line == l.Line && have.Addr <= l.Addr }) {
				t.Errorf("%s:%d is missing", file, l.Line)
			}
			if at, line, ok := bare.Source(l.Addr); !ok || at != name || line != l.Line {
				t.Errorf("%v is %s:%d, want %s:%d", l.Addr, at, line, name, l.Line)
			}
			frames := whole.Frames(l.Addr)
			if got := bare.Frames(l.Addr); !slices.Equal(got, frames) {
				t.Errorf("%v is in %v, want %v", l.Addr, got, frames)
			}
			if inlined += len(frames) - 1; i%every != 0 {
				continue
			}
			checkGoPlaces(t, whole, bare, Place{Kind: PlaceLine, File: file, Line: l.Line})
		}
	}
	if inlined < 100 {
		t.Errorf("%d inlined calls were compared", inlined)
	}
	checkGoPlaces(t, whole, bare, Place{Kind: PlaceLine, Symbol: "main.main", Line: 1})
	checkGoPlaces(t, whole, bare, Place{Kind: PlaceLine, Symbol: "main.openTill", Lines: "*"})
	_, err := bare.Resolve(Place{Kind: PlaceLine, File: "sym_gone.go", Line: 1})
	var missing *NotFoundError
	if !errors.As(err, &missing) || !slices.Contains(missing.Near, "sym_go.go") {
		t.Errorf("a source file that isn't there: %v", err)
	}
	_, err = bare.Resolve(Place{Kind: PlaceLine, File: "sym_go.go", Line: 100000})
	var line *LineError
	if !errors.As(err, &line) || line.Before == 0 {
		t.Errorf("a line that isn't there: %v", err)
	}
}

// checkGoPlaces wants a place in all functions of the stripped program in which the
// whole one has it, and each of its sites to be of a line that the place means.
func checkGoPlaces(t *testing.T, whole, bare *Space, p Place) {
	t.Helper()
	want, err := whole.Resolve(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := bare.Resolve(p)
	if err != nil {
		t.Errorf("%v: %v", p, err)
	}
	for _, site := range want {
		if !slices.ContainsFunc(got, func(have Site) bool { return have.Func.Symbol.Name == site.Func.Symbol.Name }) {
			t.Errorf("%v has no site in %s", p, site.Func.Symbol.Name)
		}
	}
	for _, site := range got {
		if file, line, ok := whole.Source(site.Addr); !ok || p.File != "" && (line != p.Line || !sameSource(file, p.File)) {
			t.Errorf("%v is at %v, which is %s:%d", p, site.Addr, file, line)
		}
	}
	if p.File != "" {
		return
	}
	a, file, first, err := whole.Lines(want[0])
	b, bareFile, bareFirst, bareErr := bare.Lines(want[0])
	if err != nil || bareErr != nil || file != bareFile || first != bareFirst {
		t.Errorf("%v: lines of %s from %d, want %s from %d (%v, %v)", p, bareFile, bareFirst, file, first, err, bareErr)
	}
	for _, l := range a {
		if !slices.ContainsFunc(b, func(have LineCode) bool { return have.Line == l.Line }) {
			t.Errorf("%v: line %d is missing", p, l.Line)
		}
	}
}

// TestGoLinesHostile: a damaged table is answered in bounded time, without a panic.
func TestGoLinesHostile(t *testing.T) {
	_, f := openFixture(t, "sym_go.go", "-ldflags=-s -w")
	good := f.goLineTable()
	if good == nil {
		t.Fatal("no table")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		bad := *good
		bad.b = slices.Clone(good.b)
		for range 1 << r.IntN(16) {
			bad.b[64+r.IntN(len(bad.b)-64)] = byte(r.Uint32())
		}
		bad.tab = bad.b[len(good.b)-len(good.tab):]
		search := lineSearch{line: 100, match: func(name string) bool { return sameSource(name, "proc.go") }}
		search.goFile(&bad)
		_, _ = bad.fileLines("proc.go", map[int]uint64{})
		bad.eachFile(func(string) {})
		for range 50 {
			v := bad.text + Vaddr(r.Uint64N(good.size))
			bad.source(v)
			bad.frames(v)
			if fn, ok := bad.functionAt(v); ok {
				bad.ownLines(&fn)
			}
		}
	}
}
