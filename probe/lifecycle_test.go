package probe

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/tracee"
)

func TestChildren(t *testing.T) {
	prog := callsFixture(t)
	for _, mode := range []string{"fork", "spawn", "churn"} {
		for _, follow := range []bool{false, true} {
			name := mode
			if follow {
				name += "-follow"
			}
			t.Run(name, func(t *testing.T) {
				const count = 25
				want := plain(t, prog, mode, "25")
				sub := startSubject(t, prog, mode, "25")
				l := attach(t, sub.pid(), Options{Follow: follow}, "p:in work a=$arg1 s=+0($arg2):string", "r:out work v=$retval")
				if got := sub.work(); got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				time.Sleep(50 * time.Millisecond)
				l.finish(sub.pid())
				sub.end()
				hits := uint64(count)
				if mode == "fork" && follow {
					hits += 20 * count
				}
				for _, ev := range []string{"in", "out"} {
					if st := l.stat(ev); st.Hits != hits || st.Missed != 0 {
						t.Errorf("%s: %d hits and %d missed, want %d and 0", ev, st.Hits, st.Missed, hits)
					}
				}
			})
		}
	}
}

// A child whose parent was gone before anybody knew of it gets clean text from
// the journal that it has a mapping of. Here the target itself is taken for one.
func TestOrphanIsCleaned(t *testing.T) {
	prog := callsFixture(t)
	want := plain(t, prog, "fork", "25")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		sub := startSubject(t, prog, "fork", "25")
		l := attach(t, sub.pid(), o, "p:in work a=$arg1 s=+0($arg2):string", "r:out work v=$retval")
		err := l.s.engine.Tracer.Do(func() error {
			p := l.s.engine.Targets[sub.pid()].Proc
			delete(l.s.engine.Targets, sub.pid()) // as at its end
			return p.WithStopped(context.Background(), func([]*tracee.Thread) error {
				l.s.handler().Orphan(p)
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		if err := l.s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		checkClean(t, sub.pid())
		if got := sub.work(); got != want {
			t.Errorf("the program printed %q, otherwise %q", got, want)
		}
		sub.end()
	}
}

func TestStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "some-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ls, err := exec.LookPath("ls")
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s, err := Start(context.Background(), Command{Path: ls, Args: []string{"ls", dir}, Stdout: out}, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	defs := parseDefs(t, "p:open libc:opendir path=+0($arg1):string", "r:len libc:strlen n=$retval:u64 s=+0($arg1):string", "r:main __libc_start_main")
	if err := s.Arm(context.Background(), defs); err != nil {
		t.Fatal(err)
	}
	sink := &collector{}
	sum, err := s.Run(context.Background(), sink)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Reason != EndTarget || !sum.HasStatus || !sum.Status.Exited() || sum.Status.ExitStatus() != 0 {
		t.Errorf("summary %+v", sum)
	}
	text, _ := os.ReadFile(out.Name())
	if strings.TrimSpace(string(text)) != "some-file" {
		t.Errorf("ls printed %q", text)
	}
	all := strings.Join(sink.all(), "\n")
	if !strings.Contains(all, `open path="`+dir+`"`) {
		t.Errorf("the folder's opening is missing in\n%s", all)
	}
	if !strings.Contains(all, `len n=9 s="some-file"`) {
		t.Errorf("the name's strlen is missing in\n%s", all)
	}
}

func TestStartUnknownPlace(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	touch, err := exec.LookPath("touch")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(context.Background(), Command{Path: touch, Args: []string{"touch", marker}}, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	err = s.Arm(context.Background(), parseDefs(t, "p:x libc:no_such_function_at_all"))
	if err == nil {
		_, err = s.Run(context.Background(), &collector{})
	}
	if err == nil || !strings.Contains(err.Error(), "no_such_function_at_all") {
		t.Errorf("error %v does not name the symbol", err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran although its probes could not be armed")
	}
}

func TestExec(t *testing.T) {
	prog := callsFixture(t)
	// A shell that becomes the fixture: the definitions follow the process.
	cmd := exec.Command("sh", "-c", `echo waits; read x; exec "$0" work 50`, prog)
	in, out := fixture.Start(t, cmd)
	if text, err := bufio.NewReader(out).ReadString('\n'); text != "waits\n" {
		t.Fatalf("the shell printed %q (%v)", text, err)
	}
	l := attach(t, cmd.Process.Pid, Options{}, "p:in libc:write fd=$arg1")
	if _, err := in.Write([]byte("x\n\n\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.done:
	case <-time.After(patient):
		t.Fatalf("the program does not end: %s", threadStates(cmd.Process.Pid))
	}
	if st := l.stat("in"); st.Hits == 0 {
		t.Errorf("no write after exec was seen")
	}
	if l.err != nil || l.sum.Reason != EndTarget {
		t.Errorf("the trace ended with %v %v", l.sum.Reason, l.err)
	}
}

// TestAttachDetach attaches to and leaves a program that calls all the time.
func TestAttachDetach(t *testing.T) {
	prog := callsFixture(t)
	want := plain(t, prog, "recurse", "3000000", "3")
	sub := startSubject(t, prog, "recurse", "3000000", "3")
	sub.line()
	for range 30 {
		l := attach(t, sub.pid(), Options{MaxActive: 100}, "p:in recurse n=$arg1", "r:out recurse n=$arg1 v=$retval", "p:mid libc:write")
		time.Sleep(5 * time.Millisecond)
		l.finish(sub.pid())
		if l.stat("in").Hits == 0 {
			t.Log("no hit in this round")
		}
	}
	if got := sub.expect("done"); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	sub.end()
}
