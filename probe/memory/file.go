package memory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// File is the memory file of a target (probe/ring describes its contents):
// mapped shared in the target at base, and here as bytes. It is made by the
// target itself, by injected system calls, so that it needs no path that both
// can open, and no descriptor stays open in the target. Other processes read the file
// through /proc.
type File struct {
	proc   *tracee.Process
	Layout *ring.Layout
	Base   symbols.Addr // of the mapping in the target, sections up to Code
	size   uint64       // of that mapping
	Mem    []byte       // our mapping of the same bytes; nil of another kprobe's file
	own    *Mapped      // of mem
}

// Mapped is memory that is mapped here until the garbage collector finds that nothing
// refers to it any more: the counters of a session are asked for after its end. Whoever
// uses the memory holds it.
type Mapped struct{ mem []byte }

// NewMapped looks after memory that was mapped.
func NewMapped(mem []byte) *Mapped {
	m := &Mapped{mem}
	// It fails for what isn't mapped, only.
	runtime.AddCleanup(m, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return m
}

// New creates the file in the process and maps it on both sides. On an
// error nothing stays mapped or open.
func New(ctx context.Context, p *tracee.Process, layout *ring.Layout) (m *File, err error) {
	spare, err := reserveDescriptors()
	if err != nil {
		return nil, fmt.Errorf("create the memory file: %w", err)
	}
	defer spare.release()
	fd, err := p.SyscallString(ctx, nil, unix.SYS_MEMFD_CREATE, ring.MemfdName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	var here *fs.PathError // a file of /proc that kprobe couldn't open
	if errors.Is(err, unix.EMFILE) && !errors.As(err, &here) {
		return nil, fmt.Errorf("create the memory file: process %d has as many files open as it may: %w; prlimit --pid %[1]d --nofile=N raises its limit", p.PID(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("create the memory file: %w", err)
	}
	f, err := os.OpenFile(procfs.Image(p.PID()).Path("fd/"+strconv.Itoa(int(fd))), os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the memory file: %w", err), closeIn(ctx, p, fd, spare))
	}
	defer f.Close()
	if err := f.Truncate(layout.Code.Off); err != nil {
		var own unix.Rlimit
		if errors.Is(err, unix.EFBIG) && unix.Getrlimit(unix.RLIMIT_FSIZE, &own) == nil {
			err = fmt.Errorf("%w; kprobe may make files of %d bytes (ulimit -f)", err, own.Cur)
		}
		return nil, errors.Join(fmt.Errorf("size the memory file: %w", err), closeIn(ctx, p, fd, spare))
	}
	// Whoever can open it could raise SIGBUS in both processes otherwise.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(fmt.Errorf("fix the size of the memory file: %w", err), closeIn(ctx, p, fd, spare))
	}
	return mapped(ctx, p, layout, f, fd, spare)
}

// closeIn closes the file in the target. It takes descriptors here, for which it gives up the
// spare ones.
func closeIn(ctx context.Context, p *tracee.Process, fd uintptr, spare *descriptors) error {
	spare.release()
	if _, err := p.Syscall(ctx, nil, unix.SYS_CLOSE, fd); err != nil {
		return fmt.Errorf("close the memory file in the target: %w", err)
	}
	return nil
}

// mapped maps a file on both sides, which the process has open as fd and closes.
func mapped(ctx context.Context, p *tracee.Process, layout *ring.Layout, f *os.File, fd uintptr, spare *descriptors) (m *File, err error) {
	defer func() {
		if cerr := closeIn(ctx, p, fd, spare); cerr != nil && err == nil {
			err = cerr
		}
	}()
	size := uint64(layout.Code.Off)
	mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory file: %w", err)
	}
	at, err := p.Syscall(ctx, nil, unix.SYS_MMAP, 0, uintptr(size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd, 0)
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, fmt.Errorf("map the memory file in the target: %w", limited(p.PID(), err, limitMapped))
	}
	if err := leftOutOfDumps(ctx, p, layout, at, size); err != nil {
		_ = unix.Munmap(mem)
		return nil, errors.Join(err, Munmap(ctx, p, symbols.Addr(at), size))
	}
	return &File{proc: p, Layout: layout, Base: symbols.Addr(at), size: size, Mem: mem, own: NewMapped(mem)}, nil
}

// leftOutOfDumps has core dumps leave a memory file out whose hits only kprobe itself reads: for a dump, the kernel takes
// memory for all of a file. Where it refuses, dumps are only larger.
func leftOutOfDumps(ctx context.Context, p *tracee.Process, layout *ring.Layout, at uintptr, size uint64) error {
	if layout.Overwrite {
		return nil
	}
	_, err := p.Syscall(ctx, nil, unix.SYS_MADVISE, at, uintptr(size), unix.MADV_DONTDUMP)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("leave the memory file out of core dumps: %w", err)
	}
	return nil
}

// memfdDevice is the device of memory files, by which a file that only has the
// name of one is told from them; 0, 0 where it isn't known.
var memfdDevice = sync.OnceValues(func() (major, minor uint32) {
	fd, err := unix.MemfdCreate("kprobe-device", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0, 0
	}
	return unix.Major(st.Dev), unix.Minor(st.Dev)
})

// IsFile reports whether a mapping of a process may be that of a memory file, with a
// name or without: the program can make such a one.
func IsFile(pid int, m *symbols.Mapping) bool { return isMemfd(m) || isKept(pid, m) }

// isMemfd reports whether a mapping is that of a memory file without a name, as far as
// its name, its device and its start tell.
func isMemfd(m *symbols.Mapping) bool {
	if m.Path != "/memfd:"+ring.MemfdName || m.Off != 0 {
		return false
	}
	major, minor := memfdDevice()
	return major == 0 && minor == 0 || m.Deleted && m.Major == major && m.Minor == minor
}

// Addr is the address in the target of an offset in the file.
func (m *File) Addr(off int64) symbols.Addr { return m.Base + symbols.Addr(off) }

// Load64 reads a word that others may be writing.
func (m *File) Load64(off int64) uint64 { return atomic.LoadUint64(m.word(off)) }

// Store64 stores a word in one piece; stores become visible in their order.
func (m *File) Store64(off int64, v uint64) { atomic.StoreUint64(m.word(off), v) }

// Set64 is Store64, of a file that may be another kprobe's.
func (m *File) Set64(off int64, v uint64) error {
	if m.Mem != nil {
		m.Store64(off, v)
		return nil
	}
	if err := m.proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, v), m.Addr(off)); err != nil {
		return fmt.Errorf("write the memory file: %w", err)
	}
	return nil
}

