package vars

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

func scopeOf(t testing.TB, prog string, p symbols.Place) *Scope {
	t.Helper()
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	sites, err := space.Resolve(p)
	if err != nil {
		t.Fatal(err)
	}
	return At(space, sites[0])
}

// TestExpressions checks types and chains of expressions at pointers' entry,
// where c is rdi, text rsi, numbers rdx, raw rcx and fn r8.
func TestExpressions(t *testing.T) {
	s := scopeOf(t, fixture.Build(t, "dwarf_vars.c", "-g", "-O2"), symbols.Place{Symbol: "pointers"})
	for _, c := range []struct {
		text, typ string
		chain     fetch.Chain
		off       int64
	}{
		{"c", "x64", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 0},
		{"c->fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 0},
		{"c.fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 0},
		{"(*c).fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 0},
		{"c->name", "string", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 4},
		{"c->name[2]", "char", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 6},
		{"c->peer", "string", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI, Loads: []fetch.Load{{Off: 24}}}, 0},
		{"c->next->next->at.y", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI, Loads: []fetch.Load{{Off: 48}, {Off: 48}}}, 36},
		{"c->path[2].y", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 124},
		{"c->level", "b5@4/32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 56},
		{"c->up", "_Bool", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 72},
		{"c->color", "enum color", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 128},
		{"c->u.as_float", "f32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 132},
		{"c->handler", "symbol", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 136},
		{"text", "string", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.SI}, 0},
		{"*text", "char", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.SI}, 0},
		{"numbers[3]", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DX}, 12},
		{"*numbers", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DX}, 0},
		{"((conn*)raw)->fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, 0},
		{"((struct conn*)raw)->fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, 0},
		{"((struct conn *)raw)->at.y", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, 36},
		{"(conn*)raw->fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, 0},
		{"(conn)raw->at.y", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, 36},
		{"(struct conn)(raw)->at.y", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, 36},
		{"(conn,at)raw->fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, -32},
		{"(conn,at)raw->at.y", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, 4},
		{"(struct conn, at.y)raw->at.y", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX}, 0},
		{"(conn)((conn)raw->next)->at.y", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX, Loads: []fetch.Load{{Off: 48}}}, 36},
		{"(conn*)c->next", "x64", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 48}, // C's
		{"(conn*)numbers->fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DX}, 0},
		{"(*(conn**)raw)->fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.CX, Loads: []fetch.Load{{}}}, 0},
		{"(unsigned int)c->fd", "u32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 0},
		{"fn", "symbol", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.R8}, 0},
		{"$arg1->fd", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.DI}, 0},
		{"$retval", "s32", fetch.Chain{Source: fetch.SourceReg, Reg: fetch.AX}, 0},
	} {
		v, err := s.Variable(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		same := v.Chain.Source == c.chain.Source && v.Chain.Reg == c.chain.Reg && len(v.Chain.Loads) == len(c.chain.Loads) && v.Off == c.off
		for i := range v.Chain.Loads {
			same = same && v.Chain.Loads[i] == c.chain.Loads[i]
		}
		if !same || v.Type.String() != c.typ {
			t.Errorf("%s: %+v, want %s %+v at %d", c.text, v, c.typ, c.chain, c.off)
		}
	}
	for _, c := range []struct{ text, says string }{
		{"nope", "no variable nope in pointers (there are: c, text, numbers, raw, fn, sum"},
		{"c->nope", "no nope in struct conn (there are: fd, name, peer, at"},
		{"numbers[0].x", "is not a structure"},
		{"*c->fd", "is not a pointer"},
		{"*raw", "points to something without a type"},
		{"c->hist[4]", "has no element 4"},
		{"numbers[i]", "must be a constant"},
		{"c->", "no  in struct conn"},
		{"(nope*)c", "no type nope"},
		{"(nope)c->fd", "no type nope"},
		{"(conn*)raw->nope", "no nope in struct conn"},
		{"(conn,nope)raw->fd", "no nope in struct conn"},
		{"(conn,level)raw->fd", "is a bitfield"},
		{"(conn,next.fd)raw->fd", "that a pointer leads to"},
		{"(conn)*c", "not of the form"},
		{"(conn)raw", "only addresses and integers can"},
		{"(int)c->rate", "only addresses and integers can"},
		{"c)", "not of the form"},
	} {
		_, err := s.Variable(c.text)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.text, err, c.says)
		}
	}
	for text, want := range map[string]fetch.FieldError{
		"c->nope":         {Code: fetch.NoBTFField, At: 3},
		"c->peer->nope.x": {Code: fetch.NoPtrStrct, At: 9},
		"(*c).nope":       {Code: fetch.NoBTFField, At: 5},
		"c->fd->x":        {Code: fetch.NoPtrStrct, At: 7},
		"numbers[0].x":    {Code: fetch.NoPtrStrct, At: 11},
	} {
		_, err := s.Variable(text)
		var got *fetch.FieldError
		if !errors.As(err, &got) || got.Code != want.Code || got.At != want.At {
			t.Errorf("%s: %v, want %v at %d", text, err, want.Code, want.At)
		}
	}
}

// TestThreeAnswers tells no debug information, no such variable and no value
// here apart.
func TestThreeAnswers(t *testing.T) {
	entry := symbols.Place{Symbol: "inliner"}
	bare := scopeOf(t, fixture.Build(t, "dwarf_vars.c", "-O2"), entry)
	if _, err := bare.Variable("a"); !errors.Is(err, fetch.ErrNoDebugInfo) {
		t.Errorf("without debug information: %v", err)
	}
	prog := fixture.Build(t, "dwarf_vars.c", "-g", "-O2")
	var nf *NotFoundError
	if _, err := scopeOf(t, prog, entry).Variable("zzz"); !errors.As(err, &nf) || len(nf.Have) == 0 {
		t.Errorf("no such variable: %v", err)
	}
	if _, err := scopeOf(t, prog, entry).Variable("inner"); !errors.As(err, &nf) {
		t.Errorf("a variable of a block that is not entered yet: %v", err)
	}
	_, err := scopeOf(t, prog, entry).Variable("r")
	if !errors.Is(err, fetch.ErrNoValue) || !strings.Contains(err.Error(), "available from inliner+0x") {
		t.Errorf("a variable that has no value yet: %v", err)
	}
	if _, err := scopeOf(t, prog, symbols.Place{Symbol: "main"}).Result(); err != nil {
		t.Errorf("main returns an int: %v", err)
	}
}

// TestInlinedScope finds an inlined instance's own parameters.
func TestInlinedScope(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.Build(t, "dwarf_vars.c", "-g", "-O0"))
	if err != nil {
		t.Fatal(err)
	}
	sites, err := space.Resolve(symbols.Place{Symbol: "mix"})
	if err != nil || len(sites) != 2 {
		t.Fatal(sites, err)
	}
	for _, site := range sites {
		s := At(space, site)
		if fn, err := s.Function(); fn != "mix" || err != nil {
			t.Errorf("the function at %v is %s (%v), want mix", site.Addr, fn, err)
		}
		vars, err := s.Variables(fetch.WhichVars)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range vars {
			names = append(names, v.Name)
		}
		if got := strings.Join(names, " "); got != "a b c" {
			t.Errorf("variables at %v: %s, want a b c", site.Addr, got)
		}
	}
}

