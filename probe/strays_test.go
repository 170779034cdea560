package probe

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/area"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
)

// TestStrayDescriptor: a session closes the descriptor that a killed kprobe has left open in the
// program before it had mapped anything, and none of the same name that is the program's own.
func TestStrayDescriptor(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "1")
	before := filesOf(t, sub.pid())
	tr, err := tracee.New()
	if err != nil {
		t.Fatal(err)
	}
	p, err := tr.Attach(t.Context(), sub.pid())
	if err != nil {
		t.Fatal(err)
	}
	var own uintptr
	err = tr.Do(func() error {
		err := p.WithStopped(t.Context(), func([]*tracee.Thread) error {
			for range 2 {
				var err error
				if own, err = p.SyscallString(t.Context(), nil, unix.SYS_MEMFD_CREATE, ring.MemfdName, unix.MFD_CLOEXEC); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return p.Detach(context.Background(), nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	ownFile := fmt.Sprintf("/proc/%d/fd/%d", sub.pid(), own)
	if err := os.WriteFile(ownFile, []byte("the program's"), 0); err != nil {
		t.Fatal(err)
	}
	if !area.HasStrays(sub.pid()) {
		t.Fatal("the program has no such descriptor")
	}
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(ownFile); err != nil || string(b) != "the program's" {
		t.Errorf("its own has %q: %v", b, err)
	}
	after := filesOf(t, sub.pid())
	if line := fmt.Sprintf("%d /memfd:%s (deleted)\n", own, ring.MemfdName); strings.Replace(after, line, "", 1) != before || !strings.Contains(after, line) {
		t.Errorf("the program has\n%s\nand had\n%s", after, before)
	}
	sub.says("go 10")
	sub.end()
}
