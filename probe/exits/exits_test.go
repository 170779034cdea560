package exits

import (
	"errors"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// TestPeculiar: what needs its own return address is known by its name, whatever a
// library puts before and behind it.
func TestPeculiar(t *testing.T) {
	for _, tt := range []struct {
		symbol, why string
		patchable   bool
	}{
		{"work", "", true},
		{"vfork", ReturnsTwice, false},
		{"__vfork", ReturnsTwice, false},
		{"clone3", ReturnsTwice, true},
		{"syscall", ReturnsTwice, true},
		{"__sigsetjmp", ReturnsTwice, true},
		{"_setjmp", ReturnsTwice, true},
		{"getcontext@@GLIBC_2.2.5", ReturnsTwice, true},
		{"dlsym@plt", AsksCaller, true},
		{"__libc_dlopen_mode", AsksCaller, true},
		{"_start", "it is entered without a return address", false},
		{"__fentry__", "it works on its caller's return address", false},
		{"__fentry", "it works on its caller's return address", false},
		{"__x86_return_thunk", "it works on its own return address", false},
		{"vforked", "", true},
	} {
		if got := Peculiar(tt.symbol); got != tt.why {
			t.Errorf("%s: %q, want %q", tt.symbol, got, tt.why)
		}
		if got := Patchable(tt.symbol); (got == "") != tt.patchable || got != "" && got != tt.why {
			t.Errorf("%s can't be probed at its exits as %q", tt.symbol, got)
		}
	}
}

// noMemory is that of a file, which has none.
type noMemory struct{}

func (noMemory) ReadMemory([]byte, symbols.Addr) (int, error) { return 0, errors.New("no process") }

// finder finds exits in a program of the fixtures that isn't run.
func finder(t *testing.T) (*Finder, func(name string) symbols.Site) {
	t.Helper()
	space, err := symbols.OpenFileSpace(fixture.Build(t, "probe_calls.c", "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	decode := func(w symbols.Site) (*assess.Function, error) {
		return assess.Decode(w.Module.File, w.Func, survey.Start(w))
	}
	f := New(space, noMemory{}, &assess.Assessor{Function: decode, Golang: new(assess.Programs)}, decode)
	return f, func(name string) symbols.Site {
		list, err := space.Resolve(symbols.Place{Symbol: name})
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v, %v", name, list, err)
		}
		return list[0]
	}
}

// TestExitsOfItsOwn: where a function returns by itself, its exits are its returns.
func TestExitsOfItsOwn(t *testing.T) {
	f, at := finder(t)
	w := at("work")
	fn, err := f.leaving(w)
	if err != nil {
		t.Fatal(err)
	}
	returns := map[symbols.Addr]bool{}
	for _, x := range fn.Leaving().Exits {
		if x.Kind == insn.ExitRet {
			returns[symbols.Addr(x.Addr)] = true
		}
	}
	own, err := f.Own(fn, w)
	if err != nil {
		t.Fatal(err)
	}
	outwards, err := f.Outwards(w, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string][]Exit{"own": own, "outwards": outwards} {
		found := map[symbols.Addr]bool{}
		for _, x := range list {
			if !x.Jumps {
				found[x.Site.Addr] = true
			}
		}
		if len(found) != len(returns) || len(returns) == 0 {
			t.Errorf("%s: returns at %v, want %v", name, found, returns)
		}
		for a := range returns {
			if !found[a] {
				t.Errorf("%s: no return at %v", name, a)
			}
		}
	}
	if _, err := f.Outwards(w, 8); err == nil {
		t.Error("returns that take nothing off the stack are taken for such that do")
	}
}

// TestExitsBehindJumps: a function that ends in a jump to another returns by that one's
// returns, and its calls are told from those of the other.
func TestExitsBehindJumps(t *testing.T) {
	f, at := finder(t)
	from := at("tail_a")
	fn, err := f.leaving(from)
	if err != nil {
		t.Fatal(err)
	}
	jumps := map[symbols.Addr]bool{}
	for _, x := range fn.Leaving().Exits {
		if x.Kind == insn.ExitTail || x.Kind == insn.ExitCondTail {
			jumps[symbols.Addr(x.Addr)] = true
		}
	}
	if len(jumps) == 0 {
		t.Fatal("it jumps to no other function: the fixture is wrong")
	}
	for range 2 { // what was found the first time is known the second
		l, err := f.Of(from, false)
		if err != nil {
			t.Fatal(err)
		}
		count := map[detour.Passing]int{}
		inside := func(x Exit) bool { return x.Site.Func.Start == from.Func.Start }
		for _, x := range l.List {
			count[x.Passing]++
			switch x.Passing {
			case detour.PassesOn:
				if inside(x) && !jumps[x.Site.Addr] {
					t.Errorf("a call passes on at %v, where no jump is", x.Site.Name())
				}
			case detour.Arrives:
				if inside(x) || x.Site.Vaddr != x.Site.Func.Start {
					t.Errorf("a call arrives at %v", x.Site.Name())
				}
			case detour.NotPassing:
				if x.Inst().Len == 0 || len(x.Code()) < int(x.Inst().Len) {
					t.Errorf("a return at %v is no instruction", x.Site.Name())
				}
			}
		}
		if count[detour.NotPassing] == 0 || count[detour.PassesOn] == 0 || count[detour.Arrives] == 0 {
			t.Errorf("returns, jumps and entries: %v", count)
		}
		if l.Open != "" {
			t.Errorf("%s, but every jump is direct", l.Open)
		}
	}
	out, err := f.Outwards(from, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range out {
		if x.Jumps != jumps[x.Site.Addr] {
			t.Errorf("%v leads to another function: %v, want %v", x.Site.Name(), x.Jumps, jumps[x.Site.Addr])
		}
	}
}
