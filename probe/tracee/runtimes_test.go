//go:build linux && amd64

package tracee

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// nodeLoad computes in turns until standard input closes.
const nodeLoad = `console.log(process.pid)
const sum = n => Array.from({length: 5000}, (_, i) => i * n).map(String).join('').length
const want = sum(3)
let stop = false
process.stdin.on('data', () => {}).on('end', () => { stop = true })
const turn = () => { if (sum(3) !== want) process.exit(1); if (!stop) setImmediate(turn) }
turn()`

// Calls can be injected into every thread of whatever runtime, with the bytes
// that are found and with an area of our own, and the program doesn't notice.
func TestInjectIntoRuntimes(t *testing.T) {
	src := func(name string) string { return filepath.Join(fixture.Root(), "testdata", name) }
	for _, c := range []struct {
		name string
		argv func(t *testing.T) []string
	}{
		{"static", func(t *testing.T) []string {
			return []string{fixture.Build(t, "tracee_busy.c", "-O1", "-static"), "2"}
		}},
		{"static PIE", func(t *testing.T) []string {
			return []string{fixture.Build(t, "tracee_busy.c", "-O1", "-static-pie"), "2"}
		}},
		{"musl", func(t *testing.T) []string { return []string{muslBuild(t, src("tracee_busy.c")), "2"} }},
		{"musl static", func(t *testing.T) []string { return []string{muslBuild(t, src("tracee_busy.c"), "-static"), "2"} }},
		{"Go", func(t *testing.T) []string { return []string{fixture.Build(t, "tracee_go.go")} }},
		{"Go PIE", func(t *testing.T) []string { return []string{fixture.Build(t, "tracee_go.go", "-buildmode=pie")} }},
		{"Java", func(t *testing.T) []string {
			return []string{fixture.NeedTool(t, "java"), "-Xmx64m", src("tracee_load.java")}
		}},
		{"node", func(t *testing.T) []string { return []string{fixture.NeedTool(t, "node"), "-e", nodeLoad} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := c.argv(t)
			g := spawn(t, argv[0], argv[1:]...)
			tr := newTracer(t)
			p := attach(t, tr, g.pid)
			stop := running(t, tr, &recorder{t: t})
			for range 10 {
				injectEverywhere(t, tr, p)
			}
			do(t, tr, func() error {
				fn := mapScratch(t, p)
				if n, err := p.Call(context.Background(), nil, fn, 40, 2); err != nil || n != 42 {
					return fmt.Errorf("call gave %d, %v", n, err)
				}
				return nil
			})
			for range 10 {
				injectEverywhere(t, tr, p)
			}
			do(t, tr, func() error { return p.Detach(context.Background(), nil) })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if out, status := g.rest(); status != 0 || out != "" {
				t.Errorf("status %d, %q", status, out)
			}
		})
	}
}

// injectEverywhere makes a call in each thread of a stopped process.
func injectEverywhere(t testing.TB, tr *Tracer, p *Process) {
	t.Helper()
	do(t, tr, func() error {
		return p.WithStopped(context.Background(), func(ts []*Thread) error {
			for _, th := range ts {
				n, err := p.Syscall(context.Background(), th, unix.SYS_GETTID)
				if errors.Is(err, ErrNoThread) {
					continue // about to create another, or to end
				}
				if err != nil || int(n) != th.TID() {
					return fmt.Errorf("gettid in %d gave %d, %w", th.TID(), n, err)
				}
			}
			return nil
		})
	})
}

func muslBuild(t testing.TB, src string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "musl")
	args := append([]string{"-O1", "-pthread", "-o", out, src}, flags...)
	if text, err := exec.Command(fixture.NeedTool(t, "musl-gcc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("musl-gcc: %v\n%s", err, text)
	}
	return out
}
