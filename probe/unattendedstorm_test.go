package probe

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestLetGoStorm has a tree of processes fork, execute programs, by threads too, and try to
// execute what isn't there, in all ways at once, while kprobe lets go of them and takes them
// again, in full form beside busy loops: the tree is as large as without kprobe, it ends, and nothing that
// it does is worth a warning.
func TestLetGoStorm(t *testing.T) {
	bin := buildKprobe(t)
	t.Setenv("KPROBE_EVENTS", filepath.Join(t.TempDir(), "events"))
	prog := fixture.Build(t, "let_go_storm.c", "-O1", "-pthread")
	sets := [][]string{{"p:w/work work"}, {"p:w/work work", "r:w/back work"}, {"p:w/read libc:read", "p:w/fork libc:fork"}}
	for range full(0, 2*runtime.NumCPU()) {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = busy.Process.Kill(); _ = busy.Wait() }()
	}
	for i := range full(3, 90) {
		seed, depth := fmt.Sprint(i+1), fmt.Sprint(full(3, 4))
		want, err := exec.Command(prog, depth, seed).Output()
		if want == nil || !strings.HasPrefix(string(want), "DONE ") {
			t.Fatalf("alone it printed %q: %v", want, err)
		}
		args := []string{"profile", "-v", "-f", "--let-go", "--pending", "-o", filepath.Join(t.TempDir(), "counts")}
		for _, d := range sets[i%len(sets)] {
			if strings.HasSuffix(d, " work") {
				d = strings.TrimSuffix(d, "work") + filepath.Base(prog) + ":work"
			}
			args = append(args, d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		cmd := exec.CommandContext(ctx, bin, append(args, "--", prog, depth, seed)...)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		cmd.Cancel = func() error {
			t.Errorf("round %d doesn't end: %s", i, treeStates(prog))
			return cmd.Process.Kill()
		}
		err = cmd.Run()
		cancel()
		if out.String() != string(want) || cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("round %d: it printed %q, want %q; %v", i, out.String(), want, err)
		}
		for line := range strings.Lines(said.String()) {
			if strings.Contains(line, "warning") {
				t.Errorf("round %d: %s", i, line)
			}
		}
		if t.Failed() {
			t.Fatal(said.String())
		}
	}
}

// treeStates tells what the threads of all processes that run a program do.
func treeStates(prog string) string {
	out, _ := exec.Command("pgrep", "-f", prog).Output() // none, where all have ended
	var b strings.Builder
	for pid := range strings.FieldsSeq(string(out)) {
		n := 0
		if _, err := fmt.Sscan(pid, &n); err == nil {
			fmt.Fprintf(&b, "%d:\n%s", n, threadStates(n))
		}
	}
	return b.String()
}
