package probe

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestLeftSecondKept has two commands leave probes, each with and without a file. The file of either, and a core dump, have
// that command's hits up to the last: while the process runs, after the first command's probes were removed, and after the
// process was killed. A core dump lacks what is in a file, and names the file.
func TestLeftSecondKept(t *testing.T) {
	gcore := fixture.NeedTool(t, "gcore")
	prog := fixture.Build(t, "trigger_calls.c", "-O1", "-pthread")
	for _, kept := range []string{"", "one", "two", "one two"} {
		t.Run("kept "+kept, func(t *testing.T) {
			sub := startSubject(t, prog, "2")
			files := map[string]string{}
			for _, name := range strings.Fields(kept) {
				files[name] = shmFile(t)
			}
			leaveIn(t, sub.pid(), Options{Detach: true, RingSize: MinRing, Keep: files["one"]}, "p:one hit n=$arg1")
			leaveIn(t, sub.pid(), Options{Detach: true, RingSize: MinRing, Keep: files["two"]}, "p:two up n=$arg1")
			want := map[string]int{}
			says := func(line string, adds map[string]int) {
				t.Helper()
				sub.says(line)
				for name, n := range adds {
					want[name] += n
				}
			}
			check := func(when, file string, has ...string) {
				t.Helper()
				r, _, err := OpenBlackBox(file)
				if len(has) == 0 {
					if err == nil || !slices.ContainsFunc([]string{files["one"], files["two"]}, func(f string) bool { return f != "" && strings.Contains(err.Error(), f) }) {
						t.Errorf("%s: without hits: %v", when, err)
					}
					return
				}
				if err != nil {
					t.Fatalf("%s: %v", when, err)
				}
				held, err := r.Held()
				if err != nil {
					t.Fatal(err)
				}
				if held.Dump != strings.Contains(file, "core") || held.Dump && len(held.Kept) != len(files) {
					t.Errorf("%s: a dump: %v, the kept files are %q", when, held.Dump, held.Kept)
				}
				for _, name := range held.Kept {
					if name != files["one"] && name != files["two"] {
						t.Errorf("%s: the kept files are %q", when, held.Kept)
					}
				}
				if held.Dump {
					// The last moment of a dump is its last hit's, though the process runs on.
					last := 0
					if err := r.Live(t.Context(), 1, sinkOf(func(*Hit) error { last++; return nil })); err != nil || last == 0 {
						t.Errorf("%s: %d hits of its last nanosecond, %v", when, last, err)
					}
				}
				_, live, _ := snapshotsBy(t, r)
				got := map[string]int{}
				for _, line := range live {
					name, _, _ := strings.Cut(line, " ")
					got[name]++
				}
				for name, n := range got {
					if !slices.Contains(has, name) || n != want[name] {
						t.Errorf("%s: %d hits of %s, want %d of %q", when, n, name, want[name], has)
					}
				}
				if len(got) != len(has) {
					t.Errorf("%s: hits of %v, want %q", when, got, has)
				}
			}
			dump := func(when string) {
				t.Helper()
				core := filepath.Join(t.TempDir(), "core")
				if out, err := exec.Command(gcore, "-o", core, fmt.Sprint(sub.pid())).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				var has []string
				for _, name := range []string{"one", "two"} {
					if files[name] == "" {
						has = append(has, name)
					}
				}
				check(when+", core", fmt.Sprint(core, ".", sub.pid()), has...)
			}
			all := func(when string) {
				t.Helper()
				for name, file := range files {
					check(when+", "+name, file, name)
				}
			}
			says("go 10", map[string]int{"one": 20})
			says("turn 7", map[string]int{"two": 14})
			dump("both")
			all("both")
			if err := openedLive(t, sub.pid()).Remove(t.Context(), []string{"kprobes/one"}); err != nil {
				t.Fatal(err)
			}
			says("go 10", nil)
			says("turn 3", map[string]int{"two": 6})
			dump("the second's")
			all("the second's")
			if err := sub.cmd.Process.Signal(os.Kill); err != nil {
				t.Fatal(err)
			}
			_ = sub.cmd.Wait()
			all("dead")
		})
	}
}
