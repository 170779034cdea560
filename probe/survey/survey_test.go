package survey

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// places opens the program of testdata/survey_places.s.
func places(t *testing.T) *symbols.Module {
	t.Helper()
	path := fixture.Build(t, "survey_places.s", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,noseparate-code")
	space, err := symbols.OpenFileSpace(path)
	if err != nil {
		t.Fatal(err)
	}
	return space.Modules()[0]
}

// site is a place in a function, as Space.Resolve gives it, moved by slide from
// where the file has it.
func site(t *testing.T, m *symbols.Module, name string, off, slide uint64) symbols.Site {
	t.Helper()
	syms := m.File.Lookup(name)
	if len(syms) == 0 {
		t.Fatalf("no symbol %s", name)
	}
	v := syms[0].Vaddr + symbols.Vaddr(off)
	fn, _ := m.File.FuncAt(v)
	if fn.Start != syms[0].Vaddr {
		fn = symbols.Func{Start: syms[0].Vaddr, Symbol: syms[0]}
	}
	return symbols.Site{Addr: symbols.Addr(uint64(v) + slide), Module: m, Vaddr: v, Func: &fn, Offset: off, Named: name}
}

func decode(w symbols.Site) func() (*insn.Function, error) {
	return func() (*insn.Function, error) {
		_, sweep, err := Decode(w.Module.File, w.Func, Start(w))
		return sweep, err
	}
}

// TestProve has every rule refuse a place, and places around it be proved.
func TestProve(t *testing.T) {
	m := places(t)
	const slide = 0x7f0000000000
	for _, c := range []struct {
		name string
		off  uint64
		n    int    // length of the instruction; 0: it is refused
		want string // in the error
	}{
		{"_start", 0, 1, ""},
		{"_start", 1, 5, ""},
		{"_start", 2, 0, "nearest boundaries are _start+0x1 and _start+0x6"},
		{"_start", 5, 0, "nearest boundaries are _start+0x1 and _start+0x6"},
		{"_start", 6, 2, ""}, // it can't be copied, which Copy says
		{"_start", 7, 0, "nearest boundaries are _start+0x6 and _start+0x8"},
		{"_start", 8, 2, ""},
		{"_start", 10, 0, "nearest boundaries are _start+0x8"},
		{"bad", 0, 0, "no known instruction"},
		{"other", 0, 1, ""},
		{"other", 2, 1, ""},
		{"trampoline", 0, 0, RestorerRule},
		{"trampoline", 7, 2, ""}, // only its start is known by its bytes
		{"__restore_rt", 0, 0, RestorerRule},
		{"unsized", 1, 1, ""}, // it ends where the next begins
		{"last", 0, 1, ""},
		{"last", 1, 1, ""},
	} {
		w := site(t, m, c.name, c.off, slide)
		code, in, err := Prove(w, decode(w))
		if c.n > 0 {
			if err != nil || int(in.Len) != c.n || len(code) < c.n {
				t.Errorf("%s+%d: %d bytes, instruction of %d, %v", c.name, c.off, len(code), in.Len, err)
			}
			continue
		}
		var refused *RefusedError
		var inside *BoundaryError
		switch {
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s+%d: %v", c.name, c.off, err)
		case errors.As(err, &inside):
			if inside.Addr != w.Addr || inside.Place != c.name {
				t.Errorf("%s+%d: %+v", c.name, c.off, inside)
			}
		case !errors.As(err, &refused) || refused.Addr != w.Addr || refused.Place != c.name:
			t.Errorf("%s+%d: %T", c.name, c.off, err)
		}
	}
}

// TestProveWithoutFile: what no file backs can't be known.
func TestProveWithoutFile(t *testing.T) {
	m := places(t)
	w := site(t, m, "_start", 1, 0)
	for _, module := range []*symbols.Module{nil, {Name: "[stack]"}} {
		w.Module = module
		var refused *RefusedError
		if _, _, err := Prove(w, nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "no file") {
			t.Errorf("%v: %v", module, err)
		}
	}
	w = site(t, m, "_start", 1, 0)
	failed := errors.New("it can't be read")
	if _, _, err := Prove(w, func() (*insn.Function, error) { return nil, failed }); err == nil || !strings.Contains(err.Error(), failed.Error()) {
		t.Errorf("a function that can't be decoded: %v", err)
	}
	// A start needs no decoding.
	w = site(t, m, "_start", 0, 0)
	if _, _, err := Prove(w, func() (*insn.Function, error) { t.Error("it is decoded"); return nil, failed }); err != nil {
		t.Error(err)
	}
	w = site(t, m, "_start", 1, 0)
	w.Func = new(symbols.Func)
	if _, _, err := Prove(w, nil); err == nil || !strings.Contains(err.Error(), "no function is known there") {
		t.Error(err)
	}
	// A boundary in a function without a name.
	w = site(t, m, "_start", 2, 0)
	w.Func.Symbol.Name = ""
	if _, _, err := Prove(w, decode(w)); err == nil || !strings.Contains(err.Error(), "and "+Start(w).String()+"+0x6") {
		t.Error(err)
	}
	if _, _, err := Decode(m.File, &symbols.Func{Start: w.Func.Start, End: w.Func.Start}, 0); err == nil {
		t.Error("a function without a size is decoded")
	}
	if _, _, err := Decode(m.File, &symbols.Func{Start: 1 << 40, End: 1<<40 + 8}, 0); err == nil {
		t.Error("a function that the file doesn't hold is decoded")
	}
}

// TestCopy says which instructions can run elsewhere.
func TestCopy(t *testing.T) {
	m := places(t)
	for _, c := range []struct {
		off  uint64
		room int
		want string
	}{
		{0, 64, ""},
		{1, 64, ""},
		{1, 9, "too long"}, // five bytes, and a jump of five
		{1, 10, ""},
		{6, 64, "can't be probed: "},
		{8, 64, ""},
	} {
		w := site(t, m, "_start", c.off, 0)
		code, _, err := ProveStart(w)
		if err != nil {
			t.Fatal(err)
		}
		moved, err := Copy(w, code, w.Addr+0x10000, c.room, insn.Options{})
		var refused *RefusedError
		switch {
		case c.want == "" && (err != nil || len(moved.Code) == 0 || len(moved.Code) > c.room):
			t.Errorf("+%d: %d bytes, %v", c.off, len(moved.Code), err)
		case c.want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("+%d in %d bytes: %v", c.off, c.room, err)
		}
	}
}

// TestAround: what follows a function belongs to the next or to nobody, and what
// leads into it is known.
func TestAround(t *testing.T) {
	m := places(t)
	var a Around
	get := func(name string) (symbols.Func, []byte, int, func(uint64) bool) {
		w := site(t, m, name, 0, 0)
		code, _, err := Decode(m.File, w.Func, Start(w))
		if err != nil {
			t.Fatal(err)
		}
		text, known := a.Of(code, w.Func, m)
		return *w.Func, text, known.Next, known.Target
	}
	fn, text, next, target := get("_start")
	if next != 12 || len(text) != 12+behind {
		t.Errorf("_start: next at %d of %d", next, len(text))
	}
	if other := uint64(fn.Start) + 12; !target(other+1) || target(other+2) || !target(other) {
		t.Error("the branch into the middle is not known")
	}
	if _, text, next, _ = get("other"); next != 8 || text[3] != 0xcc {
		t.Errorf("other: next at %d", next)
	}
	if len(a.targets) != 1 {
		t.Errorf("%d files are remembered", len(a.targets))
	}
	// Nothing follows within what a jump may use.
	if _, text, next, _ = get("trampoline"); next != len(text) || next != 9+behind {
		t.Errorf("trampoline: next at %d of %d", next, len(text))
	}
	if _, text, next, _ = get("last"); next != len(text) {
		t.Errorf("last: next at %d of %d", next, len(text))
	}
}

// TestAroundBehind: what follows a function is what the file has there, whatever room there is behind the
// bytes that were read before.
func TestAroundBehind(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	space, err := symbols.OpenFileSpace(self)
	if err != nil {
		t.Fatal(err)
	}
	m, n := space.Modules()[0], 0
	var a Around
	for fn := range m.File.EachFunc() {
		if fn.Size() < 1024 {
			continue
		}
		if n++; n > 50 {
			break
		}
		code, err := m.File.Text(fn.Start, int(fn.Size()))
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.File.Text(fn.Start, int(fn.Size())+behind)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := a.Of(code, &fn, m); !bytes.Equal(got, want) {
			t.Errorf("behind %d bytes of %s: %x, the file has %x", len(code), fn.Symbol.Name, got[len(code):], want[len(code):])
		}
	}
	if n == 0 {
		t.Error("there is no large function")
	}
}

// TestWide: a function comes with the neighbours that are code for certain.
func TestWide(t *testing.T) {
	m := places(t)
	var a Around
	for _, c := range []struct {
		name  string
		sites []uint64 // behind the first; nil: it stands alone
	}{
		{"other", []uint64{1, 2, 8, 15}},      // and the trampoline; what is before has bytes that are no instruction
		{"trampoline", []uint64{1, 2, 8, 15}}, // and what is before
		{"__restore_rt", nil},                 // the next is no code, the one before too far
		{"last", nil},                         // a label is no function for certain
	} {
		w := site(t, m, c.name, 0, 0)
		_, sweep, err := Decode(m.File, w.Func, Start(w))
		if err != nil {
			t.Fatal(err)
		}
		f := a.Wide(sweep, w.Func, m)
		if f == nil || c.sites == nil {
			if f != nil || c.sites != nil {
				t.Errorf("%s: %v", c.name, f)
			}
			continue
		}
		var got []uint64
		for _, s := range f.Sites()[1:] {
			got = append(got, s-f.Sites()[0])
		}
		if !slices.Equal(got, c.sites) {
			t.Errorf("%s: %v, want %v", c.name, got, c.sites)
		}
		// A neighbour's padding and instructions serve.
		ps, err := plan.Plan(f, []plan.Site{{Addr: f.Sites()[0]}}, plan.Gaps{{Lo: 1 << 20, Hi: 1<<20 + 4096}}, nil)
		if err != nil || len(ps) != 1 || ps[0].Tactic == plan.Refused {
			t.Errorf("%s: %v %v", c.name, ps, err)
		}
	}
}

// TestAroundAtOnce asks from several goroutines, as listings do.
func TestAroundAtOnce(t *testing.T) {
	m := places(t)
	w := site(t, m, "other", 0, 0)
	code, _, err := Decode(m.File, w.Func, Start(w))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		var a Around
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, known := a.Of(code, w.Func, m); !known.Target(uint64(w.Addr) + 1) {
					t.Error("the branch into the middle is not known")
				}
			})
		}
		wg.Wait()
	}
}
