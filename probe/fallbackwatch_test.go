package probe

import (
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"

	"kprobe/probe/engine"
	"kprobe/probe/tracee"
)

// TestFallbacksAreToldOfSeldom lays fallback handlers again a thousand times: a handful of lines.
func TestFallbacksAreToldOfSeldom(t *testing.T) {
	var said []string
	s := &engine.Engine{Opts: engine.Options{Log: logTo(slog.LevelInfo, func(text string) { said = append(said, text) })}}
	tg, w := &engine.Target{Engine: s, Proc: &tracee.Process{}}, &engine.FallbackWatch{}
	for i := range 1000 {
		w.Tell(tg, syscall.SIGTRAP)
		if i == 30 {
			w.Tell(tg, syscall.SIGSEGV)
		}
	}
	s.Sayer.Flush()
	want := []string{"the action of SIGTRAP was laid under the fallback handler again", "the action of SIGTRAP was laid under the fallback handler 10 times by now",
		"the action of SIGSEGV was laid under the fallback handler again", "the action of SIGTRAP was laid under the fallback handler 100 times by now",
		"the action of SIGTRAP was laid under the fallback handler 1000 times by now"}
	for i := range want {
		want[i] = fmt.Sprintf("process %d: %s", tg.Proc.PID(), want[i])
	}
	if !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}
