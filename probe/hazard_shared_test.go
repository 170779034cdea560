package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// TestHazardW13: text that is mapped shared is not probed, by name, by address, by a
// pattern, and where the library comes later; the file on disk stays what it is.
// Text of a memfd that is mapped private is probed, and the memfd stays what it is.
func TestHazardW13(t *testing.T) {
	prog := fixture.Build(t, "shared_text.c", "-O1")
	for _, how := range []string{"shared", "memfd", "memfd-shared"} {
		t.Run(how, func(t *testing.T) {
			lib := filepath.Join(t.TempDir(), "libpart.so")
			run(t, "cc", "-O1", "-fPIC", "-shared", "-Wl,-z,noseparate-code", "-o", lib, filepath.Join("..", "testdata", "library_part.c"))
			before, err := os.ReadFile(lib)
			if err != nil {
				t.Fatal(err)
			}
			off := inspectFile(t, lib, "part_work")[0].Lines[0].Addr
			sub := startSubject(t, prog, lib, fmt.Sprint(uint64(off)), how)
			step := func(want string) {
				t.Helper()
				if _, err := fmt.Fprintln(sub.in); err != nil {
					t.Fatal(err)
				}
				sub.expect(want)
			}
			var mu sync.Mutex
			var warned []string
			o := Options{Pending: always, Log: logTo(slog.LevelWarn, func(text string) {
				mu.Lock()
				defer mu.Unlock()
				warned = append(warned, text)
			})}
			s, err := Attach(context.Background(), []int{sub.pid()}, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close(context.Background()) })
			if how == "shared" {
				// It waits, and is refused when it comes.
				if err := s.Arm(context.Background(), parseDefs(t, "p:later "+lib+":part_made")); err != nil {
					t.Fatal(err)
				}
			}
			l := collecting(t, s)
			l.run()
			step("mapped")
			if how == "shared" && !waitUntil(func() bool {
				mu.Lock()
				defer mu.Unlock()
				return strings.Contains(strings.Join(warned, "\n"), survey.SharedRule)
			}) {
				t.Errorf("nobody said why it is not armed: %q", warned)
			}
			m := mappedText(t, sub.pid(), "part.so")
			at := m.Start + off - symbols.Addr(m.Off)
			err = s.Arm(context.Background(), parseDefs(t, fmt.Sprintf("p:work %#x", uint64(at))))
			var refused *RefusedError
			if how == "memfd" {
				if err != nil {
					t.Fatal(err)
				}
			} else if !errors.As(err, &refused) || refused.Rule != survey.SharedRule {
				t.Errorf("armed in shared memory: %v", err)
			}
			step("145")
			if how == "memfd" {
				if st := l.stat("work"); st.Hits != 10 {
					t.Errorf("%d hits, want 10", st.Hits)
				}
			} else {
				refusedEverywhere(t, sub.pid(), m, at)
			}
			want, have := twoTexts(t, sub.pid(), m)
			if !bytes.Equal(want, before[:len(want)]) {
				t.Error("the bytes of the file that is mapped have changed")
			}
			if changed := !bytes.Equal(have[:len(want)], want); changed != (how == "memfd") {
				t.Errorf("the memory differs from the file: %v", changed)
			}
			l.finish(sub.pid())
			if after, err := os.ReadFile(lib); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file on disk has changed: %v", err)
			}
			step("145")
			sub.in.Close()
		})
	}
}

// hugePages makes sure that the machine has that many huge pages to give.
func hugePages(t *testing.T, n int) {
	t.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	if freeHuge() >= n {
		return
	}
	was, err := os.ReadFile(file)
	if err == nil {
		_ = os.WriteFile(file, []byte(fmt.Sprint(n)), 0)
		t.Cleanup(func() { _ = os.WriteFile(file, was, 0) })
	}
	if freeHuge() < n {
		fixture.Missing(t, "huge pages (vm.nr_hugepages)")
	}
}

