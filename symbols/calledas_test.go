package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/internal/fixture"
)

// TestCalledAs finds the main program by the link that it was started through,
// as Debian's redis-server is one to redis-check-rdb.
func TestCalledAs(t *testing.T) {
	sleep := fixture.NeedTool(t, "sleep")
	real, err := filepath.EvalSymlinks(sleep)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "other-name")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	s, err := OpenProcess(cmd.Process.Pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other-name", link, filepath.Base(real)} {
		if ms := s.FindModule(name); len(ms) != 1 || !ms[0].Main {
			t.Errorf("%s means %d modules, want the main program", name, len(ms))
		}
	}
	if ms := s.FindModule("third-name"); len(ms) != 0 {
		t.Errorf("a name of nothing means %d modules", len(ms))
	}
}

// TestCalledByTitle finds a program that has given itself another name.
func TestCalledByTitle(t *testing.T) {
	cmd := exec.Command(fixture.NeedTool(t, "python3"), "-c", "open('/proc/self/comm','w').write('its-title'); print('ready', flush=True); input()")
	_, out := fixture.Start(t, cmd)
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	s, err := OpenProcess(cmd.Process.Pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ms := s.FindModule("its-title"); len(ms) != 1 || !ms[0].Main {
		t.Errorf("its-title means %d modules, want the main program", len(ms))
	}
	if ms := s.FindModule("its-titl"); len(ms) != 0 {
		t.Errorf("its-titl means %d modules", len(ms))
	}
}
