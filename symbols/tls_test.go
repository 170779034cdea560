package symbols

import (
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

// TestTLSWays: glibc's list and what the dynamic linker has written for a
// library's code say the same of where its thread-local variables are.
func TestTLSWays(t *testing.T) {
	src := filepath.Join("..", "testdata")
	cc := fixture.NeedTool(t, "cc")
	build := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, c := range []struct {
		flags  []string
		static bool
	}{
		{[]string{"-DMODEL=\"global-dynamic\""}, false},
		{[]string{"-DMODEL=\"local-dynamic\""}, false},
		{[]string{"-DMODEL=\"initial-exec\""}, true},
		{[]string{"-mtls-dialect=gnu2"}, true},
	} {
		dir := t.TempDir()
		lib, prog := filepath.Join(dir, "libtls.so"), filepath.Join(dir, "loop")
		build(append([]string{"-O1", "-fPIC", "-shared", "-o", lib, filepath.Join(src, "tls_part.c")}, c.flags...)...)
		build("-O1", "-o", prog, filepath.Join(src, "tls_loop.c"), "-ldl", "-lpthread")
		p := startLive(t, exec.Command(prog, lib, "1"))
		s, err := OpenProcess(p.pid, p.memory())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range s.Modules() {
			if m.Path != lib {
				continue
			}
			listed, ok, _ := s.glibcTLS(m)
			written, ok2 := s.relocatedTLS(m)
			if c.static { // code that takes the offset doesn't name the module
				written.Module = listed.Module
			}
			if !ok || !ok2 || listed.Static != written.Static || listed.Offset != written.Offset || listed.Module != written.Module ||
				listed.Static != c.static || listed.Module == 0 || !c.static && listed.Generation == 0 {
				t.Errorf("%v: the list has %+v, %v, the library's code %+v, %v", c.flags, listed, ok, written, ok2)
			}
		}
	}
}
