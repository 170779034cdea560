package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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

// memfile is the memory file of a target (probe/ring describes its contents):
// mapped shared in the target at base, and here as bytes. It is made by the
// target itself, by injected system calls, so that it needs no path that both
// can open, and no descriptor stays open in the target.
//
// Used on the tracer thread only; other processes read the file through /proc.
type memfile struct {
	proc   *tracee.Process
	layout *ring.Layout
	base   symbols.Addr // of the mapping in the target, sections up to Code
	size   uint64       // of that mapping
	mem    []byte       // our mapping of the same bytes; nil of another kprobe's file
	own    *mapped      // of mem
}

// mapped is memory that is mapped here until the garbage collector finds that nothing
// refers to it any more: the counters of a session are asked for after its end. Whoever
// uses the memory holds it.
type mapped struct{ mem []byte }

func newMapped(mem []byte) *mapped {
	m := &mapped{mem}
	// It fails for what isn't mapped, only.
	runtime.AddCleanup(m, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return m
}

// newMemfile creates the file in the process and maps it on both sides. On an
// error nothing stays mapped or open.
func newMemfile(ctx context.Context, p *tracee.Process, layout *ring.Layout) (m *memfile, err error) {
	size := uint64(layout.Code.Off)
	fd, err := p.SyscallString(ctx, nil, unix.SYS_MEMFD_CREATE, ring.MemfdName, unix.MFD_CLOEXEC)
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("create the memory file: process %d has as many files open as it may: %w; prlimit --pid %[1]d --nofile=N raises its limit", p.PID(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("create the memory file: %w", err)
	}
	defer func() {
		if _, cerr := p.Syscall(ctx, nil, unix.SYS_CLOSE, fd); cerr != nil && err == nil {
			err = fmt.Errorf("close the memory file in the target: %w", cerr)
		}
	}()
	f, err := os.OpenFile(procfs.Image(p.PID()).Path("fd/"+strconv.Itoa(int(fd))), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the memory file: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, fmt.Errorf("size the memory file: %w", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory file: %w", err)
	}
	at, err := p.Syscall(ctx, nil, unix.SYS_MMAP, 0, uintptr(size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd, 0)
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, fmt.Errorf("map the memory file in the target: %w", err)
	}
	return &memfile{proc: p, layout: layout, base: symbols.Addr(at), size: size, mem: mem, own: newMapped(mem)}, nil
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

// isMemfile reports whether a mapping is that of a memory file, as far as its
// name, its device and its start tell: the program can make such a one.
func isMemfile(m *symbols.Mapping) bool {
	if m.Path != "/memfd:"+ring.MemfdName || m.Off != 0 {
		return false
	}
	major, minor := memfdDevice()
	return major == 0 && minor == 0 || m.Deleted && m.Major == major && m.Minor == minor
}

// addr is the address in the target of an offset in the file.
func (m *memfile) addr(off int64) symbols.Addr { return m.base + symbols.Addr(off) }

// load64 reads a word that others may be writing.
func (m *memfile) load64(off int64) uint64 { return atomic.LoadUint64(m.word(off)) }

// store64 stores a word in one piece; stores become visible in their order.
func (m *memfile) store64(off int64, v uint64) { atomic.StoreUint64(m.word(off), v) }

// set64 is store64, of a file that may be another kprobe's.
func (m *memfile) set64(off int64, v uint64) error {
	if m.mem != nil {
		m.store64(off, v)
		return nil
	}
	if err := m.proc.WriteMemory(put64(v), m.addr(off)); err != nil {
		return fmt.Errorf("write the memory file: %w", err)
	}
	return nil
}

// get64 is load64, of a file that may be another kprobe's.
func (m *memfile) get64(off int64) (uint64, error) {
	if m.mem != nil {
		return m.load64(off), nil
	}
	var b [8]byte
	if _, err := m.ReadAt(b[:], off); err != nil {
		return 0, fmt.Errorf("read the memory file: %w", err)
	}
	return le64(b[:]), nil
}

// ReadAt implements io.ReaderAt: through the mapping here, or else the target's.
func (m *memfile) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 || uint64(off) >= m.size {
		return 0, io.EOF
	}
	want := b[:min(uint64(len(b)), m.size-uint64(off))]
	if m.mem != nil {
		n = copy(want, m.mem[off:])
	} else {
		n, err = m.proc.ReadMemory(want, m.addr(off))
	}
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

// add64 adds to a word that others may be changing.
func (m *memfile) add64(off int64, n uint64) { atomic.AddUint64(m.word(off), n) }

// load32 and store32 are the same for words of 4 bytes.
func (m *memfile) load32(off int64) uint32 { return atomic.LoadUint32(m.half(off)) }

func (m *memfile) store32(off int64, v uint32) { atomic.StoreUint32(m.half(off), v) }

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func put64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
