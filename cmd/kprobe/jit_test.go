package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// traced starts kprobe on a process and gives its output once the probes are in.
func traced(t *testing.T, pid int, args ...string) *bufio.Reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program(t), append([]string{"trace", "-p", strconv.Itoa(pid)}, args...)...)
	messages, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	if said := readLine(t, bufio.NewReader(messages)); !strings.Contains(said, "1 probe is in") {
		t.Fatal(said)
	}
	return bufio.NewReader(out)
}

// mapOf is the path of a process's map, which goes with the test.
func mapOf(t *testing.T, pid int) string {
	path := fmt.Sprintf("/tmp/perf-%d.map", pid)
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %q", err, line)
	}
	return strings.TrimSpace(line)
}

// TestStackWithoutFiles: code that a program has made itself is called as it says,
// also when it says otherwise later; a frame without a frame pointer is left as
// CPython's are.
func TestStackWithoutFiles(t *testing.T) {
	cmd := exec.Command(fixture.Build(t, "jit_map.c", "-O1", "-fomit-frame-pointer"))
	in, out := fixture.Start(t, cmd)
	pid := cmd.Process.Pid
	mapOf(t, pid)
	said := bufio.NewReader(out)
	readLine(t, said)
	hits := traced(t, pid, "--format", "json", "p leaf stack=8")
	readLine(t, hits) // the object of type "armed"
	call := func() (names string) {
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		readLine(t, said)
		var hit struct{ Stack []struct{ Sym string } }
		line := readLine(t, hits)
		if err := json.Unmarshal([]byte(line), &hit); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, f := range hit.Stack {
			names += f.Sym + ", "
		}
		return names
	}
	const before, after = "leaf, jit inner, jit outer, jit bare, main, ", "leaf, jit <both>, jit <both>, jit bare, main, "
	for range 2 {
		if got := call(); !strings.HasPrefix(got, before) {
			t.Errorf("%s, want %s", got, before)
		}
	}
	got := call()
	for end := time.Now().Add(20 * time.Second); !strings.HasPrefix(got, after) && time.Now().Before(end); got = call() {
		time.Sleep(10 * time.Millisecond) // what is known is asked for again now and then
	}
	if !strings.HasPrefix(got, after) {
		t.Errorf("%s, want %s", got, after)
	}
}

// TestStackOfNode: functions of JavaScript have their names in stacks, in histograms
// of stacks, and in recordings.
func TestStackOfNode(t *testing.T) {
	const script = `function innerWork() { process.umask() }
function outerWork() { for (let i = 0; i < 3; i++) innerWork() }
%NeverOptimizeFunction(innerWork); %NeverOptimizeFunction(outerWork) // else the one is inlined
console.log("ready"); setInterval(outerWork, 5)`
	node := exec.Command(fixture.NeedTool(t, "node"), "--perf-basic-prof", "--interpreted-frames-native-stack", "--allow-natives-syntax", "-e", script)
	node.Dir = t.TempDir() // V8 leaves a log where it runs
	_, out := fixture.Start(t, node)
	pid := node.Process.Pid
	mapOf(t, pid)
	readLine(t, bufio.NewReader(out))
	const def = "p libc:umask stack=32"
	recording := filepath.Join(t.TempDir(), "node.kprobe")
	number := strconv.Itoa(pid)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"trace", "-q", "-n", "6", "-p", number, def},
		{"trace", "-q", "-n", "6", "--hist", "common_stacktrace", "-p", number, def},
		{"record", "-q", "-n", "6", "-o", recording, "-p", number, def},
		{"report", "--by", "stack", recording},
	} {
		got, err := exec.CommandContext(ctx, program(t), args...).Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, got)
		}
		if args[0] == "record" {
			continue
		}
		// Reports have the outermost first.
		first, second := "innerWork", "outerWork"
		if args[0] == "report" {
			first, second = second, first
		}
		if _, rest, ok := strings.Cut(string(got), first); !ok || !strings.Contains(rest, second) {
			t.Errorf("%v: no %s before %s:\n%s", args, first, second, got)
		}
	}
}
