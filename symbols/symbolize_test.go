package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"kprobe/internal/fixture"
)

func TestSymbolizeDoesNotAllocate(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC")
	for name, a := range map[string]Addr{"known": p.told["sym_work"] + 1, "library": p.told["malloc"] + 9, "nothing": 0x10} {
		s.Symbolize(a)
		if n := testing.AllocsPerRun(100, func() { s.Symbolize(a) }); n != 0 {
			t.Errorf("%s: %v allocations for an address asked before", name, n)
		}
	}
}

func TestSymbolizeWithoutAName(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC")
	if name, off, size, m, ok := s.Symbolize(0x10); ok || name != "" || off != 0 || size != 0 || m != nil {
		t.Errorf("nothing is %s+%d/%d of %v", name, off, size, m)
	}
	if name, _, _, m, ok := s.Symbolize(p.told["data:sym_counter"]); ok || m != s.Modules()[0] {
		t.Errorf("data is %s of %v, %v", name, m, ok)
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	s, p := liveSpace(t, "-O1", "-DDYNAMIC", "-DIFUNC")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				if i == 0 {
					if err := s.Refresh(); err != nil {
						t.Error(err)
					}
				}
				if name, _, _, _, _ := s.Symbolize(p.told["sym_work"] + Addr(i)); name == "" {
					t.Error("sym_work has no name")
				}
				if sites, err := s.Resolve(Place{Symbol: "strlen"}); err != nil || sites[0].Addr != p.told["strlen"] {
					t.Errorf("strlen: %v, %v", sites, err)
				}
				if _, err := s.Resolve(Place{Symbol: "sym_*"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCacheSharesFiles(t *testing.T) {
	var c Cache
	path := fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource())
	var spaces [2]*Space
	for i := range spaces {
		p := startLive(t, exec.Command(path))
		s, err := c.OpenProcess(p.pid, p.memory())
		if err != nil {
			t.Fatal(err)
		}
		spaces[i] = s
	}
	for i, m := range spaces[0].Modules() {
		o := spaces[1].Modules()[i]
		if o.Path != m.Path || o.File != m.File && m.Name != "[vdso]" {
			t.Errorf("%s was read twice", m.Name)
		}
	}
	copied := filepath.Join(t.TempDir(), "prog")
	copyFile(t, path, copied)
	first, err := c.OpenFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.OpenFile(copied); err != nil || again != first {
		t.Errorf("the same file is another: %v", err)
	}
	b, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, append(b, "changed"...), 0o755); err != nil {
		t.Fatal(err)
	}
	if again, err := c.OpenFile(copied); err != nil || again == first {
		t.Errorf("a changed file is the same: %v", err)
	}
}

func TestFileSpace(t *testing.T) {
	s, f := openFixture(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource())
	if s.PID() != 0 || s.Refresh() != nil || len(s.Modules()) != 1 {
		t.Errorf("pid %d, %d modules", s.PID(), len(s.Modules()))
	}
	sites, err := s.Resolve(Place{Symbol: "sym_work"})
	if err != nil || len(sites) != 1 || uint64(sites[0].Addr) != uint64(sites[0].Vaddr) || sites[0].Vaddr != f.Lookup("sym_work")[0].Vaddr {
		t.Errorf("sym_work: %+v, %v", sites, err)
	}
	if got := s.FindModule(f.Path); len(got) != 1 {
		t.Errorf("its own path finds %v", got)
	}
	if a, n, err := s.Data("", "sym_counter"); err != nil || a == 0 || n != 4 {
		t.Errorf("sym_counter: %v, %d, %v", a, n, err)
	}
}

func TestNearNames(t *testing.T) {
	s, _ := openFixture(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource())
	for name, want := range map[string]string{
		"sym_wrok": "sym_work", "sym_wor": "sym_work", "sym_workk": "sym_work", "Sym_work": "sym_work", "maim": "main", "symother": "sym_other",
	} {
		got := nearNames(name, s.Modules(), maxNear)
		if len(got) == 0 || got[0] != want {
			t.Errorf("near %s: %q, want %s first", name, got, want)
		}
	}
	for _, far := range []string{"", "qqqqqqqqqqqq", string(make([]byte, 5000))} {
		if got := nearNames(far, s.Modules(), maxNear); len(got) != 0 {
			t.Errorf("near %.20q: %q", far, got)
		}
	}
}

func TestDistance(t *testing.T) {
	var rows distanceRows
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"kitten", "sitting", 3}, {"open", "opne64", 3},
	} {
		if got, ok := rows.distance(tt.a, tt.b, 10); got != tt.want || !ok {
			t.Errorf("distance(%q, %q) = %d %v, want %d", tt.a, tt.b, got, ok, tt.want)
		}
		if _, ok := rows.distance(tt.a, tt.b, tt.want-1); ok && tt.want > 0 {
			t.Errorf("distance(%q, %q) is within %d", tt.a, tt.b, tt.want-1)
		}
	}
}

func TestShortName(t *testing.T) {
	for name, want := range map[string]string{
		"libc.so.6": "libc", "libc-2.36.so": "libc", "libc.musl-x86_64.so.1": "libc", "libstdc++.so.6.0.30": "libstdc++", "libpython3.11.so.1.0": "libpython3.11",
		"ld-linux-x86-64.so.2": "ld-linux-x86-64", "redis-server": "redis-server", "a.out": "a.out", "libfoo.sock": "libfoo.sock", ".so": ".so", "lib-9.so": "lib-9", "libLLVM-14.0.6.so": "libLLVM",
	} {
		if got := shortName(name); got != want {
			t.Errorf("%s is %s for short, want %s", name, got, want)
		}
	}
	for _, c := range []struct {
		short, file string
		want        bool
	}{
		{"libruby-3.1", "libruby-3.1.so.3.1.2", true}, {"libruby", "libruby-3.1.so.3.1.2", true}, {"libglib-2.0", "libglib-2.0.so.0", true}, {"libc-2.36", "libc-2.36.so", true},
		{"libruby-3", "libruby-3.1.so.3.1.2", false}, {"libruby-", "libruby-3.1.so.3.1.2", false}, {"lib", "libc.so.6", false}, {"a.out", "a.out", true}, {"a", "a.out", false},
	} {
		if got := isShort(c.short, c.file); got != c.want {
			t.Errorf("%s is said by %s: %v", c.file, c.short, got)
		}
	}
}

// BenchmarkSymbolize asks for addresses asked before, and for new ones.
func BenchmarkSymbolize(b *testing.B) {
	s, err := OpenFileSpace(fixture.NeedFile(b, "/usr/bin/node", "/usr/bin/python3", "/bin/bash"))
	if err != nil {
		b.Fatal(err)
	}
	fns := s.Modules()[0].File.Funcs()
	for name, step := range map[string]int{"repeated": 0, "new": 1} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i += step {
				s.Symbolize(Addr(fns[i*7919%len(fns)].Start) + Addr(i&3))
			}
		})
	}
}

// BenchmarkAttach opens a file, finds three names in it and names an address:
// what precedes the first probe.
func BenchmarkAttach(b *testing.B) {
	path := fixture.NeedFile(b, "/usr/bin/node", "/usr/bin/python3", "/bin/bash")
	b.ReportAllocs()
	for b.Loop() {
		s, err := OpenFileSpace(path)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"main", "_start", "v8::Isolate::New"} {
			if _, err := s.Resolve(Place{Symbol: name}); err != nil {
				b.Logf("%s: %v", name, err)
			}
		}
		s.Symbolize(Addr(s.Modules()[0].File.im.entry))
	}
}
