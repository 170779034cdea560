package memory

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

// TestLimited names the limit by which the kernel refuses what it refuses: EAGAIN is that of locked memory.
func TestLimited(t *testing.T) {
	cmd := exec.Command("cat")
	in, _ := fixture.Start(t, cmd)
	pid := cmd.Process.Pid
	const much, little = 1 << 40, 4096 // the program itself needs some
	for resource, most := range map[int]uint64{unix.RLIMIT_AS: much, unix.RLIMIT_DATA: much, unix.RLIMIT_MEMLOCK: little} {
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		err   unix.Errno
		of    LimitError
		want  string
		bytes uint64
	}{
		{unix.ENOMEM, limitMapped, "RLIMIT_AS", much},
		{unix.ENOMEM, limitWritable, "RLIMIT_DATA", much},
		{unix.EAGAIN, limitMapped, "RLIMIT_MEMLOCK", little},
		{unix.EACCES, limitMapped, "", 0},
	} {
		var limit *LimitError
		switch err := limited(pid, c.err, c.of); {
		case !errors.Is(err, c.err):
			t.Errorf("%v became %v", c.err, err)
		case errors.As(err, &limit) != (c.want != ""):
			t.Errorf("%v: %v", c.err, err)
		case limit != nil && (limit.Name != c.want || limit.Bytes != c.bytes || limit.PID != pid):
			t.Errorf("%v: %+v, want %s", c.err, limit, c.want)
		}
	}
	_ = in.Close()
	_ = cmd.Wait()
}
