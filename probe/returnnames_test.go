package probe

import (
	"slices"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// funcSink keeps the names of functions that returned.
type funcSink struct{ names []string }

func (s *funcSink) Hit(h *Hit) error {
	if !slices.Contains(s.names, h.Func) {
		s.names = append(s.names, h.Func)
	}
	return nil
}

// TestReturnNames: a return's function has a readable name, and that is one that
// a definition takes.
func TestReturnNames(t *testing.T) {
	prog := fixture.Build(t, "stack_calls.cc", "-O1", "-g")
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	def, names := "Visitor::visit", []string(nil)
	for range 2 {
		sites, err := space.Resolve(symbols.Place{Symbol: def})
		if err != nil {
			t.Fatal(err)
		}
		sink := &funcSink{}
		traceCommand(t, Options{}, sink, []string{prog, "1"}, `r:e/v "`+def+`"`)
		if want := sites[0].Func.Symbol.Demangled(); len(sink.names) != 1 || sink.names[0] != want || want == sites[0].Func.Symbol.Name {
			t.Fatalf("%s: %q returned, want %q", def, sink.names, want)
		}
		def, names = sink.names[0], append(names, sink.names[0])
	}
	if names[0] != names[1] {
		t.Errorf("%q", names)
	}
}
