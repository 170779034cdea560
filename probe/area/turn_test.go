package area

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// One has the turn of a process. Others wait until it has ended, and are told in the end who has it.
func TestTurns(t *testing.T) {
	cmd := exec.Command(fixture.NeedFile(t, "/bin/sleep"), "1000")
	fixture.Start(t, cmd)
	pid := cmd.Process.Pid
	first, err := TakeTurn(t.Context(), pid, time.Hour)
	if err != nil || first == nil {
		t.Fatalf("the first turn: %v, %v", first, err)
	}
	var busy *BusyError
	if _, err := TakeTurn(t.Context(), pid, time.Millisecond); !errors.As(err, &busy) || busy.By != os.Getpid() || busy.PID != pid {
		t.Errorf("while somebody has the turn: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := TakeTurn(gone, pid, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	taken := make(chan error)
	go func() {
		turn, err := TakeTurn(t.Context(), pid, time.Hour)
		turn.End()
		taken <- err
	}()
	first.End()
	if err := <-taken; err != nil {
		t.Errorf("once the turn has ended: %v", err)
	}
	// Nobody needs the turn of a process that is gone, or of one that can't be traced.
	if err := errors.Join(cmd.Process.Kill(), func() error { _, err := cmd.Process.Wait(); return err }()); err != nil {
		t.Fatal(err)
	}
	turn, err := TakeTurn(t.Context(), pid, time.Hour)
	if turn.End(); turn != nil || err != nil {
		t.Errorf("of a process that is gone: %v, %v", turn, err)
	}
}
