package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// served is a stripped program and a server that has its debug file; asked
// counts the questions.
func served(t *testing.T) (prog string, env map[string]string, asked *atomic.Int32) {
	t.Helper()
	dir := t.TempDir()
	run := func(name string, args ...string) {
		c := exec.Command(fixture.NeedTool(t, name), args...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte("int only_here(int n) {\n  return n * 2;\n}\nint main(int c, char **v) { (void)v; return only_here(c); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(fixture.NeedCC(t), "-g", "-O0", "-Wl,--build-id", "-o", "prog", "a.c")
	prog = filepath.Join(dir, "prog")
	f, err := symbols.OpenFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "store", "buildid", f.BuildID)
	run("mkdir", "-p", home)
	run("objcopy", "--only-keep-debug", "prog", filepath.Join(home, "debuginfo"))
	run("strip", "prog")
	asked = new(atomic.Int32)
	files := http.FileServer(http.Dir(filepath.Join(dir, "store")))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return prog, map[string]string{"DEBUGINFOD_URLS": s.URL, "XDG_CACHE_HOME": filepath.Join(dir, "cache")}, asked
}

func TestDebugFilesOfServers(t *testing.T) {
	prog, env, asked := served(t)
	ask := func(args ...string) result { return inEnv(t, env, &fake{}, "", append(args, "-x", prog)...) }

	r := ask("show", "--lines", "--no-debuginfod", "only_here")
	if r.status == 0 || asked.Load() != 0 {
		t.Errorf("nobody was to be asked: %+v, asked %d times", r, asked.Load())
	}
	r = ask("functions", "only*")
	if asked.Load() != 0 {
		t.Errorf("a list of names asks servers: %+v", r)
	}
	for range 2 {
		r = ask("show", "--lines", "only_here")
		if r.status != 0 || !strings.Contains(r.out, "return n * 2;") || r.err != "" {
			t.Errorf("%+v", r)
		}
	}
	r = ask("show", "--vars", "only_here")
	if r.status != 0 || !strings.Contains(r.out, "int   n ") {
		t.Errorf("%+v", r)
	}
	r = ask("functions", "--files", "only*")
	if r.status != 0 || !strings.Contains(r.out, "a.c:1") {
		t.Errorf("%+v", r)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times, want once", n)
	}

	// A server that isn't there costs nothing but the answer, and what helps with a
	// program without names.
	env["DEBUGINFOD_URLS"] = "http://127.0.0.1:1"
	env["XDG_CACHE_HOME"] = t.TempDir()
	r = ask("show", "--lines", "main")
	if r.status == 0 || strings.Contains(r.err, "127.0.0.1") || strings.Count(r.err, "\n") != 2 || !strings.Contains(r.err, "\nkprobe: hint: prog is stripped: ") {
		t.Errorf("without a server: %+v", r)
	}
}
