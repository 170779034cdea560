package probe

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestInterposed: an event without hits says whose function the program calls by
// its name, where that is another module's.
func TestInterposed(t *testing.T) {
	lib := fixture.Build(t, "interposed.c", "-shared", "-fPIC", "-DLIBRARY")
	for _, c := range []struct {
		prog, by string
		main     bool
	}{
		{fixture.Build(t, "interposed.c", "-Wl,--no-as-needed", lib), filepath.Base(lib), false},
		{fixture.Build(t, "interposed.c", "-DOWN"), "", true},
	} {
		s, err := Start(t.Context(), Command{Path: c.prog, Args: []string{c.prog}}, Options{CountOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		// getpid has hits, sleep none: both are libc's.
		if err := s.Arm(t.Context(), parseDefs(t, "p:named libc:getppid", "p:any getppid", "p:other libc:getpid", "p:none libc:sleep", "p:all libc:getpp*")); err != nil {
			t.Fatal(err)
		}
		sum, err := s.Run(t.Context(), nil)
		if err != nil || sum.Status.ExitStatus() != 42 {
			t.Fatalf("status %d, %v; want 42", sum.Status, err)
		}
		for _, st := range sum.Stats {
			if want := map[string]uint64{"any": 10, "other": 1}[st.Event.Name]; st.Hits != want {
				t.Errorf("%s: %d hits, want %d", st.Event.Name, st.Hits, want)
			}
		}
		if in := sum.Interposed; len(in) != 1 || in[0].Event.Name != "named" || in[0].Main != c.main || !c.main && in[0].By != c.by {
			t.Errorf("%+v, want named by %q", in, c.by)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestInterposedRedis: redis calls jemalloc's malloc, where it is linked with it.
func TestInterposedRedis(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(fixture.NeedTool(t, "redis-server"), "--port", "0", "--unixsocket", dir+"/sock", "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var conn net.Conn
	var err error
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if conn, err = net.Dial("unix", dir+"/sock"); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(maps), "libjemalloc.so") {
		fixture.Missing(t, "a redis-server that is linked with libjemalloc.so")
	}
	s, err := Attach(t.Context(), []int{cmd.Process.Pid}, Options{CountOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if err := s.Arm(t.Context(), parseDefs(t, "p:named libc:malloc", "p:any malloc")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	go func() {
		// A reply of many parts takes memory.
		for ctx.Err() == nil {
			if _, err := conn.Write([]byte("COMMAND\r\n")); err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<20))
			if st := s.Stats(); st[1].Hits > 0 {
				cancel()
			}
		}
	}()
	sum, err := s.Run(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Stats[1].Hits == 0 {
		t.Fatal("redis took no memory")
	}
	if sum.Stats[0].Hits > 0 {
		fixture.Missing(t, "a program in which nothing calls libc's malloc by itself: %+v", sum.Stats)
	}
	if in := sum.Interposed; len(in) != 1 || in[0].Event.Name != "named" || !strings.HasPrefix(in[0].By, "libjemalloc.so") {
		t.Errorf("%+v, want named by libjemalloc", in)
	}
}
