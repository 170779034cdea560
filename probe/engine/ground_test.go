package engine

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
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
	"kprobe/probe/results"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// noMemory is that of a file, which has none.
type noMemory struct{}

func (noMemory) ReadMemory([]byte, symbols.Addr) (int, error) { return 0, errors.New("no process") }

// fileGround is a file's code where nothing stands, as if it were mapped in a process.
func fileGround(space *symbols.Space) (*ground, *assess.Assessor) {
	code := functions{}
	rule := &assess.Assessor{Function: code.of, Golang: new(assess.Programs)}
	maps := []symbols.Mapping{{Start: 1 << 16, End: 1 << 26}} // the file
	return &ground{
		stands: standing{sites: map[symbols.Addr]*Site{}, jumps: pageIndex{}, out: newOutgoing()},
		code:   code, around: new(survey.Around), exits: exits.New(space, noMemory{}, rule, code.leaving), golang: rule.Golang,
		params: &detour.Params{PerCPU: 1 << 30, AreaShift: 20, RingSize: 1 << 16, Rdpid: true, TID: detour.TID{Seg: asm.FS, Off: 0x2d0}},
		file:   1 << 27,
		free: func() ([]symbols.Mapping, *plan.Space, error) {
			return slices.Clone(maps), plan.NewSpace(memory.FreeRanges(maps)), nil
		},
		unwinder: func() string { return "" },
		before:   func(*Patch) error { return nil },
		pause:    func(string, int, int) error { return nil },
	}, rule
}

// wants are requests for definitions in a file, as if its probes had numbers. Places that
// can't be probed are left out.
func wants(t *testing.T, space *symbols.Space, rule *assess.Assessor, f facts, defs ...string) (out []PatchRequest) {
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
		ev := &Event{Event: results.Event{Def: d, Name: text, Return: d.Kind == fetch.Return}}
		for _, w := range places {
			found, err := rule.Definition(d, w)
			if err != nil {
				continue
			}
			prog, err := d.Compile(&assess.Env{Space: space, Site: w})
			if err != nil {
				t.Fatal(err)
			}
			p := &Placed{Ev: ev, Def: d, prog: prog, Where: &found.Site, Id: uint32(len(out) + 1), facts: f, pool: newPool(32)}
			kind := requestEntry
			if d.Kind == fetch.Return {
				kind = requestReturn
			}
			out = append(out, PatchRequest{Place: &found, P: p, Kind: kind})
		}
	}
	return out
}

// written is all that a plan says that would be written, in order.
func written(b *batch) (out []string) {
	for _, p := range b.patches {
		for q := p; q != nil; q = q.island {
			s := fmt.Sprintf("%#x %v: %x, %x", q.Plan.At, q.Plan.Tactic, q.Plan.Writes, q.Plan.Guards)
			for _, st := range q.Stages {
				s += fmt.Sprintf(" %#x %x", uint64(st.base), st.text)
			}
			out = append(out, s)
		}
	}
	for _, w := range b.traps {
		out = append(out, fmt.Sprintf("breakpoint %v %d %s", w.Site.Addr, w.P.Id, b.courses[w.P].Why))
	}
	return append(out, fmt.Sprint(b.memory))
}

