//go:build linux

// Package procfs reads what the kernel says about processes and the machine in /proc (proc(5)).
// It is the only reader of status, stat, comm, syscall, children and cpuinfo. Mappings are read
// by symbols.ReadMaps.
//
// A process may end at any moment between two calls. Errors are those of opening and reading
// files: fs.ErrNotExist and syscall.ESRCH mean that the process is gone.
package procfs

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FS is where a /proc is mounted. Tests have their own.
type FS string

const proc FS = "/proc"

// Task is the folder of a process or of one of its threads. The zero value is not
// useful.
type Task string

// Process is /proc/PID.
func Process(pid int) Task { return proc.Process(pid) }

// Thread is /proc/PID/task/TID.
func Thread(pid, tid int) Task { return proc.Process(pid).Thread(tid) }

// Process is the folder of a process in fs.
func (fs FS) Process(pid int) Task { return Task(string(fs) + "/" + strconv.Itoa(pid)) }

// Thread is the folder of a thread of the process t.
func (t Task) Thread(tid int) Task { return t + "/task/" + Task(strconv.Itoa(tid)) }

// Path gives the path of one of the folder's files.
func (t Task) Path(name string) string { return string(t) + "/" + name }

// Processes lists the processes that can be seen, in no order.
func (fs FS) Processes() ([]int, error) { return numbers(string(fs)) }

// Processes lists the processes of /proc.
func Processes() ([]int, error) { return proc.Processes() }

// Threads lists the threads of a process, in no order.
func (t Task) Threads() ([]int, error) { return numbers(t.Path("task")) }

// Descriptors lists what a process has open, by number and in no order.
func (t Task) Descriptors() ([]int, error) { return numbers(t.Path("fd")) }

// numbers lists the entries of a folder that are numbers.
func numbers(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil && len(names) == 0 {
		return nil, err
	}
	list := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list, nil
}

// Children lists the child processes that the thread t has made and that have not
// been waited for. Kernels without CONFIG_PROC_CHILDREN don't tell: an error.
func (t Task) Children() ([]int, error) {
	text, err := os.ReadFile(t.Path("children"))
	if err != nil {
		return nil, err
	}
	var list []int
	for _, word := range bytes.Fields(text) {
		if n, err := strconv.Atoi(string(word)); err == nil {
			list = append(list, n)
		}
	}
	return list, nil
}

// AllChildren lists the children of all threads of the process t: each child
// belongs to the thread that made it. What can't be read is left out.
func (t Task) AllChildren() []int {
	tids, _ := t.Threads()
	var list []int
	for _, tid := range tids {
		kids, _ := t.Thread(tid).Children()
		list = append(list, kids...)
	}
	return list
}

// BootID is what the kernel calls this boot; "" is unknown.
func BootID() string {
	id, err := Read("/proc/sys/kernel/random/boot_id", make([]byte, 64))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}

// Comm gives the command name of a process or thread; it may hold any byte.
func (t Task) Comm() (string, error) {
	var buf [64]byte // TASK_COMM_LEN, of kernel threads a little more
	text, err := Read(t.Path("comm"), buf[:])
	return string(bytes.TrimSuffix(text, []byte{'\n'})), err
}

// mostArgs bounds the arguments of a process that are read, in bytes.
const mostArgs = 16 << 10

// Command is a process's arguments, the first of which is its program's name as it was
// called: as the process says, which may have changed them. nil: there are none, or it is
// gone.
func (t Task) Command() []string {
	b, err := Read(t.Path("cmdline"), make([]byte, mostArgs))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// Short reports whether an error says that the reader lacks descriptors or memory, and
// nothing of the process that was looked at.
func Short(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// Read reads a file that the kernel makes up in one piece when it is read, such as
// status, stat and comm, into b, or into larger memory where it doesn't fit. An
// *os.File would cost seven system calls more; some of these files are read
// between hits.
func Read(path string, b []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for have := 0; ; {
		n, err := unix.Read(fd, b[have:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if have += n; n == 0 || have < len(b) {
			return b[:have], nil
		}
		b = append(b, make([]byte, len(b)+64)...)
	}
}

// maxTable bounds what Table reads.
const maxTable = 8 << 20

// Table reads a table of the kernel's that comes in pieces, such as that of sockets or
// of locks; what can't be read of it isn't there.
func Table(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	b := make([]byte, 64<<10)
	for have := 0; ; {
		n, err := unix.Read(fd, b[have:])
		if err == unix.EINTR {
			continue
		}
		if have += max(n, 0); n <= 0 || have >= maxTable {
			return b[:have]
		}
		if have == len(b) {
			b = append(b, make([]byte, len(b))...)
		}
	}
}
