package symbols

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// checkTold compares what the process says of itself with what Resolve, Data
// and Symbolize say of it.
func checkTold(t *testing.T, s *Space, p *liveProcess) {
	t.Helper()
	for name, want := range p.told {
		if name == "extra" || strings.HasPrefix(name, "module:") || want == 0 {
			continue
		}
		if object, ok := strings.CutPrefix(name, "data:"); ok {
			got, size, err := s.Data("", object)
			if err != nil || got != want {
				t.Errorf("@%s is %v (%v), the process says %v", object, got, err, want)
			}
			if size == 0 {
				t.Errorf("@%s has no size", object)
			}
			continue
		}
		sites, err := s.Resolve(placeOf(name))
		var unbound *UnboundIFuncError
		if name == "gettimeofday" && errors.As(err, &unbound) {
			// Nothing in the process calls it: its resolver would have to be.
			site, err := s.IFuncSite(unbound, want)
			if err != nil || site.Addr != want || site.Name() != name || !unbound.Module.Contains(unbound.Resolver) {
				t.Errorf("%s as its resolver tells: %+v, %v", name, site, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(sites) != 1 || sites[0].Addr != want {
			t.Errorf("%s is %+v, the process says %v", name, sites, want)
			continue
		}
		site := sites[0]
		if site.Func.Start != site.Vaddr || site.Offset != 0 || site.Func.Size() == 0 {
			t.Errorf("%s: function %+v does not start at %v", name, site.Func, site.Vaddr)
		}
		text, err := site.Module.File.Text(site.Vaddr, 8)
		live := make([]byte, len(text))
		if _, rerr := p.memory().ReadMemory(live, site.Addr); err != nil || rerr != nil || string(text) != string(live) {
			t.Errorf("%s: the file has % x, the process % x (%v, %v)", name, text, live, err, rerr)
		}
		if _, off, size, m, ok := s.Symbolize(want + 1); !ok || off != 1 || size != site.Func.Size() || m != site.Module {
			t.Errorf("%s+1 symbolizes as +%d/%d in %v", name, off, size, m)
		}
	}
}

func TestResolveInProcess(t *testing.T) {
	tests := []struct {
		name     string
		cc       string
		flags    []string
		stripped bool
	}{
		{"PIE", "", []string{"-O1", "-DDYNAMIC", "-DIFUNC", "-pie"}, false},
		{"not PIE", "", []string{"-O1", "-DDYNAMIC", "-DIFUNC", "-no-pie"}, false},
		{"bound when it starts", "", []string{"-O1", "-DDYNAMIC", "-DIFUNC", "-Wl,-z,now"}, false},
		{"bound when it is called", "", []string{"-O1", "-DDYNAMIC", "-DIFUNC", "-Wl,-z,lazy"}, false},
		{"one segment for text and headers", "", []string{"-O1", "-DDYNAMIC", "-Wl,-z,noseparate-code"}, false},
		{"static", "", []string{"-O1", "-static", "-DIFUNC"}, false},
		{"static PIE", "", []string{"-O1", "-static-pie", "-DIFUNC"}, false},
		{"SysV hash, no GNU hash", "", []string{"-O1", "-DDYNAMIC", "-Wl,--hash-style=sysv"}, false},
		{"exports all, stripped", "", []string{"-O1", "-DDYNAMIC", "-rdynamic", "-s"}, true},
		{"musl", "musl-gcc", []string{"-O1", "-DDYNAMIC"}, false},
		{"musl, static", "musl-gcc", []string{"-O1", "-static"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.cc != "" {
				t.Setenv("CC", fixture.NeedTool(t, tt.cc))
			}
			path := fixture.Build(t, "sym_main.c", append(tt.flags, otherSource())...)
			p := startLive(t, exec.Command(path))
			if tt.stripped {
				for name := range p.told {
					if strings.HasPrefix(name, "only_here") || strings.HasPrefix(name, "twin") || name == "data:sym_hidden" {
						delete(p.told, name)
					}
				}
			}
			s, err := OpenProcess(p.pid, p.memory())
			if err != nil {
				t.Fatal(err)
			}
			checkTold(t, s, p)
			if m := s.Modules()[0]; !m.Main || m.Path != path {
				t.Errorf("the first module is %s, want the program", m.Path)
			}
		})
	}
}

func TestModulesInLinkOrder(t *testing.T) {
	path := fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", "-Wl,--no-as-needed", "-lm", "-lresolv", "-lstdc++", otherSource())
	p := startLive(t, exec.Command(path))
	s, err := OpenProcess(p.pid, p.memory())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, m := range s.Modules() {
		name := m.Name
		if m.Main {
			name = ""
		}
		if name == "[vdso]" {
			name = "linux-vdso.so.1"
		}
		bias, ok := p.told["module:"+name]
		if !ok {
			bias, ok = p.told["module:"+m.File.Soname]
		}
		if !ok || uint64(bias) != m.Bias {
			t.Errorf("%s has bias %#x, dl_iterate_phdr says %v (%v)", m.Name, m.Bias, bias, ok)
		}
		seen++
	}
	if seen < 6 || seen != countPrefix(p.told, "module:") {
		t.Errorf("%d modules, the process has %d", seen, countPrefix(p.told, "module:"))
	}
	// -lm comes before -lresolv on the command line, libc after both.
	var order []string
	for _, m := range s.Modules() {
		order = append(order, shortName(m.Name))
	}
	if got := strings.Join(order, " "); !strings.HasPrefix(got, "sym_main libm libresolv libstdc++ libc ") {
		t.Errorf("order %s", got)
	}
}

func countPrefix(m map[string]Addr, prefix string) int {
	n := 0
	for k := range m {
		if strings.HasPrefix(k, prefix) {
			n++
		}
	}
	return n
}

func TestUnreachableFiles(t *testing.T) {
	path := fixture.Build(t, "sym_main.c", "-O1", "-static", "-DIFUNC", otherSource())
	tests := []struct {
		name  string
		start func(t *testing.T, dir string) *exec.Cmd
		after func(t *testing.T, dir string)
	}{
		{"deleted", func(t *testing.T, dir string) *exec.Cmd {
			return exec.Command(dir + "/prog")
		}, func(t *testing.T, dir string) {
			if err := os.Remove(dir + "/prog"); err != nil {
				t.Fatal(err)
			}
		}},
		{"replaced by another", func(t *testing.T, dir string) *exec.Cmd {
			return exec.Command(dir + "/prog")
		}, func(t *testing.T, dir string) {
			copyFile(t, fixture.Build(t, "sym_main.c", "-O0", "-static", otherSource()), dir+"/new")
			if err := os.Rename(dir+"/new", dir+"/prog"); err != nil {
				t.Fatal(err)
			}
		}},
		{"through a link", func(t *testing.T, dir string) *exec.Cmd {
			if err := os.Symlink("prog", dir+"/link"); err != nil {
				t.Fatal(err)
			}
			return exec.Command(dir + "/link")
		}, nil},
		{"odd name", func(t *testing.T, dir string) *exec.Cmd {
			odd := dir + "/a  b (deleted)\nc"
			copyFile(t, dir+"/prog", odd)
			return exec.Command(odd)
		}, nil},
		{"another root", func(t *testing.T, dir string) *exec.Cmd {
			if os.Getuid() != 0 {
				fixture.Missing(t, "root, to chroot")
			}
			copyFile(t, dir+"/prog", dir+"/root/bin/prog")
			return exec.Command(fixture.NeedTool(t, "chroot"), dir+"/root", "/bin/prog")
		}, nil},
		{"another mount namespace", func(t *testing.T, dir string) *exec.Cmd {
			if os.Getuid() != 0 {
				fixture.Missing(t, "root, to mount")
			}
			script := "mount -t tmpfs none " + dir + "/m && cp " + dir + "/prog " + dir + "/m/hidden && exec " + dir + "/m/hidden"
			if err := os.Mkdir(dir+"/m", 0o755); err != nil {
				t.Fatal(err)
			}
			return exec.Command(fixture.NeedTool(t, "unshare"), "-m", "sh", "-c", script)
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			copyFile(t, path, dir+"/prog")
			p := startLive(t, tt.start(t, dir))
			if tt.after != nil {
				tt.after(t, dir)
			}
			s, err := OpenProcess(p.pid, p.memory())
			if err != nil {
				t.Fatal(err)
			}
			checkTold(t, s, p)
		})
	}
}

func TestFindModule(t *testing.T) {
	path := fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource())
	p := startLive(t, exec.Command(path))
	s, err := OpenProcess(p.pid, p.memory())
	if err != nil {
		t.Fatal(err)
	}
	var libc *Module
	for _, m := range s.Modules() {
		if m.File.Soname == "libc.so.6" {
			libc = m
		}
	}
	link := filepath.Join(t.TempDir(), "link.so")
	if err := os.Symlink(libc.Path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libc", "libc.so.6", libc.Path, link, "/lib/x86_64-linux-gnu/libc.so.6"} {
		if _, err := os.Stat(name); strings.HasPrefix(name, "/") && err != nil {
			continue
		}
		if got := s.FindModule(name); len(got) != 1 || got[0] != libc {
			t.Errorf("%s is %v", name, got)
		}
	}
	for _, name := range []string{"sym_main", path, "./sym_main"} {
		if got := s.FindModule(name); len(got) != 1 || !got[0].Main {
			t.Errorf("%s is %v, want the program", name, got)
		}
	}
	for _, name := range []string{"vdso", "[vdso]", "linux-vdso.so.1"} {
		if got := s.FindModule(name); len(got) != 1 || got[0].Name != "[vdso]" {
			t.Errorf("%s is %v, want the vdso", name, got)
		}
	}
	_, err = s.Resolve(Place{Module: "libcc", Symbol: "open"})
	var missing *NotMappedError
	if !errors.As(err, &missing) || len(missing.Candidates) == 0 || missing.Candidates[0] != "libc.so.6" {
		t.Errorf("libcc:open: %v, want a NotMappedError that offers libc.so.6 first", err)
	}
	if got := s.FindModule("/usr/bin/env"); got != nil {
		t.Errorf("/usr/bin/env is mapped: %v", got)
	}
}

func TestRefresh(t *testing.T) {
	path := fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", otherSource())
	cmd := exec.Command(path)
	p := startLive(t, cmd)
	s, err := OpenProcess(p.pid, p.memory())
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]*Module{}
	for _, m := range s.Modules() {
		before[m.Path] = m
	}
	if _, err := s.Resolve(Place{Module: "libm", Symbol: "cbrt"}); !errors.Is(err, ErrNotMapped) {
		t.Fatalf("libm:cbrt before dlopen: %v, want ErrNotMapped", err)
	}
	if _, err := p.in.Write([]byte("l")); err != nil {
		t.Fatal(err)
	}
	p.listen(t)
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	sites, err := s.Resolve(Place{Module: "libm", Symbol: "cbrt"})
	if err != nil || len(sites) != 1 || sites[0].Addr != p.told["cos"] {
		t.Errorf("libm:cbrt is %v (%v), the process says %v", sites, err, p.told["cos"])
	}
	for _, m := range s.Modules() {
		if old := before[m.Path]; old != nil && old.File != m.File {
			t.Errorf("%s was opened again", m.Name)
		}
	}
	p.in.Close()
	cmd.Wait()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := s.Refresh()
		if errors.Is(err, ErrGone) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("refresh of an ended process: %v, want ErrGone", err)
		}
	}
	if len(s.Modules()) == 0 {
		t.Error("a failed refresh dropped the modules")
	}
}