// TestPlanOfFile plans probes of all functions of a library that no process has mapped: the
// plan depends on the places and on what stands there, and on nothing else.
func TestPlanOfFile(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	counted := facts{silent: true, counts: true, anywhere: true}
	var first []string
	for _, cpus := range []int{1, 2, 7} {
		g, rule := fileGround(space)
		ws := wants(t, space, rule, counted, "p *", "r *")
		was := runtime.GOMAXPROCS(cpus)
		b, err := planOn(g, &changeset{out: newOutgoing()}, ws)
		runtime.GOMAXPROCS(was)
		if err != nil {
			t.Fatal(err)
		}
		if len(ws) < 1000 || len(b.traps) > len(ws)/100 {
			t.Errorf("%d of %d places are breakpoints, want one of a hundred at most", len(b.traps), len(ws))
		}
		for _, w := range ws {
			if w.P.course != (course{}) || w.P.facts != counted {
				t.Fatalf("the plan has changed the probe at %s", w.Site.Name)
			}
		}
		if got := written(b); first == nil {
			first = got
		} else if !reflect.DeepEqual(got, first) {
			t.Errorf("with %d CPUs the plan is another", cpus)
		}
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
		change    func(g *ground, w PatchRequest)
		trap      string // why it is a breakpoint; "": it is a jump
		check     func(c *course) bool
	}{
		{name: "nothing stands there", def: "p work"},
		{name: "a breakpoint that stays", def: "p work", trap: whyOther, change: func(g *ground, w PatchRequest) {
			g.stands.sites[w.Site.Addr] = &Site{Addr: w.Site.Addr, Length: int(w.Inst.Len)}
		}},
		{name: "a breakpoint that makes way", def: "p work", change: func(g *ground, w PatchRequest) {
			st := &Site{Addr: w.Site.Addr, Length: int(w.Inst.Len)}
			g.stands.sites[w.Site.Addr] = st
			g.stands.out.addSite(st)
		}},
		{name: "no memory in reach", def: "p work", trap: "no free address", change: func(g *ground, _ PatchRequest) {
			maps, _, _ := g.free()
			g.free = func() ([]symbols.Mapping, *plan.Space, error) {
				return maps, plan.NewSpace([]plan.Range{{Lo: 1 << 40, Hi: 1<<40 + 1<<20}}), nil
			}
		}},
		{name: "other bytes", def: "p work", trap: "its jump would cover something else", change: func(g *ground, _ PatchRequest) {
			g.before = func(*Patch) error { return errors.New("something else") }
		}},
		{name: "jumps are not wanted", def: "p work", trap: "none", change: func(g *ground, _ PatchRequest) { g.breakpoints = true }},
		{name: "a return", def: "r work", check: func(c *course) bool { return c.way() != nil }},
		{name: "a return under an unwinder", def: "r work", check: func(c *course) bool { return c.ByExits != nil && c.byTrampolines == nil },
			change: func(g *ground, _ PatchRequest) { g.unwinder = func() string { return "libgcc_s.so.1" } }},
		{name: "a return with a shadow stack", def: "r work", check: func(c *course) bool { return c.ByExits != nil && c.byTrampolines == nil },
			change: func(g *ground, _ PatchRequest) { g.shadowStack = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, rule := fileGround(space)
			ws := wants(t, space, rule, facts{silent: true, counts: true}, tt.def)
			if len(ws) != 1 {
				t.Fatalf("%d places", len(ws))
			}
			if tt.change != nil {
				tt.change(g, ws[0])
			}
			b, err := planOn(g, &changeset{out: newOutgoing()}, ws)
			if err != nil {
				t.Fatal(err)
			}
			why := "none"
			if c := b.courses[ws[0].P]; c != nil {
				why = c.Why
			}
			switch {
			case tt.trap == "" && (len(b.traps) > 0 || len(b.patches) == 0):
				t.Errorf("it is a breakpoint: %s", why)
			case tt.trap != "" && (len(b.traps) != 1 || len(b.patches) > 0 || !strings.Contains(why, tt.trap)):
				t.Errorf("%d breakpoints, %d jumps: %q, want one breakpoint: %q", len(b.traps), len(b.patches), why, tt.trap)
			case tt.check != nil && !tt.check(b.courses[ws[0].P]):
				t.Errorf("it goes another way: %+v", b.courses[ws[0].P])
			}
		})
	}
}

// TestPlannerKnowsNoProcess: no method of the planner names a target, a feed or the engine.
func TestPlannerKnowsNoProcess(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	of := func(fn *ast.FuncDecl) string {
		if fn.Recv == nil {
			return ""
		}
		x := fn.Recv.List[0].Type
		if star, ok := x.(*ast.StarExpr); ok {
			x = star.X
		}
		id, _ := x.(*ast.Ident)
		return id.Name
	}
	methods := 0
	for _, name := range files {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || of(fn) != "planner" {
				continue
			}
			methods++
			ast.Inspect(fn, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && slices.Contains([]string{"Target", "target", "Feed", "feed", "Engine", "engine", "tg", "tracee"}, id.Name) {
					t.Errorf("%s: planner.%s names %s", fset.Position(id.Pos()), fn.Name.Name, id.Name)
				}
				return true
			})
		}
	}
	if methods < 30 {
		t.Errorf("%d methods of the planner were found", methods)
	}
}
