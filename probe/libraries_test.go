package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// loaderFixture builds the program that loads a library, and the library.
func loaderFixture(t *testing.T, cc string) (prog, lib string) {
	t.Helper()
	fixture.NeedCC(t)
	dir := t.TempDir()
	prog, lib = filepath.Join(dir, "loop"), filepath.Join(dir, "libpart.so")
	src := filepath.Join("..", "testdata")
	run(t, cc, "-O1", "-fPIC", "-shared", "-o", lib, filepath.Join(src, "library_part.c"))
	run(t, cc, "-O1", "-rdynamic", "-o", prog, filepath.Join(src, "library_loop.c"), "-ldl", "-lpthread")
	return prog, lib
}

func always(*fetch.Def) bool { return true }

// done takes what library_loop prints apart.
func doneLine(t *testing.T, line string) (calls, made uint64) {
	t.Helper()
	var wrong uint64
	if _, err := fmt.Sscanf(line, "done %d %d %d", &calls, &made, &wrong); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if wrong != 0 {
		t.Errorf("%d calls into the library went wrong", wrong)
	}
	return calls, made
}

// TestPending has definitions wait for a library that threads load and unload
// all the time: every call is counted, the constructors' too.
func TestPending(t *testing.T) {
	for _, cc := range []string{"cc", "musl-gcc"} {
		for _, o := range []Options{{}, {NoOptimize: true}} {
			for _, threads := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s-%v-%d", cc, o.NoOptimize, threads), func(t *testing.T) {
					if _, err := exec.LookPath(cc); err != nil {
						t.Fatal(err)
					}
					prog, lib := loaderFixture(t, cc)
					sub := startSubject(t, prog, lib, fmt.Sprint(threads), fmt.Sprint(full(40, 1000)))
					o.Pending = always
					l := attach(t, sub.pid(), o, "p:work "+lib+":part_work n=$arg1", "r:back libpart:part_work v=$retval", "p:made libpart.so:part_made")
					for _, st := range l.s.Stats() {
						if st.Places != 0 || st.Disabled {
							t.Errorf("before it is loaded %s has %d places, disabled %v", st.Event.Name, st.Places, st.Disabled)
						}
					}
					calls, made := doneLine(t, sub.work())
					for name, want := range map[string]uint64{"work": calls, "back": calls, "made": made} {
						if st := l.stat(name); st.Hits != want || st.Missed != 0 {
							t.Errorf("%s: %d hits and %d missed, want %d", name, st.Hits, st.Missed, want)
						}
					}
					if cc == "cc" { // musl keeps what it has loaded
						probes := openedLive(t, sub.pid()).Probes()
						for _, p := range probes {
							if !p.Gone || p.Optimized {
								t.Errorf("unloaded, %s is gone %v, optimized %v", p.Event, p.Gone, p.Optimized)
							}
						}
						if len(probes) != 3 {
							t.Errorf("%d places are listed", len(probes))
						}
					}
					t.Logf("%d calls, loaded %d times", calls, made)
					if err := l.s.Remove(context.Background(), l.s.Events()...); err != nil {
						t.Error(err)
					}
					_ = l.s.engine.Tracer.Do(func() error {
						for _, tg := range l.s.engine.Targets {
							if waitsForLoader(tg) {
								t.Errorf("nothing depends on the loader any more, and it is watched")
							}
						}
						return nil
					})
					l.finish(sub.pid())
					sub.end()
				})
			}
		}
	}
}

// TestPendingWhileItGoes attaches while threads load and unload the library: it is
// there when its places are found, and may be gone when they are written.
func TestPendingWhileItGoes(t *testing.T) {
	prog, lib := loaderFixture(t, "cc")
	sub := startSubject(t, prog, lib, "1", fmt.Sprint(full(4000, 40_000)))
	sub.line()
	for range full(12, 120) {
		l := attach(t, sub.pid(), Options{Pending: always}, "p:work libpart:part_work n=$arg1", "p:made libpart:part_made")
		l.stop()
		<-l.done
		if err := errors.Join(l.err, l.s.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}
	doneLine(t, sub.expect("done"))
	sub.end()
}

// TestPendingStart has definitions of a command wait beyond its first
// instruction.
func TestPendingStart(t *testing.T) {
	prog, lib := loaderFixture(t, "cc")
	in, err := os.CreateTemp(t.TempDir(), "in")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.WriteString("\n\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Command{Path: prog, Args: []string{prog, lib, "2", "10"}, Stdin: in}, Options{Log: testLog(t), Pending: always})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.Arm(t.Context(), parseDefs(t, "p:work libpart:part_work", "p:puts libc:puts")); err != nil {
		t.Fatal(err)
	}
	sink := &collector{}
	sum, err := s.Run(t.Context(), sink)
	if err != nil || !sum.Status.Exited() || sum.Status.ExitStatus() != 7 {
		t.Errorf("ended with %v, %v", sum.Status, err)
	}
	n := 0
	for _, line := range sink.all() {
		if line == "work" {
			n++
		}
	}
	if n != 2*10*20 {
		t.Errorf("%d calls were seen, want 400", n)
	}
}

// TestNotPending: what may not wait is an error, and nothing watches the loader
// for a probe of the program itself.
func TestNotPending(t *testing.T) {
	prog, lib := loaderFixture(t, "cc")
	sub := startSubject(t, prog, lib, "1", "3")
	l := attach(t, sub.pid(), Options{}, "p:run run")
	_, err := l.s.Add(t.Context(), parseDefs(t, "p:work libpart:part_work"))
	if !errors.Is(err, symbols.ErrNotMapped) {
		t.Errorf("not mapped: %v", err)
	}
	_ = l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			if tg.WatchesLoader() {
				t.Error("the loader is watched for nothing")
			}
		}
		return nil
	})
	sub.work()
	l.finish(sub.pid())
	sub.end()
}

// TestPendingWrong has a definition wait for a function that the library does
// not have: it is said once, and the rest is armed.
func TestPendingWrong(t *testing.T) {
	prog, lib := loaderFixture(t, "cc")
	sub := startSubject(t, prog, lib, "1", "5")
	var said []string
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Pending: always, Log: logTo(slog.LevelWarn, func(text string) { said = append(said, text) })})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	l := collecting(t, s)
	if err := s.Arm(t.Context(), parseDefs(t, "p:work libpart:part_work", "p:wrong libpart:part_wrong")); err != nil {
		t.Fatal(err)
	}
	l.run()
	calls, _ := doneLine(t, sub.work())
	l.finish(sub.pid())
	if st := l.stat("work"); st.Hits != calls {
		t.Errorf("%d hits of %d calls", st.Hits, calls)
	}
	if len(said) != 1 || !strings.Contains(said[0], "part_wrong") {
		t.Errorf("said %q", said)
	}
	sub.end()
}
