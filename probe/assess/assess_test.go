package assess

import (
	"errors"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/insn"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// fileSpace is a program of the fixtures that isn't run.
func fileSpace(t *testing.T, name string, flags ...string) *symbols.Space {
	t.Helper()
	space, err := symbols.OpenFileSpace(fixture.Build(t, name, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return space
}

func siteOf(t *testing.T, space *symbols.Space, symbol string, off int64) symbols.Site {
	t.Helper()
	list, err := space.Resolve(symbols.Place{Symbol: symbol, Offset: off})
	if err != nil || len(list) != 1 {
		t.Fatalf("%s+%d: %v, %v", symbol, off, list, err)
	}
	return list[0]
}

// TestAssessorKnowsTheProcess: what files allow, a process may not.
func TestAssessorKnowsTheProcess(t *testing.T) {
	space := fileSpace(t, "probe_calls.c", "-O2")
	w := siteOf(t, space, "work", 0)
	plain := Assessor{Function: decoded, Golang: new(Programs)}
	p, err := plain.Instruction(w)
	if err != nil || p.Site != w || len(p.Code()) < int(p.Inst().Len) || p.Inst().Len == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if s, err := plain.Start(w); err != nil || s.Inst() != p.Inst() || s.Site != p.Site {
		t.Errorf("as a start it is %+v, %v; as any place %+v", s, err, p)
	}
	own := plain
	own.Own = func(a symbols.Addr) bool { return a == w.Addr }
	var refused *survey.RefusedError
	if _, err := own.Instruction(w); !errors.As(err, &refused) || !strings.Contains(refused.Rule, "kprobe's own") {
		t.Errorf("kprobe's own code: %v", err)
	}
	differs := errors.New("it differs")
	other := plain
	other.Memory = func(at symbols.Site, code []byte, in insn.Inst) error {
		if at != w || in != p.Inst() || len(code) < int(in.Len) {
			t.Errorf("the memory of %+v is compared with % x, %+v", at, code, in)
		}
		return differs
	}
	for _, ask := range []func(symbols.Site) (Place, error){other.Instruction, other.Start} {
		if _, err := ask(w); !errors.Is(err, differs) {
			t.Errorf("memory that isn't the file's: %v", err)
		}
	}
}

// TestAssessorOfReturns: only what is called has a return.
func TestAssessorOfReturns(t *testing.T) {
	space := fileSpace(t, "probe_calls.c", "-O2")
	a := Assessor{Function: decoded, Golang: new(Programs)}
	entry := siteOf(t, space, "work", 0)
	f, err := decoded(entry)
	if err != nil {
		t.Fatal(err)
	}
	var second int64
	for at := range f.Sweep.All() {
		if second = int64(at) - int64(f.Start); second > 0 {
			break
		}
	}
	behind := siteOf(t, space, "work", second)
	inlined := entry
	inlined.NameAs(symbols.NamedAs{Inlined: "main"})
	for _, tt := range []struct {
		name string
		kind fetch.Kind
		at   symbols.Site
		rule string
	}{
		{"an entry", fetch.Return, entry, ""},
		{"the second instruction", fetch.Return, behind, "needs a function's entry"},
		{"an inlined one", fetch.Return, inlined, "is inlined there"},
		{"an entry probe behind the entry", fetch.Entry, behind, ""},
		{"an entry probe of an inlined one", fetch.Entry, inlined, ""},
	} {
		var refused *survey.RefusedError
		switch p, err := a.Definition(&fetch.Def{Kind: tt.kind}, tt.at); {
		case tt.rule == "" && (err != nil || p.Site != tt.at):
			t.Errorf("%s: %+v, %v", tt.name, p, err)
		case tt.rule != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Rule, tt.rule)):
			t.Errorf("%s: %v, want that it %s", tt.name, err, tt.rule)
		}
	}
}

// TestFunctionIsLetGo: how a function is left stays known without its instructions.
func TestFunctionIsLetGo(t *testing.T) {
	f, err := decoded(siteOf(t, fileSpace(t, "probe_calls.c", "-O2"), "work", 0))
	if err != nil {
		t.Fatal(err)
	}
	l := *f.Leaving()
	if !l.Returns || len(l.Exits) == 0 || !f.Loaded() {
		t.Fatalf("%+v", l)
	}
	f.Release()
	if f.Loaded() || !f.KnowsLeaving() {
		t.Errorf("loaded %v, knows how it is left: %v", f.Loaded(), f.KnowsLeaving())
	}
	if again := f.Leaving(); len(again.Exits) != len(l.Exits) || again.Returns != l.Returns || again.Closed != l.Closed {
		t.Errorf("%+v, before %+v", again, l)
	}
	var none *Function
	if none.Loaded() || none.KnowsLeaving() {
		t.Error("a function that isn't there is known")
	}
}

// TestPartly: places are left out for what they lack, and for nothing else.
func TestPartly(t *testing.T) {
	d, err := fetch.Parse("p:x many* n")
	if err != nil {
		t.Fatal(err)
	}
	var p Partly
	for code, lacks := range map[fetch.Code]bool{fetch.NoBTFArg: true, fetch.NoPtrStrct: true, fetch.NoRetval: true, fetch.BadAccessAddr: false} {
		if got := new(Partly).Skip(symbols.Site{}, d.Error(code, "why", nil)); got != lacks {
			t.Errorf("%v: left out %v", code, got)
		}
	}
	if new(Partly).Skip(symbols.Site{}, errors.New("other")) || p.First != nil {
		t.Error("any error leaves a place out")
	}
	first := d.Error(fetch.NoBTFArg, "no n", nil)
	for i := range 11 {
		if !p.Skip(symbols.Site{Named: "many_" + string(rune('a'+i))}, first) {
			t.Fatal("it is not left out")
		}
	}
	want := "11 of 20 places are not probed, because they don't have what it fetches: many_a, many_b, many_c, many_d, many_e, many_f, many_g, many_h and 3 more ("
	if got := p.Warning(d, 20); !strings.Contains(got, want) || !errors.Is(p.First, first) {
		t.Errorf("%q, want %q in it", got, want)
	}
}

// TestUnwinders finds what reads return addresses by what is in the file.
func TestUnwinders(t *testing.T) {
	var u Unwinders
	for _, tt := range []struct {
		fixture string
		flags   []string
		unwinds bool
	}{
		{"probe_calls.c", []string{"-O2"}, false},
		{"detour_throw.cc", []string{"-O2"}, true},
	} {
		space := fileSpace(t, tt.fixture, tt.flags...)
		for range 2 { // the second time it is remembered
			if got := u.In(space); (got != "") != tt.unwinds {
				t.Errorf("%s: %q unwinds", tt.fixture, got)
			}
		}
	}
}
