package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe/fetch"
)

// TestManyShells has 8 shells add and delete at once, a thousand times in all
// with KPROBE_TEST_FULL=1. Whoever reads the file at any moment sees a whole one;
// in the end nothing is lost and nothing is there twice.
func TestManyShells(t *testing.T) {
	const shells = 8
	rounds := 6
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		rounds = 42
	}
	real, events := program(t), filepath.Join(t.TempDir(), "events")
	env := append(os.Environ(), "KPROBE_EVENTS="+events)
	const script = `i=0
while [ $i -lt $2 ]; do
	"$0" add "p:many/e$1_$i libc:openat" "p:many/e$1_$i libc:open" &&
	"$0" add "p:gone/e$1_$i libc:openat fd=\$arg1:s32" && "$0" del "gone/e$1_$i" || exit
	i=$((i+1))
done`
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	looks := 0
	readers.Go(func() {
		for ; ; looks++ {
			if err := whole(events); err != nil {
				t.Errorf("at look %d: %v", looks, err)
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	start := time.Now()
	for w := range shells {
		writers.Go(func() {
			cmd := exec.Command("sh", "-c", script, real, fmt.Sprint(w), fmt.Sprint(rounds))
			cmd.Env = env
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("shell %d: %v: %s", w, err, out)
			}
		})
	}
	writers.Wait()
	n, took := 3*rounds*shells, time.Since(start)
	close(stop)
	readers.Wait()
	t.Logf("%d changes in %v, %v each; the file was looked at %d times", n, took.Round(time.Millisecond), (took / time.Duration(n)).Round(time.Microsecond), looks)

	var want []string
	for w := range shells {
		for i := range rounds {
			want = append(want, fmt.Sprintf("p:many/e%d_%d libc:open", w, i), fmt.Sprintf("p:many/e%d_%d libc:openat", w, i))
		}
	}
	cmd := exec.Command(real, "list")
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d definitions are kept, want %d:\n%s", len(got), len(want), out)
	}
	if left, err := filepath.Glob(events + ".new*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// whole reports what is wrong with the file at this moment: definitions of one
// addition come together, none is cut, none is there twice.
func whole(path string) error {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		return fmt.Errorf("the last line is cut: %q", b[max(0, len(b)-40):])
	}
	seen := map[string]bool{}
	places := map[string]int{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		d, err := fetch.Parse(line)
		if err != nil {
			return err
		}
		if seen[line] {
			return fmt.Errorf("%q is there twice", line)
		}
		seen[line] = true
		places[d.Group+"/"+d.Event]++
	}
	for name, n := range places {
		if strings.HasPrefix(name, "many/") != (n == 2) {
			return fmt.Errorf("%s has %d places", name, n)
		}
	}
	return nil
}
