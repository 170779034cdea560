package symbols

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// liveSpace is the Space of a running sym_main.
func liveSpace(t *testing.T, flags ...string) (*Space, *liveProcess) {
	t.Helper()
	p := startLive(t, exec.Command(fixture.Build(t, "sym_main.c", append(flags, otherSource())...)))
	s, err := OpenProcess(p.pid, p.memory())
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func TestPlaces(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC", "-DIFUNC")
	work := p.told["sym_work"]
	main := s.Modules()[0]
	vaddr := main.Vaddr(work)
	off, ok := main.File.VaddrToOff(vaddr)
	if !ok {
		t.Fatal("sym_work is not in the file")
	}
	libc := s.FindModule("libc")[0]
	tests := []struct {
		name  string
		place Place
		want  Addr
		print string
	}{
		{"symbol", Place{Symbol: "sym_work"}, work, "sym_work"},
		{"an alias keeps its name", Place{Symbol: "__sym_alias"}, work, "__sym_alias"},
		{"offset", Place{Symbol: "sym_work", Offset: 2}, work + 2, "sym_work+0x2"},
		{"module", Place{Module: "sym_main", Symbol: "sym_work"}, work, "sym_work"},
		{"path", Place{Module: main.Path, Symbol: "sym_work", Offset: 1}, work + 1, "sym_work+0x1"},
		{"address", Place{Kind: PlaceAddr, Value: uint64(work)}, work, "sym_work"},
		{"address inside", Place{Kind: PlaceAddr, Value: uint64(work) + 1}, work + 1, "sym_work+0x1"},
		{"address in the file", Place{Kind: PlaceVaddr, Module: "sym_main", Value: uint64(vaddr)}, work, "sym_work"},
		{"offset in the file", Place{Kind: PlaceOffset, Module: main.Path, Value: uint64(off)}, work, "sym_work"},
		{"static of one file", Place{Symbol: "twin", File: "sym_main.c"}, p.told["twin@sym_main.c"], "twin"},
		{"static in one file only", Place{Symbol: "only_here"}, p.told["only_here"], "only_here"},
		{"IFUNC", Place{Symbol: "sym_chosen"}, p.told["sym_chosen"], "sym_chosen"},
		{"library", Place{Module: "libc", Symbol: "malloc"}, p.told["malloc"], "malloc"},
		{"pattern of one", Place{Symbol: "sym_wor?"}, work, ""},
		{"library's address in the file", Place{Kind: PlaceVaddr, Module: "libc.so.6", Value: uint64(libc.Vaddr(p.told["malloc"]))}, p.told["malloc"], "malloc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sites, err := s.Resolve(tt.place)
			if err != nil {
				t.Fatal(err)
			}
			if len(sites) != 1 || sites[0].Addr != tt.want {
				t.Fatalf("%+v, want %v", sites, tt.want)
			}
			site := sites[0]
			if tt.print != "" && site.Name() != tt.print && !strings.HasPrefix(tt.name, "address") && !strings.HasPrefix(tt.name, "offset in") {
				t.Errorf("prints as %s, want %s", site.Name(), tt.print)
			}
			if site.Addr != site.Module.Addr(site.Vaddr) || site.Vaddr-site.Func.Start != Vaddr(site.Offset) || site.Vaddr >= site.Func.End {
				t.Errorf("contradicts itself: %+v", site)
			}
		})
	}
}

func TestStub(t *testing.T) {
	s, _ := liveSpace(t, "-O1", "-DDYNAMIC")
	sites, err := s.Resolve(Place{Module: "sym_main", Symbol: "strlen@plt"})
	if err != nil || len(sites) != 1 || sites[0].Func.Symbol.Kind != KindPLT || sites[0].Name() != "strlen@plt" {
		t.Errorf("strlen@plt: %+v, %v", sites, err)
	}
	if sites, err := s.Resolve(Place{Module: "sym_main", Symbol: "strle*"}); !errors.Is(err, ErrNoSymbol) {
		t.Errorf("a pattern took the stub: %+v, %v", sites, err)
	}
}