// freeHuge is the number of free huge pages.
func freeHuge() (n int) {
	b, _ := os.ReadFile("/proc/meminfo")
	_, rest, _ := strings.Cut(string(b), "HugePages_Free:")
	_, _ = fmt.Sscan(rest, &n)
	return n
}

// TestHazardW11: text in a huge page (hugetlbfs) is probed, or the error says that it
// can't be written; the program goes on in either case, and nothing is left.
func TestHazardW11(t *testing.T) {
	const pages = 4 // the file's, one that is set aside for a copy of it, and those of who ends
	hugePages(t, pages)
	prog := fixture.Build(t, "shared_text.c", "-O1")
	lib := filepath.Join(t.TempDir(), "libpart.so")
	run(t, "cc", "-O1", "-fPIC", "-shared", "-Wl,-z,noseparate-code", "-o", lib, filepath.Join("..", "testdata", "library_part.c"))
	off := inspectFile(t, lib, "part_work")[0].Lines[0].Addr
	for _, o := range []Options{{}, {NoOptimize: true}} {
		for _, kind := range []string{"p", "r"} {
			if !waitUntil(func() bool { return freeHuge() >= pages }) {
				t.Fatal("the huge pages of processes that have ended don't come back")
			}
			sub := startSubject(t, prog, lib, fmt.Sprint(uint64(off)), "memfd-huge")
			step := func(want string) {
				t.Helper()
				sub.line()
				sub.expect(want)
			}
			step("mapped")
			step("145")
			m := mappedText(t, sub.pid(), "part.so")
			_, before := twoTexts(t, sub.pid(), m)
			s, err := Attach(t.Context(), []int{sub.pid()}, o)
			if err != nil {
				t.Fatal(err)
			}
			l := collecting(t, s)
			l.run()
			err = s.Arm(t.Context(), parseDefs(t, fmt.Sprintf("%s:work %#x", kind, uint64(m.Start+off-symbols.Addr(m.Off)))))
			t.Logf("%s: %v", kind, err)
			step("145")
			if err == nil && l.stat("work").Hits != 10 {
				t.Errorf("%d hits, want 10", l.stat("work").Hits)
			}
			l.finish(sub.pid())
			if _, after := twoTexts(t, sub.pid(), m); !bytes.Equal(before, after) {
				t.Error("the text is not what it was")
			}
			step("145")
			sub.in.Close()
			if _ = sub.cmd.Wait(); sub.cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("the program ended with %v", sub.cmd.ProcessState)
			}
		}
	}
}

// mappedText finds the executable mapping of a file whose name ends so.
func mappedText(t *testing.T, pid int, suffix string) symbols.Mapping {
	t.Helper()
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Exec && strings.HasSuffix(m.Path, suffix) {
			return m
		}
	}
	t.Fatalf("%s is not mapped", suffix)
	return symbols.Mapping{}
}

// refusedEverywhere checks that a place in shared memory is refused by a pattern, by
// Check and by Inspect.
func refusedEverywhere(t *testing.T, pid int, m symbols.Mapping, at symbols.Addr) {
	t.Helper()
	space, err := symbols.OpenProcess(pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	place := fmt.Sprintf("%#x", uint64(at))
	d := parseDefs(t, "p:work "+place)[0]
	var refused *RefusedError
	if _, err := Check(space, d); !errors.As(err, &refused) || refused.Rule != survey.SharedRule {
		t.Errorf("Check: %v", err)
	}
	err = Inspect(space, d.Place, func(l *Listing) error {
		for _, line := range l.Lines {
			if line.Probe != KindRefused || line.Why != survey.SharedRule {
				t.Errorf("%v is listed as %v: %s", line.Addr, line.Probe, line.Why)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(m.Path, "/memfd") {
		d = parseDefs(t, "p:all "+m.Path+":part_*")[0]
		if _, err := Check(space, d); !errors.As(err, &refused) || refused.Rule != survey.SharedRule {
			t.Errorf("Check of a pattern: %v", err)
		}
	}
}
