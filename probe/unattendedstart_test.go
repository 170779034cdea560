package probe

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// TestLetGoStarted: a program that the session has started is let go of, too, its hits are
// whole, and how it ends is told, on any kernel.
func TestLetGoStarted(t *testing.T) {
	prog := fixture.Build(t, "recorder_calls.c", "-O2", "-pthread")
	for _, sig := range []syscall.Signal{0, unix.SIGKILL, unix.SIGSEGV} {
		t.Run(sig.String(), func(t *testing.T) {
			in, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer write.Close()
			args := []string{prog, "2", filepath.Join(t.TempDir(), "counts"), "paced"}
			s, err := Start(t.Context(), Command{Path: prog, Args: args, Stdin: in}, Options{LetGo: true, Log: testLog(t)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(context.Background())
			if err := s.Arm(t.Context(), parseDefs(t, recordedHit)); err != nil {
				t.Fatal(err)
			}
			l := &live{t: t, s: s, done: make(chan struct{}), stop: func() {}}
			sink := &wholeSink{}
			l.begin(sink)
			pid := s.engine.Started
			if _, err := io.WriteString(write, "\n"); err != nil {
				t.Fatal(err)
			}
			l.untraced(pid)
			if at := l.stat("hit").Hits; !waitUntil(func() bool { return l.stat("hit").Hits > at }) {
				t.Fatal("no hits while it is let go of")
			}
			if sig == 0 {
				_, err = io.WriteString(write, "\n\n")
			} else {
				err = syscall.Kill(pid, sig)
			}
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-l.done:
			case <-time.After(patient):
				t.Fatalf("the run goes on; %s", threadStates(pid))
			}
			st := l.sum.Stats[0]
			if l.err != nil || l.sum.Reason != EndTarget || !l.sum.HasStatus || st.Hits == 0 || st.Recorded != sink.n {
				t.Errorf("%v; %+v; %d whole hits", l.err, l.sum, sink.n)
			}
			if ws := l.sum.Status; sig == 0 && ws.ExitStatus() != 7 || sig != 0 && (!ws.Signaled() || ws.Signal() != sig) {
				t.Errorf("it ended by %v: %#x", sig, uint32(ws))
			}
		})
	}
}
