package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// manyModules builds a program with libraries of many functions, each of which
// the program calls: rounds times a function's number, summed up.
func manyModules(t testing.TB, libraries, functions int) string {
	t.Helper()
	fixture.NeedCC(t)
	dir := t.TempDir()
	var calls bytes.Buffer
	args := []string{"-O1", "-o", dir + "/many", dir + "/main.c"}
	for l := range libraries {
		var src bytes.Buffer
		for f := range functions {
			// Some entries are long instructions, some are short ones.
			switch f % 3 {
			case 0:
				fmt.Fprintf(&src, "long many_%d_%d(long a) { return a + %d; }\n", l, f, 70000+f)
			case 1:
				fmt.Fprintf(&src, "long many_%d_%d(long a) { volatile long b = a * %d; return b; }\n", l, f, f+3)
			default:
				fmt.Fprintf(&src, "long many_%d_%d(long a) { return a ? a / (a + %d) : 7; }\n", l, f, f)
			}
		}
		fmt.Fprintf(&src, "long all_%d(long a) { long s = 0;\n", l)
		for f := range functions {
			fmt.Fprintf(&src, "s += many_%d_%d(a + s);\n", l, f)
		}
		src.WriteString("return s; }\n")
		c, so := fmt.Sprintf("%s/many%d.c", dir, l), fmt.Sprintf("%s/libmany%d.so", dir, l)
		if err := os.WriteFile(c, src.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, "cc", "-O1", "-fno-inline", "-fno-ipa-cp", "-fno-ipa-icf", "-fPIC", "-shared", "-o", so, c)
		fmt.Fprintf(&calls, "s += all_%d(s);\n", l)
		args = append(args, so)
	}
	var main bytes.Buffer
	main.WriteString("#include <stdio.h>\n")
	for l := range libraries {
		fmt.Fprintf(&main, "long all_%d(long);\n", l)
	}
	fmt.Fprintf(&main, "int main(void) { char line[64]; puts(\"ready\"); fflush(stdout);\n"+
		"while (fgets(line, sizeof line, stdin)) { long s = 1; if (line[0] == 'x') break; %s printf(\"done %%ld\\n\", s); fflush(stdout); }\nreturn 7; }\n", calls.String())
	if err := os.WriteFile(dir+"/main.c", main.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "cc", append(args, "-Wl,-rpath,"+dir)...)
	return dir + "/many"
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func globs(t testing.TB, libraries int) []*fetch.Def {
	t.Helper()
	var defs []*fetch.Def
	for l := range libraries {
		d, err := fetch.Parse(fmt.Sprintf("p:m%d libmany%d.so:many_*", l, l))
		if err != nil {
			t.Fatal(err)
		}
		defs = append(defs, d)
	}
	return defs
}

// TestBatch arms functions of several modules by globs, all at once: each is
// hit once for each time the program calls it, and then all are gone.
func TestBatch(t *testing.T) {
	const libraries, functions, rounds = 4, 600, 3
	path := manyModules(t, libraries, functions)
	sub := startSubject(t, path)
	want := sub.work()
	ctx := context.Background()
	s, err := Attach(ctx, []int{sub.pid()}, Options{CountOnly: true, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(ctx) })
	texts := textOf(t, sub.pid())
	if err := s.Arm(ctx, globs(t, libraries)); err != nil {
		t.Fatal(err)
	}
	runCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { _, err := s.Run(runCtx, nil); ended <- err }()
	for range rounds {
		if got := sub.work(); got != want {
			t.Errorf("the program printed %q, want %q", got, want)
		}
	}
	for _, st := range s.Stats() {
		if st.Places != functions || st.Hits != rounds*functions || st.Missed+st.Lost != 0 {
			t.Errorf("%s: %d places, %d hits, %d missed, %d lost; want %d and %d", st.Event.Name, st.Places, st.Hits, st.Missed, st.Lost, functions, rounds*functions)
		}
	}
	jumps := 0
	for _, tg := range s.engine.Targets {
		for _, p := range tg.Feed.Ids {
			if p.Optimized {
				jumps++
			}
		}
	}
	if jumps < libraries*functions*95/100 {
		t.Errorf("%d of %d probes are jumps", jumps, libraries*functions)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	for path, before := range texts {
		if after := textOf(t, sub.pid())[path]; !bytes.Equal(before, after) {
			t.Errorf("the text of %s is not what it was", path)
		}
	}
	if got := sub.work(); got != want {
		t.Errorf("afterwards the program printed %q, want %q", got, want)
	}
}

// textOf reads the executable mappings of a process that are files'.
func textOf(t *testing.T, pid int) map[string][]byte {
	t.Helper()
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Close() }()
	out := map[string][]byte{}
	for _, m := range maps {
		if !m.Exec || m.Inode == 0 {
			continue
		}
		b := make([]byte, m.End-m.Start)
		if _, err := mem.ReadAt(b, int64(m.Start)); err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprintf("%s at %v", m.Path, m.Start)] = b
	}
	return out
}

