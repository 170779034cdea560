package main

import (
	"bytes"
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
				var said bytes.Buffer
				cmd := exec.Command(kprobe, "trace", "-q", "-o", "/dev/null", "-n", c.hits, "-p", strconv.Itoa(node.Process.Pid), c.def)
				cmd.Stderr = &said
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %s", err, said.String())
				}
				// The supervisor's peak, and that of the child it has waited for.
				peak = min(peak, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
				t.Logf("%d KB", peak)
			}
			if peak > most {
				t.Errorf("kprobe took %d KB, want at most %d", peak, most)
			}
		})
	}
}
