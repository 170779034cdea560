package probe

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestWatchAgainstGDB: gdb's hardware watchpoint sees the same changes of a variable, in
// the same functions. It is silent where the value stays.
func TestWatchAgainstGDB(t *testing.T) {
	if unwatchable(t) {
		return
	}
	gdb := fixture.NeedTool(t, "gdb")
	prog := watchFixture(t)
	hits := watchIn(t, prog, "plain", "6", Options{}, "w:c w@counter old=$old new=$value")
	var want []string
	for i, line := range hits.all() {
		var was, is int
		if _, err := fmt.Sscanf(line, "c old=%d new=%d", &was, &is); err != nil {
			t.Fatal(err)
		}
		if fn, _, _ := strings.Cut(hits.at[i], "+"); was != is {
			want = append(want, fmt.Sprintf("%d %s", is, fn))
		}
	}
	script := filepath.Join(t.TempDir(), "script")
	text := "set pagination off\nset confirm off\nset can-use-hw-watchpoints 1\nwatch counter\ncommands\nsilent\nprintf \"HIT %ld \", counter\ninfo symbol $pc\ncontinue\nend\necho ARMED\\n\ncontinue\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sub := startSubject(t, prog, "plain", "6")
	cmd := exec.Command(gdb, "-nx", "-batch", "-p", fmt.Sprint(sub.pid()), "-x", script)
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hit := regexp.MustCompile(`^HIT (-?\d+) (\w+)`)
	var got []string
	for in := bufio.NewScanner(out); in.Scan(); {
		if in.Text() == "ARMED" {
			sub.line()
			sub.line() // and to its end
		}
		if m := hit.FindStringSubmatch(in.Text()); m != nil {
			got = append(got, m[1]+" "+m[2])
		}
	}
	_ = cmd.Wait() // its status is that of the script's last command
	if len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("gdb\n%s\nhere\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), errs.String())
	}
}
