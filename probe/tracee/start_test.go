//go:build linux && amd64

package tracee

import (
	"context"
	"os"
	"syscall"
	"testing"
)

func TestStart(t *testing.T) {
	tr, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	p, err := tr.Start(ctx, Command{Path: "/bin/sh", Args: []string{"sh", "-c", "ls / >/dev/null; (exit 3); ls /nonexistent; exit 7"}, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	var got syscall.WaitStatus
	h := &recorder{t: t, exited: func(_ *Process, st syscall.WaitStatus) { got = st }}
	if err := tr.Do(p.ResumeAll); err != nil {
		t.Fatal(err)
	}
	if err := tr.Run(ctx, h); err != nil {
		t.Fatal(err)
	}
	if got.ExitStatus() != 7 {
		t.Errorf("status %v", got)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}
