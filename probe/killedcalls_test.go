package probe

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/area"
	"kprobe/probe/tracee"
)

// stepsCalls has TestStepsOf print before which of its steps a thread is about to make an injected
// call that maps, unmaps or opens something.
const stepsCalls = "PROBE_TEST_STEPS_CALLS"

// aboutToCall gives the number of the injected call that a stopped thread of a process is about to
// make. It works on the tracer's own thread only.
func aboutToCall(pid int) (nr uint64, ok bool) {
	tids, _ := procfs.Process(pid).Threads()
	for _, tid := range tids {
		var r unix.PtraceRegs
		if unix.PtraceGetRegs(tid, &r) != nil || int64(r.Orig_rax) != -1 {
			continue
		}
		code := make([]byte, len(tracee.InjectedCode()))
		if _, err := unix.PtracePeekText(tid, uintptr(r.Rip), code); err == nil && bytes.Equal(code, tracee.InjectedCode()) {
			return r.Rax, true
		}
	}
	return 0, false
}

// leaves reports whether a system call leaves something in its process.
func leaves(nr uint64) bool {
	switch nr {
	case unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MEMFD_CREATE, unix.SYS_CLOSE:
		return true
	}
	return false
}

// TestKilledInCalls kills a kprobe whenever a thread of a stopped program is about to make a call
// for it that leaves something in the process. Recovery is under way when the program is continued
// and the thread makes the call: nothing of it stays.
func TestKilledInCalls(t *testing.T) {
	s := startRecorded(t, 2, "paced")
	s.line()
	stop := func() {
		t.Helper()
		if err := syscall.Kill(s.pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if !waitUntil(func() bool {
			st, err := procfs.Process(s.pid()).Status()
			return err == nil && st.State() == 'T'
		}) {
			t.Fatal("the program doesn't stop")
		}
	}
	goOn := func() { _ = syscall.Kill(s.pid(), syscall.SIGCONT) } // it is there
	stop()
	t.Setenv(stepsCalls, "1")
	out, _, err := stepsOutput("detached", s.pid(), 0)
	goOn()
	if err != nil {
		t.Fatal(err)
	}
	var calls []int64
	kinds := map[uint64]int{}
	for line := range strings.Lines(out) {
		var at int64
		var nr uint64
		if _, err := fmt.Sscanf(line, "call %d %d", &at, &nr); err == nil {
			calls = append(calls, at)
			kinds[nr]++
		}
	}
	if len(kinds) != 4 {
		t.Fatalf("calls of these kinds were seen: %v; %s", kinds, out)
	}
	apart := max(1, len(calls)/full(24, 1<<30))
	kills := 0
	for i := apart / 2; i < len(calls); i += apart {
		stop()
		_, killed, err := stepsRun("detached", s.pid(), calls[i])
		if err != nil {
			t.Fatalf("killed before step %d: %v", calls[i], err)
		}
		if killed { // else it has made fewer steps than the first
			kills++
		}
		if !waitUntil(func() bool { return !area.HasTracer(s.pid()) }) {
			t.Fatalf("killed before step %d, the program is traced still", calls[i])
		}
		done := make(chan error, 1)
		go func() {
			_, err := Recover(context.Background(), []int{s.pid()})
			done <- err
		}()
		time.Sleep(100 * time.Millisecond)
		goOn()
		if err := <-done; err != nil {
			t.Fatalf("killed before step %d: %v", calls[i], err)
		}
		if l, err := OpenLive(s.pid()); err == nil { // they were left already
			names := []string{}
			for _, st := range l.Stats() {
				names = append(names, st.Event.Group+"/"+st.Event.Name)
			}
			if err := l.Remove(t.Context(), names); err != nil {
				t.Fatalf("killed before step %d: %v", calls[i], err)
			}
			l.Close()
		}
		checkLeft(t, s.pid(), true)
		before := s.begun()
		if !waitUntil(func() bool { return s.begun() > before+100 }) {
			t.Errorf("the program makes no calls any more")
		}
		if t.Failed() {
			t.Fatalf("killed before step %d, of %v", calls[i], calls)
		}
	}
	t.Logf("%d calls, by number: %v; killed before %d of them", len(calls), kinds, kills)
	if kills < len(calls)/apart*3/4 {
		t.Errorf("only %d kills", kills)
	}
	if got := s.work(); !strings.HasPrefix(got, "done ") {
		t.Errorf("the program printed %q", got)
	}
	s.end()
}
