package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// TestMemory: tracing a large program takes kprobe, its supervisor or its tracer,
// at most 60 MB at its peak, also where hits come faster than they are written.
// node's file has 90 MB, 185,000 symbols.
func TestMemory(t *testing.T) {
	const most = 60 << 10 // KB, as getrusage(2) counts
	kprobe, program := program(t), fixture.NeedTool(t, "node")
	start := func(t *testing.T, script string) *exec.Cmd {
		node := exec.Command(program, "-e", script+`; console.log("ready")`)
		_, out := fixture.Start(t, node)
		if _, err := out.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		return node
	}
	const idle = `setInterval(() => {}, 2)`
	// The time is asked of libuv: a million hits a second.
	const busy = `function f() { for (const end = performance.now() + 20; performance.now() < end;); setImmediate(f) } setImmediate(f)`
	for _, c := range []struct{ name, script, def, hits string }{
		{"a probe", idle, "p node:uv__io_poll n=%di", "500"},
		{"a return probe", idle, "r node:uv__io_poll", "500"},
		{"many", idle, "p node:uv_*", "500"},
		{"a flood", busy, "p node:uv_*", "1000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := start(t, c.script)
			// When memory is collected is chance: the least of three counts.
			peak := int64(1 << 40)
			for i := 0; i < 3 && peak > most; i++ {
				peak = min(peak, peakOf(t, kprobe, "trace", "-q", "-o", "/dev/null", "-n", c.hits, "-p", strconv.Itoa(node.Process.Pid), c.def))
				t.Logf("%d KB", peak)
			}
			if peak > most {
				t.Errorf("kprobe took %d KB, want at most %d", peak, most)
			}
		})
	}
}

// peakOf runs a command and gives the most memory, in KB, that it or a child that it waited
// for had. The peak that the kernel tells of a process begins with that of the process which
// started it (exec_mmap, fs/exec.c); so a small one, this program anew, starts the command.
func peakOf(t *testing.T, args ...string) int64 {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(self, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), startsFor+"=1"), &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	kb, err := strconv.ParseInt(string(out), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb
}

// startsFor is set where the test program is to start its arguments and print their peak.
const startsFor = "KPROBE_TEST_STARTS"

func startForPeak(args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Print(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	return 0
}

// TestPeakIsTheProgramsOwn: what the test itself takes is not in a program's peak.
func TestPeakIsTheProgramsOwn(t *testing.T) {
	own := bytes.Repeat([]byte{1}, 200<<20)
	if kb := peakOf(t, fixture.NeedTool(t, "true")); kb > 100<<10 {
		t.Errorf("true took %d KB beside %d of ours", kb, len(own)>>10)
	}
}
