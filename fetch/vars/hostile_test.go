package vars

import (
	"debug/elf"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// askAll asks for every variable, and parts of them, at places of all
// functions.
func askAll(space *symbols.Space) (had, refused int) {
	count := func(err error) {
		if err == nil {
			had++
		} else {
			refused++
		}
	}
	for _, fn := range space.Modules()[0].File.Funcs() {
		for off := symbols.Vaddr(0); off < fn.End-fn.Start; off += 1 + (fn.End-fn.Start)/4 {
			sites, err := space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(fn.Start + off)})
			if err != nil {
				continue
			}
			s := At(space, sites[0])
			list, err := s.Describe()
			count(err)
			for _, d := range list {
				for _, text := range []string{d.Name, "*" + d.Name, d.Name + "[1]", d.Name + "->next->name", d.Name + ".x", "(conn*)" + d.Name} {
					_, err := s.Variable(text)
					count(err)
				}
			}
			_, err = s.Variables(fetch.WhichVars)
			count(err)
			_, err = s.Result()
			count(err)
			_, err = s.Argument(2)
			count(err)
		}
	}
	return had, refused
}

// TestHostileDebugInfo changes the debug information of a file at random:
// every question must end, in an answer or an error, and soon.
func TestHostileDebugInfo(t *testing.T) {
	for _, flags := range [][]string{{"-g", "-O2"}, {"-gdwarf-4", "-O0"}} {
		path := fixture.Build(t, "dwarf_vars.c", flags...)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		type part struct{ off, size int }
		var parts []part
		for _, s := range f.Sections {
			if strings.HasPrefix(s.Name, ".debug_") && s.Size > 0 || s.Name == ".eh_frame" {
				parts = append(parts, part{int(s.Offset), int(s.Size)})
			}
		}
		f.Close()
		rnd := rand.New(rand.NewSource(2))
		for round := range 24 {
			b := slices.Clone(whole)
			for n := 1 << (round % 8); n > 0 && round > 0; n-- {
				p := parts[rnd.Intn(len(parts))]
				b[p.off+rnd.Intn(p.size)] = byte(rnd.Int())
			}
			file, err := symbols.NewFile("/nowhere/prog", b)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			had, refused := askAll(symbols.NewFileSpace(file))
			if round == 0 && (had < 200 || refused < 50) {
				t.Errorf("%v: %d answers and %d refusals from the file as it is", flags, had, refused)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("%v: damaged debug information keeps it busy for %v", flags, took)
			}
		}
	}
}

// FuzzVariable parses arbitrary expressions.
func FuzzVariable(f *testing.F) {
	for _, s := range []string{"c->name", "*numbers", "(conn*)raw", "c->path[2].x", "counter", "a::b<int>.c", "$retval->x", "((((", "c[99999]", "$arg1.fd"} {
		f.Add(s)
	}
	space, err := symbols.OpenFileSpace(fixture.Build(f, "dwarf_vars.c", "-g", "-O2"))
	if err != nil {
		f.Fatal(err)
	}
	sites, err := space.Resolve(symbols.Place{Symbol: "pointers"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := At(space, sites[0]).Variable(text)
		if err == nil && v.Type.Size == 0 {
			t.Errorf("%q is answered without a type", text)
		}
	})
}
