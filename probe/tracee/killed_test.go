//go:build linux && amd64

package tracee

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// injectorMain is the tracer that TestKilledWhileInjecting kills.
func injectorMain() {
	pid, _ := strconv.Atoi(os.Getenv("TRACEE_TEST_INJECTOR"))
	tr, err := New()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	p, err := tr.Attach(ctx, pid)
	if err != nil {
		panic(err)
	}
	h := &recorder{}
	waiting := os.Getenv("TRACEE_TEST_SIGNALS") != ""
	go func() {
		var fn symbols.Addr
		if os.Getenv("TRACEE_TEST_SCRATCH") != "" {
			err := tr.Do(func() (err error) {
				fn, err = makeScratch(p)
				return err
			})
			if err != nil {
				panic(err)
			}
		}
		fmt.Println("ready")
		for {
			err := tr.Do(func() error {
				for _, th := range p.Threads() {
					if err := p.StopAll(ctx); err != nil {
						return err
					}
					if waiting && !th.waitsWithSignal() {
						if err := p.ResumeAll(); err != nil {
							return err
						}
						continue
					}
					if _, err := p.Syscall(ctx, th, unix.SYS_GETPPID); err != nil && !errors.Is(err, ErrNoRoom) && !errors.Is(err, ErrNoThread) && !th.gone {
						return err
					}
					if fn != 0 && !th.gone {
						if _, err := p.Call(ctx, th, fn, 40, 2); err != nil && !errors.Is(err, ErrNoThread) && !th.gone {
							return err
						}
					}
					if err := p.ResumeAll(); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				fmt.Fprintln(os.Stderr, "injector:", err)
				os.Exit(3)
			}
		}
	}()
	if err := tr.Run(ctx, h); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// The tracer is killed at random points of injections into all threads of a
// program that checks its registers and results; the program must not notice.
func TestKilledWhileInjecting(t *testing.T) {
	rounds := 12
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		rounds = 1000
	}
	busy := func(t *testing.T, flags ...string) []string {
		return []string{fixture.Build(t, "tracee_busy.c", append(flags, "-O1")...), "2"}
	}
	for _, c := range []struct {
		name    string
		argv    func(t *testing.T) []string
		scratch string
		answers bool
	}{
		{"found bytes", func(t *testing.T) []string { return busy(t) }, "", true},
		{"own area", func(t *testing.T) []string { return busy(t) }, "1", true},
		{"static", func(t *testing.T) []string { return busy(t, "-static") }, "", true},
		{"goroutines", func(t *testing.T) []string { return []string{fixture.Build(t, "tracee_go.go")} }, "", false},
		{"goroutines, own area", func(t *testing.T) []string { return []string{fixture.Build(t, "tracee_go.go")} }, "1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := c.argv(t)
			g := spawn(t, argv[0], argv[1:]...)
			for i := range rounds {
				if !c.answers && i%10 == 9 {
					// What a killed tracer leaves on the first stack takes
					// room there.
					if out, status := g.rest(); status != 0 {
						t.Fatalf("round %d: status %d, output %q", i, status, out)
					}
					g = spawn(t, argv[0], argv[1:]...)
				}
				killInjector(t, g, i, "TRACEE_TEST_SCRATCH="+c.scratch)
				if !c.answers {
					continue
				}
				if _, err := g.in.Write([]byte{'?'}); err != nil {
					out, status := g.rest()
					t.Fatalf("round %d: %v; status %d, %q", i, err, status, out)
				}
				g.line()
			}
			if out, status := g.rest(); status != 0 {
				t.Errorf("status %d, output %q", status, out)
			}
		})
	}
}

// The tracer is killed at random points of injections into threads that wait
// with a signal: each signal is handled once, with what was sent with it.
func TestKilledInCallAtSignal(t *testing.T) {
	rounds := 10
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		rounds = 300
	}
	for _, args := range [][]string{{"numbered"}, {"numbered", "waits"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			g := spawn(t, events(t), args...)
			for i := range rounds {
				killInjector(t, g, i, "TRACEE_TEST_SIGNALS=1")
			}
			out, status := g.rest()
			if status != 0 {
				t.Errorf("status %d (22: a signal was lost, 23: handled twice, or changed)", status)
			}
			t.Logf("%s signals", out)
		})
	}
}

// otherTracer starts this test's program as another tracer, which env tells what to
// do, and waits for its first word.
func otherTracer(t *testing.T, env ...string) (*exec.Cmd, error) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	_, err = out.Read(b[:])
	return cmd, err
}

// killInjector starts an injector into the target, and kills it.
func killInjector(t *testing.T, g *target, round int, env string) {
	t.Helper()
	cmd, err := otherTracer(t, env, "TRACEE_TEST_INJECTOR="+strconv.Itoa(g.pid))
	if err != nil {
		_ = cmd.Wait() // it has said why
		out, status := g.rest()
		t.Fatalf("round %d: the injector failed: %v; the target ended with status %d, %q", round, err, status, out)
	}
	time.Sleep(time.Duration(rand.IntN(20000)) * time.Microsecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("round %d: the injector ended before it was killed: %v", round, err)
	}
	if bytes.ContainsRune(threadStates(g.pid), 't') {
		t.Fatalf("round %d: a thread stayed stopped", round)
	}
}
