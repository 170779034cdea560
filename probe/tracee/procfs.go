//go:build linux && amd64

package tracee

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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

// mapping is a line of /proc/PID/maps.
type mapping struct {
	start, end uint64
	perms      string
	offset     uint64
	inode      string
	dev        string
	path       string
}

func readMaps(pid int) ([]mapping, error) {
	text, err := os.ReadFile(procPath(pid, "maps"))
	if err != nil || len(text) == 0 { // its memory goes before it does
		return nil, ErrGone
	}
	return parseMaps(string(text)), nil
}

// parseMaps parses /proc/PID/maps and leaves out what it can't read.
func parseMaps(text string) []mapping {
	var ms []mapping
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		lo, hi, ok := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(lo, 16, 64)
		end, err2 := strconv.ParseUint(hi, 16, 64)
		off, err3 := strconv.ParseUint(f[2], 16, 64)
		if !ok || err1 != nil || err2 != nil || err3 != nil || len(f[1]) < 4 {
			continue
		}
		m := mapping{start: start, end: end, perms: f[1], offset: off, dev: f[3], inode: f[4]}
		if len(f) > 5 {
			m.path = f[5]
		}
		ms = append(ms, m)
	}
	return ms
}