// TestLocalsBeforeFrame: at a function's entry a local variable of unoptimized
// code has no place yet, and is no part of $vars; it is from the first line on.
func TestLocalsBeforeFrame(t *testing.T) {
	prog := fixture.Build(t, "dwarf_vars.c", "-g", "-O0")
	names := func(s *Scope) (out []string) {
		list, err := s.Variables(fetch.WhichVars)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			out = append(out, v.Name)
		}
		return out
	}
	entry := scopeOf(t, prog, symbols.Place{Symbol: "pointers"})
	if got := strings.Join(names(entry), " "); got != "c text numbers raw fn" {
		t.Errorf("at the entry: %s", got)
	}
	_, err := entry.Variable("sum")
	if !errors.Is(err, fetch.ErrNoValue) || !strings.Contains(err.Error(), "available from pointers+0x") {
		t.Errorf("sum: %v", err)
	}
	if v, err := entry.Variable("*$arg1"); err != nil || v.Name != "*$arg1" {
		t.Errorf("*$arg1: %+v, %v", v, err)
	}
	site := entry.site
	lines, _, _, err := entry.space.Lines(site)
	if err != nil {
		t.Fatal(err)
	}
	later := scopeOf(t, prog, symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(lines[len(lines)-1].Addr)})
	if got := " " + strings.Join(names(later), " ") + " "; !strings.Contains(got, " sum ") {
		t.Errorf("at the last line:%s", got)
	}
}

// TestGoFunctionValue: a variable of a function type of Go is the address of a
// closure.
func TestGoFunctionValue(t *testing.T) {
	s := scopeOf(t, fixture.Build(t, "dwarf_vars.go"), symbols.Place{Symbol: "sync.(*Once).doSlow"})
	v, err := s.Variable("f")
	if err != nil || v.Type.String() != "x64" || v.Chain.Reg != fetch.BX {
		t.Errorf("f: %+v, %v", v, err)
	}
}

// TestParameterOfError: of a parameter that can't be had whole there is what can.
func TestParameterOfError(t *testing.T) {
	s := scopeOf(t, fixture.Build(t, "rust_values.rs", "-g", "-O"), symbols.Place{Symbol: "rust_values::take"})
	list, err := s.Parameters()
	if err != nil || !slices.ContainsFunc(list, func(v fetch.Variable) bool { return v.Name == "name.length" }) {
		t.Errorf("%+v, %v", list, err)
	}
}
