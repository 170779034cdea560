package output

import (
	"errors"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// memory is the memory that the hits of these tests look at.
type memory map[symbols.Addr]string

func (m memory) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	for start, text := range m {
		if at >= start && at < start+symbols.Addr(len(text)) {
			n := copy(b, text[at-start:])
			if n < len(b) {
				return n, errors.New("end of memory")
			}
			return n, nil
		}
	}
	return 0, errors.New("nothing there")
}

// noEnv answers nothing: the definitions here name no symbols.
type noEnv struct{}

func (noEnv) AtEntry() bool { return true }

func (noEnv) Data(string, string) (symbols.Addr, uint64, error) {
	return 0, 0, symbols.ErrNoSymbol
}

func (noEnv) FileOffset(symbols.Off) (symbols.Addr, error) { return 0, symbols.ErrNotMapped }

func (noEnv) Variable(string) (fetch.Variable, error) {
	return fetch.Variable{}, fetch.ErrNoDebugInfo
}

func (noEnv) Parameters() ([]fetch.Variable, error) { return nil, fetch.ErrNoDebugInfo }

// scene is a program in whose functions hits happen.
type scene struct {
	space  *symbols.Space
	work   symbols.Site
	caller symbols.Site
}

func newScene(t testing.TB) *scene {
	t.Helper()
	space, err := symbols.OpenFileSpace(fixture.Build(t, "output_work.c", "-O0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{space: space}
	for name, site := range map[string]*symbols.Site{"work": &s.work, "caller": &s.caller} {
		sites, err := space.Resolve(symbols.Place{Symbol: name})
		if err != nil || len(sites) != 1 {
			t.Fatalf("resolve %s: %d places, %v", name, len(sites), err)
		}
		*site = sites[0]
	}
	return s
}

// hit makes a hit of a definition over registers and memory.
func (s *scene) hit(t testing.TB, def string, regs fetch.Regs, mem memory) *results.Hit {
	t.Helper()
	d, err := fetch.Parse(def)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(noEnv{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := &fetch.Context{Regs: &regs, Mem: mem, PID: 41, TID: 43, CPU: 2, Comm: "redis", Time: 1_000_002_345}
	if d.Kind == fetch.Return {
		ctx.Entry = p.EvalEntry(ctx, nil)
	}
	data, pass := p.Eval(ctx, nil)
	if !pass {
		t.Fatalf("%s: its own filter refused the hit", def)
	}
	h := &results.Hit{
		Event:   &results.Event{Def: d, Group: d.Group, Name: d.Event, Return: d.Kind == fetch.Return},
		Program: p, Data: data, Space: s.space,
		Time: 1_000_002_345, PID: 41, TID: 43, CPU: 2, Comm: "redis",
		IP: s.work.Addr,
	}
	if h.Event.Return {
		h.Func, h.RetIP = "work", s.caller.Addr+5
	}
	return h
}
