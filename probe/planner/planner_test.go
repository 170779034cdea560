package planner

import (
	"errors"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/asm"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// noMemory is that of a file, which has none.
type noMemory struct{}

func (noMemory) ReadMemory([]byte, symbols.Addr) (int, error) { return 0, errors.New("no process") }

// fileGround is a file's code where nothing stands, as if it were mapped in a process.
func fileGround(space *symbols.Space) (*Ground, *assess.Assessor) {
	code := Functions{}
	rule := &assess.Assessor{Function: code.Of, Golang: new(assess.Programs)}
	maps := []symbols.Mapping{{Start: 1 << 16, End: 1 << 26}} // the file
	return &Ground{
		Stands: standing{},
		Code:   code, Around: new(survey.Around), Exits: exits.New(space, noMemory{}, rule, code.Leaving), Golang: rule.Golang,
		Params: &detour.Params{PerCPU: 1 << 30, AreaShift: 20, RingSize: 1 << 16, Rdpid: true, TID: detour.TID{Seg: asm.FS, Off: 0x2d0}},
		File:   1 << 27,
		Free: func() ([]symbols.Mapping, *plan.Space, error) {
			return slices.Clone(maps), plan.NewSpace(memory.FreeRanges(maps)), nil
		},
		Unwinder: func() string { return "" },
		Before:   func(*plan.Packed) ([]byte, error) { return nil, nil },
		Pause:    func(string, int, int) error { return nil },
	}, rule
}

// wants are requests for definitions in a file, as if its probes had numbers. Places that
// can't be probed are left out.
func wants(t *testing.T, space *symbols.Space, rule *assess.Assessor, f Facts, defs ...string) (out []Request) {
	t.Helper()
	for _, text := range defs {
		d, err := fetch.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		places, err := space.Resolve(d.Place)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range places {
			found, err := rule.Definition(d, w)
			if err != nil {
				continue
			}
			prog, err := d.Compile(&assess.Env{Space: space, Site: w})
			if err != nil {
				t.Fatal(err)
			}
			p := &Probe{Program: prog, Where: &found.Site, Id: uint32(len(out) + 1), Most: 32, Facts: f}
			kind := Entry
			if d.Kind == fetch.Return {
				kind = Return
			}
			out = append(out, Request{Place: &found, P: p, Kind: kind})
		}
	}
	return out
}

// standing is what stands in a test's text: breakpoints, by address.
type standing map[symbols.Addr]int

func (s standing) Breakpoint(a symbols.Addr) (int, bool) { n, ok := s[a]; return n, ok }

func (s standing) Taken(lo, hi symbols.Addr) (out []plan.Range) {
	for a, n := range s {
		if a >= lo && a < hi {
			out = append(out, plan.Range{Lo: uint64(a), Hi: uint64(a) + uint64(n)})
		}
	}
	return out
}

// TestPlanOfFile plans probes of all functions of a library that no process has mapped: the
// plan depends on the places and on what stands there, and on nothing else.
func TestPlanOfFile(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	counted := Facts{Silent: true, Counts: true, Anywhere: true}
	var first []string
	for _, cpus := range []int{1, 2, 7} {
		g, rule := fileGround(space)
		ws := wants(t, space, rule, counted, "p *", "r *")
		was := runtime.GOMAXPROCS(cpus)
		b, err := g.Plan(Wanted{Requests: ws})
		runtime.GOMAXPROCS(was)
		if err != nil {
			t.Fatal(err)
		}
		if len(ws) < 1000 || len(b.Traps) > len(ws)/100 {
			t.Errorf("%d of %d places are breakpoints, want one of a hundred at most", len(b.Traps), len(ws))
		}
		for _, w := range ws {
			if w.P.Course != (Course{}) || w.P.Facts != counted {
				t.Fatalf("the plan has changed the probe at %s", w.Site.Name())
			}
		}
		if got := b.Lines(); first == nil {
			first = got
		} else if !reflect.DeepEqual(got, first) {
			t.Errorf("with %d CPUs the plan is another", cpus)
		}
	}
}

// TestPlanHolds: what a plan maps apart from detours is held, at places that were free when it was asked for them.
func TestPlanHolds(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	g, rule := fileGround(space)
	refused, held := map[plan.Range]bool{}, map[plan.Range]bool{}
	g.Hold = func(r plan.Range) (bool, error) {
		if len(refused) <= len(held) { // one before each
			refused[r] = true
			return false, nil
		}
		held[r] = true
		return true, nil
	}
	ws := wants(t, space, rule, Facts{Silent: true, Counts: true, Anywhere: true}, "p str*", "r mem*")
	b, err := g.Plan(Wanted{Requests: ws})
	if err != nil || b.Pools == nil || b.Common == nil || b.Tally == nil || !b.Common.Fresh || !b.Tally.Fresh {
		t.Fatalf("%+v, %v", b, err)
	}
	for _, r := range []plan.Range{b.Common.Memory(), b.Tally.Memory(), {Lo: uint64(b.Pools.At), Hi: uint64(b.Pools.At) + b.Pools.Size}} {
		if !held[r] || refused[r] {
			t.Errorf("%#x to %#x is not held", r.Lo, r.Hi)
		}
	}
	full := errors.New("no memory")
	g.Hold = func(plan.Range) (bool, error) { return false, full }
	if _, err := g.Plan(Wanted{Requests: ws}); !errors.Is(err, full) {
		t.Errorf("memory can't be mapped: %v", err)
	}
}

// TestPlanGround: what stands in the text, what memory is free and what walks the stacks
// decide what a place gets.
func TestPlanGround(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.Build(t, "probe_calls.c", "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, def string
		change    func(g *Ground, w Request)
		trap      string // why it is a breakpoint; "": it is a jump
		check     func(c *Course) bool
	}{
		{name: "nothing stands there", def: "p work"},
		{name: "a breakpoint that stays", def: "p work", trap: WhyOther, change: func(g *Ground, w Request) {
			g.Stands = standing{w.Site.Addr: int(w.Inst().Len)}
		}},
		{name: "no memory in reach", def: "p work", trap: "no free address", change: func(g *Ground, _ Request) {
			maps, _, _ := g.Free()
			g.Free = func() ([]symbols.Mapping, *plan.Space, error) {
				return maps, plan.NewSpace([]plan.Range{{Lo: 1 << 40, Hi: 1<<40 + 1<<20}}), nil
			}
		}},
		{name: "other bytes", def: "p work", trap: "its jump would cover something else", change: func(g *Ground, _ Request) {
			g.Before = func(*plan.Packed) ([]byte, error) { return nil, errors.New("something else") }
		}},
		{name: "jumps are not wanted", def: "p work", trap: "none", change: func(g *Ground, _ Request) { g.Breakpoints = true }},
		{name: "a return", def: "r work", check: func(c *Course) bool { return c.Way() != nil }},
		{name: "a return under an unwinder", def: "r work", check: func(c *Course) bool { return c.ByExits != nil && c.ByTrampolines == nil },
			change: func(g *Ground, _ Request) { g.Unwinder = func() string { return "libgcc_s.so.1" } }},
		{name: "a return with a shadow stack", def: "r work", check: func(c *Course) bool { return c.ByExits != nil && c.ByTrampolines == nil },
			change: func(g *Ground, _ Request) { g.ShadowStack = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, rule := fileGround(space)
			ws := wants(t, space, rule, Facts{Silent: true, Counts: true}, tt.def)
			if len(ws) != 1 {
				t.Fatalf("%d places", len(ws))
			}
			if tt.change != nil {
				tt.change(g, ws[0])
			}
			b, err := g.Plan(Wanted{Requests: ws})
			if err != nil {
				t.Fatal(err)
			}
			why := "none"
			if c := b.Courses[ws[0].P]; c != nil {
				why = c.Why
			}
			switch {
			case tt.trap == "" && (len(b.Traps) > 0 || len(b.Patches) == 0):
				t.Errorf("it is a breakpoint: %s", why)
			case tt.trap != "" && (len(b.Traps) != 1 || len(b.Patches) > 0 || !strings.Contains(why, tt.trap)):
				t.Errorf("%d breakpoints, %d jumps: %q, want one breakpoint: %q", len(b.Traps), len(b.Patches), why, tt.trap)
			case tt.check != nil && !tt.check(b.Courses[ws[0].P]):
				t.Errorf("it goes another way: %+v", b.Courses[ws[0].P])
			}
		})
	}
}

// TestPlannerKnowsNoProcess: the planner imports nothing that traces processes, or knows what
// a session is.
func TestPlannerKnowsNoProcess(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			seen++
			switch path, _ := strconv.Unquote(imp.Path.Value); path {
			case "kprobe/probe", "kprobe/probe/engine", "kprobe/probe/feed", "kprobe/probe/area", "kprobe/probe/tracee", "golang.org/x/sys/unix", "os":
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d imports were found", seen)
	}
}
