package probe

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// BenchmarkStartToArmed measures from nothing to three probes armed in a
// process of node's size: its file read, names looked up (one of them of C++),
// places proved, copies and detours written. Taking them out is not counted.
func BenchmarkStartToArmed(b *testing.B) {
	node := fixture.NeedTool(b, "node")
	cmd := exec.Command(node, "-e", "setInterval(() => {}, 1000)")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	time.Sleep(time.Second)
	var defs []*fetch.Def
	for _, text := range []string{"p node:uv_run", "p libc:write n=$arg3", "p node:node::Environment::RunTimers"} {
		d, err := fetch.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		defs = append(defs, d)
	}
	ctx := context.Background()
	for b.Loop() {
		s, err := Attach(ctx, []int{cmd.Process.Pid}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Arm(ctx, defs); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Close(ctx); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
