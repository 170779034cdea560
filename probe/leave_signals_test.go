package probe

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestLeaveUnderSignals leaves a program again and again whose signals come all
// the time, with return probes on their handlers: those return to the signal
// trampoline, which takes no breakpoint, by trapping trampolines or by jumps.
func TestLeaveUnderSignals(t *testing.T) {
	prog := fixture.Build(t, "leave_signals.c", "-O2", "-lpthread")
	defs := []string{"r:one on_usr1", "r:two on_usr2", "p:in work a=$arg1", "r:out work v=$retval", "r:down down v=$retval"}
	for _, mode := range []string{"", "alt", "nested alt", "jump", "wait exits nested", "block deep", "alt deep jump wait"} {
		for name, o := range map[string]Options{"jumps": {}, "breakpoints": {NoOptimize: true}} {
			t.Run(strings.ReplaceAll(mode, " ", "-")+"/"+name, func(t *testing.T) {
				sub := startSubject(t, prog, strings.Fields(mode)...)
				for i := range full(12, 300) {
					leaveOnce(t, sub, o, i, defs)
					if t.Failed() {
						t.Fatalf("round %d", i)
					}
				}
				if got := sub.work(); got != "done 0" {
					t.Errorf("the program printed %q, want done 0", got)
				}
				sub.end()
			})
		}
	}
}

func leaveOnce(t *testing.T, sub *subject, o Options, round int, defs []string) {
	t.Helper()
	o.Log = testLog(t)
	s, err := Attach(context.Background(), []int{sub.pid()}, o)
	if err != nil {
		t.Fatalf("%v; the program: %s", err, endOf(sub.pid()))
	}
	defer s.Close(context.Background())
	if err := s.Arm(context.Background(), parseDefs(t, defs...)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+round%7)*3*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, &collector{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	checkClean(t, sub.pid())
}

// endOf tells how a process has ended that nobody has waited for, by the wait status in
// field 52 of /proc/PID/stat, or that it lives.
func endOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err.Error()
	}
	f := strings.Fields(string(b))
	n, _ := strconv.Atoi(f[len(f)-1])
	if f[2] != "Z" && f[2] != "X" {
		return f[2] + ", it runs on"
	}
	st := syscall.WaitStatus(n)
	return fmt.Sprintf("%s exited %v signalled %v %v", f[2], st.Exited(), st.Signaled(), st.Signal())
}
