package main

import (
	"bytes"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
)

// TestMemory: tracing a large program takes kprobe, its front or its tracer,
// at most 60 MB at its peak. node's file has 90 MB, 185,000 symbols.
func TestMemory(t *testing.T) {
	const most = 60 << 10 // KB, as getrusage(2) counts
	kprobe, program := program(t), fixture.NeedTool(t, "node")
	node := exec.Command(program, "-e", `setInterval(() => {}, 2); console.log("ready")`)
	_, out := fixture.Start(t, node)
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	for _, def := range []string{"p node:uv__io_poll n=%di", "r node:uv__io_poll", "p node:uv_*"} {
		t.Run(def, func(t *testing.T) {
			// When memory is collected is chance: the least of three counts.
			peak := int64(1 << 40)
			for i := 0; i < 3 && peak > most; i++ {
				var said bytes.Buffer
				cmd := exec.Command(kprobe, "trace", "-q", "-o", "/dev/null", "-n", "500", "-p", strconv.Itoa(node.Process.Pid), def)
				cmd.Stderr = &said
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %s", err, said.String())
				}
				// The front's peak, and that of the child it has waited for.
				peak = min(peak, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
				t.Logf("%d KB", peak)
			}
			if peak > most {
				t.Errorf("kprobe took %d KB, want at most %d", peak, most)
			}
		})
	}
}
