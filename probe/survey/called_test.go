package survey

import (
	"os/exec"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/insn"
	"kprobe/symbols"
)

// TestOnlyJumpedTo judges functions whose names are known as if they had none:
// every part of a function is found out, by call frame information or by what leads
// to it, and hardly a function is taken for one (assembly that is entered by
// conditional jumps alone). libc is one more program, and node where it is there;
// what names they have depends on their debug files.
func TestOnlyJumpedTo(t *testing.T) {
	fixture.NeedTool(t, "g++")
	paths := []string{
		fixture.Build(t, "cold_calls.cc", "-O2"),
		fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"),
	}
	if node, err := exec.LookPath("node"); err == nil && !testing.Short() {
		paths = append(paths, node)
	}
	for _, path := range paths {
		space, err := symbols.OpenFileSpace(path)
		if err != nil {
			t.Fatal(err)
		}
		m := space.Modules()[0]
		functions, pieces := 0, 0
		var taken, missed []string
		for f := range m.File.EachFunc() {
			if f.Symbol.Kind != symbols.KindFunc || !m.File.Certain(f.Start) {
				continue
			}
			w := symbols.Site{Addr: m.Addr(f.Start), Module: m, Vaddr: f.Start, Func: &f, Named: f.Symbol.Name}
			called := m.File.Called(f.Start) && !onlyJumpedTo(w, func() (*insn.Function, error) {
				_, sweep, err := Decode(m.File, &f, w.Addr)
				return sweep, err
			})
			switch _, piece := m.File.PieceOf(f.Start); {
			case piece:
				pieces++
				if called {
					missed = append(missed, w.Name())
				}
			case m.File.Called(f.Start):
				functions++
				if !called {
					taken = append(taken, w.Name())
				}
			}
		}
		t.Logf("%s: %d functions, %d parts", path, functions, pieces)
		if len(missed)*20 > pieces {
			t.Errorf("%s: %d of %d parts are taken for functions: %s", path, len(missed), pieces, strings.Join(missed, " "))
		}
		if len(taken)*200 > functions {
			t.Errorf("%s: %d of %d functions are taken for parts: %s", path, len(taken), functions, strings.Join(taken, " "))
		}
	}
}
