package memory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a memory file outlives its process
//
// It has a name then (--keep FILE). kprobe makes it, and takes all of its space before
// anything is mapped: a store into a page for which there is none raises SIGBUS in the
// program. It lies on a file system in memory: writing back to a disk would make the
// program wait at a hit. The process gets the file by its descriptor, through a socket of
// its own: it needs no path to it, in whatever mount namespace it is, and no right to
// open it.

// KeepError says why a memory file can't be kept in a file.
type KeepError struct {
	Name string
	Err  error
}

// Error implements error.
func (e *KeepError) Error() string { return fmt.Sprintf("keep the hits in %s: %v", e.Name, e.Err) }

// Unwrap gives the reason.
func (e *KeepError) Unwrap() error { return e.Err }

var errNotInMemory = errors.New("its file system is not in memory, and the program would wait for a disk: name a file on a tmpfs, such as /dev/shm/NAME")

// Keep makes a file for a layout, with all its space. The caller closes it, and removes
// it if nothing comes of it. Its errors are *KeepError.
func Keep(name string, layout *ring.Layout) (f *os.File, err error) {
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, &KeepError{name, errors.New("it exists already: name another file, or remove it")}
	}
	if err != nil {
		return nil, &KeepError{name, err}
	}
	if err = reserve(f, layout); err != nil {
		_ = f.Close()
		_ = os.Remove(name)
		return nil, &KeepError{name, err}
	}
	return f, nil
}

// reserve takes the space of a file, but for the rings that nobody writes: those of
// sequences, where triggers take snapshots.
func reserve(f *os.File, l *ring.Layout) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC {
		return errNotInMemory
	}
	if err := f.Truncate(l.Code.Off); err != nil {
		return err
	}
	used := l.Rings.End()
	if l.Spare {
		used = l.RingData(l.Areas())
	}
	for _, s := range [...]ring.Section{{Off: 0, Size: used}, {Off: l.Rings.End(), Size: l.Code.Off - l.Rings.End()}} {
		err := unix.Fallocate(int(f.Fd()), 0, s.Off, s.Size)
		if errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("%d MB are more than there is room for on its file system: %w; a smaller --ring takes less", (used+s.Size)>>20, err)
		}
		if err != nil {
			return fmt.Errorf("take its space: %w", err)
		}
	}
	return nil
}

// NewKept is New with a file that Keep has made.
func NewKept(ctx context.Context, p *tracee.Process, layout *ring.Layout, f *os.File) (m *File, err error) {
	spare, err := reserveDescriptors()
	if err != nil {
		return nil, &KeepError{f.Name(), err}
	}
	defer spare.release()
	fd, err := give(ctx, p, f, spare)
	if err != nil {
		return nil, &KeepError{f.Name(), err}
	}
	return mapped(ctx, p, layout, f, fd, spare)
}

// give has the process receive a file, and gives the descriptor that it has there.
func give(ctx context.Context, p *tracee.Process, f *os.File, spare *descriptors) (fd uintptr, err error) {
	sock, err := p.Syscall(ctx, nil, unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("make a socket in the process: %w", err)
	}
	defer func() {
		spare.release()
		if _, cerr := p.Syscall(ctx, nil, unix.SYS_CLOSE, sock); cerr != nil {
			err = errors.Join(err, fmt.Errorf("close the socket in the process: %w", cerr))
		}
	}()
	// The kernel finds an abstract name for it.
	_, err = p.SyscallBuilt(ctx, nil, unix.SYS_BIND, func(at uint64) ([]byte, []uintptr) {
		return binary.LittleEndian.AppendUint16(nil, unix.AF_UNIX), []uintptr{sock, uintptr(at), 2}
	})
	if err != nil {
		return 0, fmt.Errorf("name a socket in the process: %w", err)
	}
	if err := sendTo(p.PID(), int(sock), int(f.Fd())); err != nil {
		return 0, err
	}
	_, err = p.SyscallBuilt(ctx, nil, unix.SYS_RECVMSG, func(at uint64) ([]byte, []uintptr) {
		return message(at), []uintptr{sock, uintptr(at), unix.MSG_CMSG_CLOEXEC}
	})
	if err != nil {
		return 0, fmt.Errorf("receive the file in the process: %w", err)
	}
	if fd, err = received(p.PID(), f); procfs.Short(err) {
		spare.release()
		fd, err = received(p.PID(), f)
	}
	return fd, err
}

// sendTo sends a descriptor to a socket of a process, by a copy of that very socket:
// its name is one of the process's network namespace.
func sendTo(pid, sock, fd int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open the process (Linux 5.3): %w", err)
	}
	defer unix.Close(pidfd)
	own, err := unix.PidfdGetfd(pidfd, sock, 0)
	if err != nil {
		return fmt.Errorf("take the process's socket (Linux 5.6): %w", err)
	}
	defer unix.Close(own)
	to, err := unix.Getsockname(own)
	if err != nil {
		return fmt.Errorf("ask for the socket's name: %w", err)
	}
	if err := unix.Sendmsg(own, []byte{0}, unix.UnixRights(fd), to, 0); err != nil {
		return fmt.Errorf("send the file to the process: %w", err)
	}
	return nil
}

// message is a struct msghdr at an address, with room for a byte and a descriptor
// behind it (recvmsg(2)).
func message(at uint64) []byte {
	const vector, byteAt, control = 56, 72, 80
	b := make([]byte, control+24)
	le := binary.LittleEndian
	le.PutUint64(b[16:], at+vector)
	le.PutUint64(b[24:], 1)
	le.PutUint64(b[32:], at+control)
	le.PutUint64(b[40:], 24)
	le.PutUint64(b[vector:], at+byteAt)
	le.PutUint64(b[vector+8:], 1)
	return b
}

// received finds the descriptor that a process has of a file.
func received(pid int, f *os.File) (uintptr, error) {
	own, err := f.Stat()
	if err != nil {
		return 0, err
	}
	task := procfs.Image(pid)
	list, err := task.Descriptors()
	if err != nil {
		return 0, err
	}
	for _, fd := range list {
		if info, err := os.Stat(task.Path("fd/" + strconv.Itoa(fd))); err == nil && os.SameFile(info, own) {
			return uintptr(fd), nil
		}
	}
	return 0, errors.New("the process has not received it")
}

// isKept reports whether a mapping may be that of a memory file with a name, as far as
// its kind tells: a shared one of a file in memory, whose first bytes say it.
func isKept(pid int, m *symbols.Mapping) bool {
	if !m.Shared || !m.Read || !m.Write || m.Exec || m.Off != 0 || m.Inode == 0 || m.Major != 0 || m.End-m.Start < PageSize {
		return false
	}
	is, err := untrusted.Within(func() (bool, error) {
		mem, err := os.Open(procfs.Image(pid).Path("mem"))
		if err != nil {
			return false, err
		}
		defer mem.Close()
		var b [len(ring.Magic)]byte
		_, err = mem.ReadAt(b[:], int64(m.Start))
		return string(b[:]) == ring.Magic, err
	})
	return err == nil && is
}