func TestAmbiguous(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC")
	_, err := s.Resolve(Place{Symbol: "twin"})
	var e *AmbiguousError
	if !errors.As(err, &e) || !errors.Is(err, ErrAmbiguous) || len(e.Candidates) != 2 {
		t.Fatalf("twin: %v, want two candidates", err)
	}
	var at []Addr
	for _, c := range e.Candidates {
		sites, err := s.Resolve(placeOf(c.Text))
		if err != nil || len(sites) != 1 {
			t.Errorf("the candidate %s: %v, %v", c.Text, sites, err)
			continue
		}
		at = append(at, sites[0].Addr)
		if !strings.Contains(e.Error(), c.Text) {
			t.Errorf("%q is not in %q", c.Text, e)
		}
	}
	if len(at) != 2 || at[0] == at[1] || !slices.Contains(at, p.told["twin@sym_main.c"]) {
		t.Errorf("the candidates are at %v", at)
	}
	sites, err := s.Resolve(Place{Symbol: "twi*"})
	if err != nil || len(sites) != 2 {
		t.Errorf("twi*: %v, %v, want both", sites, err)
	}
	if sites, err := s.Resolve(Place{Symbol: "twi*", File: "sym_other.c"}); err != nil || len(sites) != 1 {
		t.Errorf("twi*@sym_other.c: %v, %v, want one", sites, err)
	}
}

func TestRefusedPlaces(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC")
	var heap, stack Addr
	for _, m := range s.Mappings() {
		switch m.Path {
		case "[heap]":
			heap = m.Start
		case "[stack]":
			stack = m.Start
		}
	}
	tests := []struct {
		name  string
		place Place
		want  error
		says  string
	}{
		{"no such name", Place{Symbol: "sym_wrok"}, ErrNoSymbol, "sym_work"},
		{"no name", Place{}, ErrNoSymbol, "process"},
		{"no match", Place{Symbol: "sym_xyz*"}, ErrNoSymbol, "sym_xyz*"},
		{"name of another module", Place{Module: "libc", Symbol: "sym_work"}, ErrNoSymbol, "sym_main:sym_work"},
		{"static of another file", Place{Symbol: "twin", File: "else.c"}, ErrNoSymbol, "twin@sym_other.c"},
		{"no such module", Place{Module: "libx.so", Symbol: "f"}, ErrNotMapped, "libc.so.6"},
		{"no such path", Place{Kind: PlaceOffset, Module: "/no/such", Value: 4096}, ErrNotMapped, "sym_main"},
		{"variable", Place{Symbol: "sym_counter"}, ErrNotExecutable, "data object sym_counter"},
		{"thread-local variable", Place{Symbol: "sym_thread"}, ErrNotExecutable, "thread-local"},
		{"address of a variable", Place{Kind: PlaceAddr, Value: uint64(p.told["data:sym_counter"])}, ErrNotExecutable, "data object sym_counter of sym_main"},
		{"heap", Place{Kind: PlaceAddr, Value: uint64(heap)}, ErrNotExecutable, "[heap]"},
		{"stack", Place{Kind: PlaceAddr, Value: uint64(stack)}, ErrNotExecutable, "[stack]"},
		{"nothing", Place{Kind: PlaceAddr, Value: 0x10}, ErrNotExecutable, "is not mapped"},
		{"far out", Place{Kind: PlaceAddr, Value: ^uint64(0)}, ErrNotExecutable, "is not mapped"},
		{"vsyscall", Place{Kind: PlaceAddr, Value: 0xffffffffff600000}, ErrNotExecutable, ""},
		{"file offset of nothing", Place{Kind: PlaceOffset, Module: s.Modules()[0].Path, Value: 1 << 40}, ErrNotExecutable, "no loaded part"},
		{"vaddr of nothing", Place{Kind: PlaceVaddr, Module: "sym_main", Value: 1 << 30}, ErrNotExecutable, ""},
		{"ELF header", Place{Kind: PlaceVaddr, Module: "sym_main", Value: 0}, ErrNotExecutable, ""},
		{"behind the end", Place{Symbol: "sym_work", Offset: 4096 * 64}, ErrOutside, "bytes long"},
		{"into the next function", Place{Symbol: "sym_work", Offset: 64}, ErrOutside, "sym_work"},
		{"before the start", Place{Symbol: "sym_work", Offset: -1}, ErrOutside, "sym_work-1"},
		{"source line", Place{Kind: PlaceLine, File: "sym_main.c", Line: 30}, ErrNoDebugInfo, "sym_main.c:30"},
		{"line of a function", Place{Kind: PlaceLine, Symbol: "main", Line: 3}, ErrNoDebugInfo, "main:3"},
		{"unknown kind", Place{Kind: 99}, nil, "unknown form"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sites, err := s.Resolve(tt.place)
			if err == nil {
				t.Fatalf("resolves to %+v", sites)
			}
			if tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("says %q, want %q in it", err, tt.says)
			}
			if strings.HasSuffix(err.Error(), ".") || strings.Contains(err.Error(), "\n") {
				t.Errorf("form of %q", err)
			}
		})
	}
}

