package probe

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/asm"
)

// TestRenew starts programs whose threads' numbers aren't where detours could
// read them when their probes are armed. Once they are the jumps are built
// again, and no hit is lost, taken twice or given to another thread.
func TestRenew(t *testing.T) {
	for _, c := range []struct {
		name, file string
		flags      []string
		defs       []string
		ready      string
	}{
		{"static C", "probe_start.c", []string{"-O2", "-static", "-lpthread"}, []string{"p:in work tid=$arg2:s32", "r:out work v=$retval:s64"}, ""},
		{"Go", "hazard_nets.go", nil, []string{"p:in main.sum a=$arg1 if a==20", "p:never main.sum a=$arg1 if a==77"}, "ready"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, in, out := started(t, fixture.Build(t, c.file, c.flags...), c.defs...)
			wrong := &tidChecker{}
			l := &live{t: t, s: s, sink: &collector{also: wrong}, done: make(chan struct{})}
			l.run()
			if !waitUntil(func() (ok bool) { _ = s.engine.Tracer.Do(func() error { ok = s.renewed(); return nil }); return ok }) {
				t.Error("its detours still ask the kernel for the thread")
			}
			st := l.stat("in")
			if !waitUntil(func() bool { return l.stat("in").Hits > st.Hits+1000 }) {
				t.Errorf("no hits after: %+v", l.stat("in"))
			}
			_ = in.Close()
			<-l.done
			lines := bufio.NewScanner(out)
			for c.ready != "" && lines.Scan() && lines.Text()[:5] != c.ready {
			}
			lines.Scan()
			if c.ready != "" {
				if lines.Text() != "done 0" {
					t.Errorf("the program printed %q, want done 0", lines.Text())
				}
				return
			}
			var calls uint64
			if _, err := fmt.Sscanf(lines.Text(), "calls %d", &calls); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			for _, name := range []string{"in", "out"} {
				if st := l.stat(name); st.Hits+st.Missed != calls || st.Lost != 0 || st.Missed != 0 {
					t.Errorf("%d calls, %s: %+v", calls, name, st)
				}
			}
			if wrong.n > 0 {
				t.Errorf("%d hits are said to be another thread's", wrong.n)
			}
		})
	}
}

// started is a session on a program that it has started, armed and not running
// yet, with the program's standard input and output.
func started(t *testing.T, path string, defs ...string) (s *Session, in, out *os.File) {
	t.Helper()
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	s, err = Start(t.Context(), Command{Path: path, Args: []string{path}, Stdin: stdin, Stdout: stdout, Stderr: os.Stderr}, Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = stdin.Close(), stdout.Close()
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.Arm(t.Context(), parseDefs(t, defs...)); err != nil {
		t.Fatal(err)
	}
	return s, in, out
}

// tidChecker counts the hits whose value tid is not the thread's number. It is
// used under the collector's lock.
type tidChecker struct {
	n    int
	vals []fetch.Value
}

func (c *tidChecker) Hit(h *Hit) (err error) {
	c.vals, err = h.Program.Decode(h.Data, c.vals)
	if fs := h.Program.Fields(); err == nil && fs[0].Name == "tid" && int(int32(c.vals[0].Int)) != h.TID {
		c.n++
	}
	return err
}

// renewed reports whether the detours of the targets find their threads'
// numbers in the process.
func (s *Session) renewed() bool {
	for _, tg := range s.engine.Targets {
		if tg.Params != nil && tg.Params.TID.Seg != asm.DS {
			return true
		}
	}
	return false
}
