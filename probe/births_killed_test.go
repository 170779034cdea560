package probe

import (
	"fmt"
	"strconv"
	"testing"

	"kprobe/internal/fixture"
)

// TestKilledDuringBirths kills kprobe while the program makes processes all the
// time. Those that are made until the probes are out have copies of them, and of
// the fallback handlers: they work like the others, and so does what recovers their parent.
func TestKilledDuringBirths(t *testing.T) {
	bin := buildKprobe(t)
	prog := fixture.Build(t, "storm_births.c", "-O2", "-lpthread")
	for _, flag := range []string{"--no-optimize=false", "--no-optimize"} {
		for _, mode := range []string{"fork", "deep", "vfork"} {
			t.Run(flag+" "+mode, func(t *testing.T) {
				sub := startSubject(t, prog, mode)
				for i := range full(2, 100) {
					kind := killTracer + i%2
					trace := newFile(t).Name()
					c := startKprobe(t, bin, "trace", "-q", "-o", trace, flag, "-p", strconv.Itoa(sub.pid()), "p:in work a=$arg1", "r:out work v=$retval")
					prints(t, trace)
					c.kill(kind)
					<-c.done
					if kind == killBoth {
						if !waitUntil(func() bool { return !traced(sub.pid()) }) {
							t.Fatal("it is still traced")
						}
						runsOn(t, sub.pid())
						// Children that live just then have it, too.
						if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) == 0 || pids[0] != sub.pid() {
							t.Errorf("recovered %v: %v", pids, err)
						}
					}
					if !waitUntil(func() bool { return leftBehind(sub.pid()) == "" }) {
						t.Errorf("kind %d: %s\n%s", kind, leftBehind(sub.pid()), c.said())
					}
					checkClean(t, sub.pid())
				}
				var parent, child, bad int
				if got := sub.work(); !scannedDone(got, &parent, &child, &bad) || bad != 0 || child == 0 {
					t.Errorf("the program printed %q", got)
				}
				sub.end()
			})
		}
	}
}

// TestRecoverHeirs: processes that were made while kprobe was dead, and theirs, are
// clean when the first one is.
func TestRecoverHeirs(t *testing.T) {
	bin := buildKprobe(t)
	sub := startSubject(t, fixture.Build(t, "recover_heirs.c", "-O2", "-lpthread"))
	trace := newFile(t).Name()
	c := startKprobe(t, bin, "trace", "-q", "-o", trace, "--no-optimize", "-p", strconv.Itoa(sub.pid()), "p:in work a=$arg1", "r:out work v=$retval")
	prints(t, trace)
	c.kill(killBoth)
	<-c.done
	if !waitUntil(func() bool { return !traced(sub.pid()) }) {
		t.Fatal("it is still traced")
	}
	sub.line()
	var child, grandchild int
	if got := sub.expect("forked"); !scannedPIDs(got, &child, &grandchild) {
		t.Fatalf("the program printed %q", got)
	}
	all := []int{sub.pid(), child, grandchild}
	for _, pid := range all {
		if leftBehind(pid) == "" {
			t.Errorf("process %d has no probes: there is nothing to test", pid)
		}
		runsOn(t, pid)
	}
	if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) != len(all) {
		t.Errorf("recovered %v of %v: %v", pids, all, err)
	}
	for _, pid := range all {
		runsOn(t, pid)
		if s := leftBehind(pid); s != "" {
			t.Errorf("process %d: %s", pid, s)
		}
		checkClean(t, pid)
	}
	sub.line()
	if got := sub.expect("done"); got != "done 0" {
		t.Errorf("the program printed %q", got)
	}
	sub.end()
}

func scannedPIDs(line string, child, grandchild *int) bool {
	_, err := fmt.Sscanf(line, "forked %d %d", child, grandchild)
	return err == nil
}