func TestUnboundIFunc(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC", "-DIFUNC")
	_, err := s.Resolve(Place{Symbol: "sym_idle"})
	var e *UnboundIFuncError
	if !errors.As(err, &e) || !errors.Is(err, ErrUnboundIFunc) {
		t.Fatalf("sym_idle, which nothing calls: %v, want UnboundIFuncError", err)
	}
	if name, off, _, _, ok := s.Symbolize(e.Resolver); !ok || off != 0 || name != "sym_idle" && name != "resolve_idle" {
		t.Errorf("the resolver %v is %s+%d", e.Resolver, name, off)
	}
	site, err := s.IFuncSite(e, p.told["sym_chosen"])
	if err != nil || site.Name() != "sym_idle" || site.Addr != p.told["sym_chosen"] {
		t.Errorf("the site of what the resolver said: %+v, %v", site, err)
	}
	if _, err := s.IFuncSite(e, 0); !errors.Is(err, ErrNotExecutable) {
		t.Errorf("a resolver that returns 0: %v", err)
	}
	blind, err := OpenProcess(p.pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blind.Resolve(Place{Symbol: "sym_chosen"}); !errors.Is(err, ErrUnboundIFunc) {
		t.Errorf("without memory: %v, want ErrUnboundIFunc", err)
	}
	if sites, err := blind.Resolve(Place{Symbol: "sym_*"}); err != nil || len(sites) < 2 {
		t.Errorf("sym_* without memory: %v, %v", sites, err)
	}
}

func TestData(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC", "-no-pie")
	main := s.Modules()[0]
	for name, want := range map[string]Addr{"sym_counter": p.told["data:sym_counter"], "sym_hidden": p.told["data:sym_hidden"]} {
		if a, n, err := s.Data(main.Name, name); err != nil || a != want || n != 4 {
			t.Errorf("%s is %v, %d bytes, %v, want %v", name, a, n, err, want)
		}
	}
	// The program is not position-independent: it has a copy of libc's stdout.
	for _, mod := range []string{"", "libc", "sym_main"} {
		if a, n, err := s.Data(mod, "stdout"); err != nil || a != p.told["data:stdout"] || n != 8 {
			t.Errorf("stdout of %q is %v, %d bytes, %v, want %v", mod, a, n, err, p.told["data:stdout"])
		}
	}
	if a, _, err := s.Data("", "sym_work"); err != nil || a != p.told["sym_work"] {
		t.Errorf("the address of a function: %v, %v", a, err)
	}
	if _, _, err := s.Data("", "sym_thread"); !errors.Is(err, ErrNoSymbol) {
		t.Errorf("a thread-local variable: %v, want ErrNoSymbol", err)
	}
	if _, _, err := s.Data("libzzz", "stdout"); !errors.Is(err, ErrNotMapped) {
		t.Errorf("@libzzz:stdout: %v, want ErrNotMapped", err)
	}
	if _, _, err := s.Data("", "no_such_thing"); !errors.Is(err, ErrNoSymbol) {
		t.Errorf("@no_such_thing: %v, want ErrNoSymbol", err)
	}
}
