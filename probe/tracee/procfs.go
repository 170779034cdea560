//go:build linux && amd64

package tracee

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

func procPath(pid int, name string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + name
}

func taskPath(pid, tid int, name string) string {
	return "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/" + name
}

// readSmall reads a file of /proc into b, in one read. What an *os.File costs
// besides, seven system calls, tells where files are read between hits.
func readSmall(path string, b []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		default:
			return b[:n], nil
		}
	}
}

// tasks lists the threads of a process.
func tasks(pid int) ([]int, error) {
	d, err := os.Open(procPath(pid, "task"))
	if err != nil {
		return nil, ErrGone
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil && len(names) == 0 {
		return nil, ErrGone
	}
	tids := make([]int, 0, len(names))
	for _, n := range names {
		if tid, err := strconv.Atoi(n); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// statusField gives a field of a /proc/…/status text.
func statusField(text []byte, name string) string {
	for line := range bytes.Lines(text) {
		if v, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return strings.TrimSpace(string(v))
		}
	}
	return ""
}

// statFields gives the fields of /proc/…/stat from the third (state) on.
func statFields(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	// The name in parentheses may hold anything.
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return nil, syscall.EINVAL
	}
	return strings.Fields(string(text[i+1:])), nil
}

// taskState gives the state letter of a thread, or 0 if it is gone.
func taskState(pid, tid int) byte {
	f, err := statFields(taskPath(pid, tid, "stat"))
	if err != nil || len(f) == 0 {
		return 0
	}
	return f[0][0]
}

// readMaps reads the mappings of a process. The error is ErrGone, also for one
// whose memory has gone already.
func readMaps(pid int) ([]symbols.Mapping, error) {
	maps, err := symbols.ReadMaps(pid)
	if err != nil || len(maps) == 0 {
		return nil, ErrGone
	}
	return maps, nil
}