// armPatch puts one jump back that was taken out.
func armPatch(tg *engine.Target, p *engine.Patch, stopped []*tracee.Thread) error {
	if err := tg.Enter(p); err != nil {
		return err
	}
	return tg.ArmStopped([]*engine.Patch{p}, stopped)
}

// BenchmarkBatch arms and disarms 10,000 probes in four modules.
func BenchmarkBatch(b *testing.B) {
	const libraries, functions = 4, 2500
	path := manyModules(b, libraries, functions)
	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	time.Sleep(50 * time.Millisecond)
	ctx := context.Background()
	var attach, arm, disarm time.Duration
	for b.Loop() {
		t0 := time.Now()
		s, err := Attach(ctx, []int{cmd.Process.Pid}, Options{CountOnly: true})
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if err := s.Arm(ctx, globs(b, libraries)); err != nil {
			b.Fatal(err)
		}
		t2 := time.Now()
		if err := s.Close(ctx); err != nil {
			b.Fatal(err)
		}
		attach, arm, disarm = attach+t1.Sub(t0), arm+t2.Sub(t1), disarm+time.Since(t2)
	}
	n := float64(b.N) * 1e6
	b.ReportMetric(float64(attach)/n, "attach-ms")
	b.ReportMetric(float64(arm)/n, "arm-ms")
	b.ReportMetric(float64(disarm)/n, "disarm-ms")
}

// TestManyBreakpoints: thousands of breakpoints in one batch, taken out in one stop by
// a few requests, not each by its own.
func TestManyBreakpoints(t *testing.T) {
	const libraries, functions = 2, 1000
	prog := manyModules(t, libraries, functions)
	sub := startSubject(t, prog)
	s, err := Attach(context.Background(), []int{sub.pid()}, Options{NoOptimize: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	began := time.Now()
	if err := s.Arm(context.Background(), parseDefs(t, "p:all libmany0.so:many_*", "p:all libmany1.so:many_*")); err != nil {
		t.Fatal(err)
	}
	t.Logf("armed in %v", time.Since(began))
	if n := s.Stats()[0].Places; n != libraries*functions {
		t.Fatalf("%d places", n)
	}
	requests := 0
	err = s.engine.Tracer.Do(func() error {
		s.engine.Tracer.FailWith(func(tracee.Request) error { requests++; return nil })
		defer s.engine.Tracer.FailWith(nil)
		for _, tg := range s.engine.Targets {
			err := tg.Proc.WithStopped(context.Background(), func([]*tracee.Thread) error {
				sites := sitesIn(tg, 0, ^uint64(0))
				requests = 0
				err := tg.RestoreSites(sites)
				if requests == 0 || requests > len(sites)/20 {
					t.Errorf("%d breakpoints are taken out by %d requests", len(sites), requests)
				}
				return errors.Join(err, tg.WriteAll(sites))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkClean(t, sub.pid())
}
