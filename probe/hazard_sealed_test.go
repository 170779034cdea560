package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"kprobe/probe/area"
)

// TestHazardP43Sealed: nobody can take the memory file's bytes from under a program and its kprobe.
func TestHazardP43Sealed(t *testing.T) {
	s := startRecorded(t, 1, "paced")
	s.left(Options{}, recordedHit)
	m, err := area.FindMemfile(s.pid())
	if err != nil || m == nil {
		t.Fatal(m, err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/map_files/%x-%x", s.pid(), uint64(m.Start), uint64(m.End)), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("only root can open it")
	} else if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int64{0, int64(m.End-m.Start) - 4096} {
		if err := f.Truncate(size); !errors.Is(err, syscall.EPERM) {
			t.Errorf("to %d bytes: %v", size, err)
		}
	}
	if _, err := s.looksWhole(); err != nil {
		t.Error(err)
	}
	s.work()
	s.end()
}
