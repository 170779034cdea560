// Package untrusted opens files that a program names: its executable and libraries, what their
// headers, debug links and debug information refer to, and what lies at a path of its choosing.
// The author of the program has chosen these names, and kprobe often runs with more rights than
// the program.
//
// A name may lead to a FIFO, a terminal, a device that acts when it is opened, a file of /proc
// or of tracefs that waits when it is read, a file of terabytes without contents, or a file
// system in user space that never answers. Open returns a regular file with contents of its
// own, or an error, within a bounded time.
package untrusted

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors of Open and OpenIn are those of opening, and these.
var (
	// ErrIrregular is wrapped where the name is no regular file's, or that of a
	// file whose contents a kernel makes up (/proc, /sys).
	ErrIrregular = errors.New("is not a regular file")
	// ErrTooLarge is wrapped where a file is larger than MaxSize, or far larger
	// than what is stored of it.
	ErrTooLarge = errors.New("is too large")
	// ErrNoAnswer is wrapped where the file system does not answer.
	ErrNoAnswer = errors.New("its file system does not answer")
)

// Bounds.
const (
	// MaxSize bounds a file, in bytes. The debug files of browsers have a few GB.
	MaxSize = 32 << 30
	// A file of more than sparseFrom bytes has at least one byte in sparseShare
	// stored: linkers and compilers write no holes.
	sparseFrom  = 64 << 20
	sparseShare = 16

	// maxStuck bounds the calls that wait for file systems that don't answer.
	maxStuck = 8
)

// Open opens a file for reading. info is what is known of the named file; f may
// be a copy of it.
func Open(path string) (f *os.File, info fs.FileInfo, err error) { return OpenIn("", path) }

// OpenIn opens a file by its absolute path as a process sees it whose root
// directory root is (/proc/PID/root): symbolic links and ".." stay below it.
// The root "" is the caller's own.
//
// The file system may be one in user space (FUSE), whose server is a program
// like any other. What is on such a one is copied to a file without a name,
// because a server that stops answering while a mapped file is read would stop
// kprobe for good.
func OpenIn(root, path string) (f *os.File, info fs.FileInfo, err error) {
	type opened struct {
		f    *os.File
		info fs.FileInfo
	}
	got, _, err := bounded(patience, func() (opened, error) {
		f, info, err := open(root, path)
		return opened{f, info}, err
	}, func(o opened) { _ = o.f.Close() })
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: root + path, Err: err}
	}
	if remote(got.f) {
		copied, err := copyOf(got.f, got.info.Size())
		if err != nil {
			return nil, nil, &fs.PathError{Op: "read", Path: root + path, Err: err}
		}
		return copied, got.info, nil
	}
	return got.f, got.info, nil
}

// open finds the file without opening it, looks what it is, and opens that.
func open(root, path string) (*os.File, fs.FileInfo, error) {
	at, err := find(root, path)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return nil, nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil, fmt.Errorf("it %w", ErrIrregular)
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(at, &on); err != nil {
		return nil, nil, err
	}
	if madeUp[on.Type] {
		return nil, nil, fmt.Errorf("it %w but one that the kernel makes up", ErrIrregular)
	}
	// O_NONBLOCK: another's lease on the file isn't waited for.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := sized(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, nil, err
	}
	// Go has epoll watch a file that doesn't block, and epoll asks the file system whether it is ready. The call
	// can't be bounded: while there is no answer, all of the program waits.
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), root+path)
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// find gives a descriptor that stands for the file and opens nothing.
func find(root, path string) (int, error) {
	if root == "" {
		return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	name := strings.TrimLeft(path, "/")
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for range 100 {
		fd, err := unix.Openat2(dir, name, how)
		switch {
		case errors.Is(err, unix.EAGAIN): // something was renamed meanwhile
			runtime.Gosched()
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // Linux before 5.6, or a filter that knows none later
			return unix.Open(root+"/"+name, unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		return fd, err
	}
	return -1, unix.EAGAIN
}

// madeUp are the file systems whose files are the kernel's answers: reading one
// may wait, or take something away (statfs(2), linux/magic.h).
var madeUp = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.DEBUGFS_MAGIC: true,
	unix.SECURITYFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true,
	unix.BPF_FS_MAGIC: true, unix.PSTOREFS_MAGIC: true, unix.SELINUX_MAGIC: true, unix.SMACK_MAGIC: true,
	unix.NSFS_MAGIC: true, unix.DEVPTS_SUPER_MAGIC: true, unix.BINFMTFS_MAGIC: true, unix.RDTGROUP_SUPER_MAGIC: true,
	unix.EFIVARFS_MAGIC: true, unix.BINDERFS_SUPER_MAGIC: true,
	0x62656570: true, // configfs
	0x19800202: true, // mqueue
}

// sized refuses a file that is larger than any, or that has next to nothing of
// what it says it has.
func sized(fd int, st *unix.Stat_t) error {
	if st.Size > MaxSize {
		return fmt.Errorf("it %w: %d bytes", ErrTooLarge, st.Size)
	}
	if st.Size <= sparseFrom || st.Blocks >= st.Size/sparseShare/512 {
		return nil
	}
	// Some file systems know the blocks of a new file only later.
	stored, from := int64(0), int64(0)
	for range 1 << 16 {
		data, err := unix.Seek(fd, from, unix.SEEK_DATA)
		if err != nil {
			break // ENXIO: no more; others know of no holes and give what is there as it is
		}
		if from, err = unix.Seek(fd, data, unix.SEEK_HOLE); err != nil {
			break
		}
		if stored += from - data; stored >= st.Size/sparseShare {
			return nil
		}
	}
	return fmt.Errorf("it %w: %d bytes, of which next to none is stored", ErrTooLarge, st.Size)
}