// Get64 is Load64, of a file that may be another kprobe's.
func (m *File) Get64(off int64) (uint64, error) {
	if m.Mem != nil {
		return m.Load64(off), nil
	}
	var b [8]byte
	if _, err := m.ReadAt(b[:], off); err != nil {
		return 0, fmt.Errorf("read the memory file: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// ReadAt implements io.ReaderAt: through the mapping here, or else the target's.
func (m *File) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 || uint64(off) >= m.size {
		return 0, io.EOF
	}
	want := b[:min(uint64(len(b)), m.size-uint64(off))]
	if m.Mem != nil {
		n = copy(want, m.Mem[off:])
	} else {
		n, err = m.proc.ReadMemory(want, m.Addr(off))
	}
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

// Add64 adds to a word that others may be changing.
func (m *File) Add64(off int64, n uint64) { atomic.AddUint64(m.word(off), n) }

// Update64 makes a word that others may be changing what next gives for it, and gives what
// it was.
func (m *File) Update64(off int64, next func(was uint64) uint64) (was uint64) {
	w := m.word(off)
	for {
		was = atomic.LoadUint64(w)
		if atomic.CompareAndSwapUint64(w, was, next(was)) {
			return was
		}
	}
}

// Load32 reads a word of 4 bytes that others may be writing.
func (m *File) Load32(off int64) uint32 { return atomic.LoadUint32(m.half(off)) }

// Store32 stores a word of 4 bytes.
func (m *File) Store32(off int64, v uint32) { atomic.StoreUint32(m.half(off), v) }

// Open finds the file of another kprobe where it is mapped in a process, and reads
// it through the process's memory. It is nil if nothing was written to it yet.
func Open(p *tracee.Process, at *symbols.Mapping) (*File, *ring.Header, error) {
	m := &File{proc: p, Base: at.Start, size: uint64(at.End - at.Start)}
	if magic, err := m.Get64(0); err == nil && magic == 0 {
		return nil, nil, nil
	}
	h, layout, err := ring.ReadHeader(m, PossibleCPUs())
	if err != nil {
		return nil, nil, fmt.Errorf("what an earlier kprobe left can't be read: %w", err)
	}
	m.Layout = layout
	return m, h, nil
}

// In gives the same file where a child of fork has it mapped.
func (m *File) In(child *tracee.Process) *File {
	out := *m
	out.proc = child
	return &out
}

// MoveTo has the file be reached through another process that shares the memory.
func (m *File) MoveTo(p *tracee.Process) { m.proc = p }

// Unmap takes the file out of the target.
func (m *File) Unmap(ctx context.Context) error { return Munmap(ctx, m.proc, m.Base, m.size) }
