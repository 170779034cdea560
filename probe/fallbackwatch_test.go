package probe

import (
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"

	"kprobe/probe/tracee"
)

// TestFallbacksAreToldOfSeldom lays fallback handlers again a thousand times: a handful of lines.
func TestFallbacksAreToldOfSeldom(t *testing.T) {
	var said []string
	s := &engine{opts: config{Log: logTo(slog.LevelInfo, func(text string) { said = append(said, text) })}}
	tg, w := &target{s: s, proc: &tracee.Process{}}, &fallbackWatch{}
	for i := range 1000 {
		w.tell(tg, syscall.SIGTRAP)
		if i == 30 {
			w.tell(tg, syscall.SIGSEGV)
		}
	}
	s.sayer.Flush()
	want := []string{"the action of SIGTRAP was laid under the fallback handler again", "the action of SIGTRAP was laid under the fallback handler 10 times by now",
		"the action of SIGSEGV was laid under the fallback handler again", "the action of SIGTRAP was laid under the fallback handler 100 times by now",
		"the action of SIGTRAP was laid under the fallback handler 1000 times by now"}
	for i := range want {
		want[i] = fmt.Sprintf("process %d: %s", tg.proc.PID(), want[i])
	}
	if !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}
