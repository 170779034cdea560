//go:build linux && amd64

package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

const pageSize = 4096

// ReadMemory fills b from address at; see symbols.Memory. The process need not be stopped. Any
// goroutine may call it. The error is syscall.EFAULT for memory that can't be read, and ErrGone
// for a process that has ended. For a page that the program fills itself, and hasn't filled
// yet, the error is also symbols.ErrLatePage.
func (p *Process) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, e := p.read(b, uint64(at))
	return p.readRest(b, at, n, e)
}

// ReadOwn is ReadMemory for private memory that kprobe has mapped in the process, not from a
// file. It waits longer for pages that aren't there yet.
func (p *Process) ReadOwn(b []byte, at symbols.Addr) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, e := p.readPatiently(b, uint64(at), ownPatience)
	return p.readRest(b, at, n, e)
}

// ReadTouched is ReadMemory for memory that a stopped thread touched with its last instruction:
// a return address that was just pushed or popped. It doesn't check whether the page is there,
// which costs half as much as the read.
func (p *Process) ReadTouched(b []byte, at symbols.Addr) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, e := p.vmRead(b, uint64(at))
	return p.readRest(b, at, n, e)
}

// late is the error for a page that did not arrive.
func (p *Process) late(at symbols.Addr) error {
	return fmt.Errorf("read memory of process %d at %v: %w: %w", p.pid, at, symbols.ErrLatePage, syscall.EFAULT)
}

// readRest continues ReadMemory after process_vm_readv has read n bytes.
func (p *Process) readRest(b []byte, at symbols.Addr, n int, e syscall.Errno) (int, error) {
	if n == len(b) {
		return n, nil
	}
	switch e {
	case syscall.ESRCH:
		return 0, fmt.Errorf("read memory of process %d: %w", p.pid, ErrGone)
	case errLatePage:
		return 0, p.late(at)
	case syscall.EFAULT, 0:
		// process_vm_readv reads an iovec completely or not at all if it can't pin a page, and
		// refuses execute-only memory. /proc/PID/mem reads both.
	}
	m, err := p.readMem(b[n:], at+symbols.Addr(n))
	n += m
	if n == len(b) {
		return n, nil
	}
	return n, err
}

func (p *Process) vmRead(b []byte, at uint64) (int, syscall.Errno) {
	return vmReadLiving(p.pid, b, at)
}

// vmReadLiving is process_vm_readv for a process whose first thread may have ended.
func vmReadLiving(pid int, b []byte, at uint64) (int, syscall.Errno) {
	n, e := vmRead(pid, b, at)
	if e == syscall.ESRCH {
		if tid := procfs.Living(pid); tid != pid {
			return vmRead(tid, b, at)
		}
	}
	return n, e
}

// Loads is the process's memory as its own loads see it. Memory that it has made unreadable
// (PROT_NONE) is syscall.EFAULT, although a tracer could read it.
type Loads struct{ *Process }

// lowest is below every address that a process can map (vm.mmap_min_addr).
const lowest = 4096

// ReadMemory is Process.ReadMemory for what loads can read.
func (l Loads) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	n, e := l.read(b, uint64(at))
	if n == len(b) {
		return n, nil
	}
	if e == errLatePage {
		return 0, l.late(at)
	}
	if e != 0 && e != syscall.EFAULT {
		return l.Process.ReadMemory(b, at) // gone, or the call is forbidden
	}
	// The call reads an iovec completely or not at all, so read page by page.
	for n < len(b) {
		a := uint64(at) + uint64(n)
		step := min(len(b)-n, int(pageSize-a%pageSize))
		if m, _ := l.read(b[n:n+step], a); m < step {
			if !l.executeOnly(a) {
				return n + m, fmt.Errorf("read memory of process %d at %#x: %w", l.pid, a, syscall.EFAULT)
			}
			if m, err := l.readMem(b[n:n+step], symbols.Addr(a)); err != nil {
				return n + m, err
			}
		}
		n += step
	}
	return n, nil
}

// protectionKeys says that the kernel makes execute-only memory unreadable
// (pkeys(7)).
func protectionKeys() bool { return procfs.CPUHas("ospke") }

// executeOnly reports whether memory is executable and not readable. Without protection keys
// loads can still read it; the tracer can only by /proc/PID/mem.
func (l Loads) executeOnly(a uint64) bool {
	if a < lowest || a >= 1<<47 || protectionKeys() {
		return false
	}
	maps, _ := readMaps(l.pid) // none of a process that is gone
	for i := range maps {
		if m := &maps[i]; m.Contains(symbols.Addr(a)) {
			return m.Exec && !m.Read
		}
	}
	return false
}

// readMem reads from /proc/PID/mem, page by page, so that it finds what lies before a hole.
func (p *Process) readMem(b []byte, at symbols.Addr) (int, error) {
	f, err := p.memFile()
	if err != nil {
		return 0, err
	}
	n := 0
	for n < len(b) {
		a := uint64(at) + uint64(n)
		if a >= 1<<63 {
			return n, fmt.Errorf("read memory of process %d at %#x: %w", p.pid, a, syscall.EFAULT)
		}
		step := min(len(b)-n, int(pageSize-a%pageSize))
		m, err := f.ReadAt(b[n:n+step], int64(a))
		n += m
		if m < step {
			if errors.Is(err, os.ErrClosed) || m == 0 && err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EFAULT) {
				return n, fmt.Errorf("read memory of process %d: %w", p.pid, ErrGone)
			}
			return n, fmt.Errorf("read memory of process %d at %#x: %w", p.pid, a, syscall.EFAULT)
		}
	}
	return n, nil
}

func (p *Process) memFile() (*os.File, error) {
	p.memMu.Lock()
	defer p.memMu.Unlock()
	if p.mem != nil {
		return p.mem, nil
	}
	if p.gone.Load() {
		return nil, fmt.Errorf("memory of process %d: %w", p.pid, ErrGone)
	}
	f, err := os.OpenFile(procfs.Image(p.pid).Path("mem"), os.O_RDWR, 0)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("memory of process %d: %w", p.pid, ErrGone)
		}
		return nil, fmt.Errorf("memory of process %d: %w", p.pid, err)
	}
	p.mem = f
	return f, nil
}

// WriteMemory writes b to address at, ignoring page protections. A read-only private page
// becomes a private copy, as with a debugger's breakpoint. WriteMemory reads back what it
// wrote, and fails if that differs. If the kernel forbids forced writes through /proc, it needs
// a stopped thread. On an error some of b may have been written. Forked children that
// Handler.Fork hasn't been told about yet get the same bytes.
func (p *Process) WriteMemory(b []byte, at symbols.Addr) error {
	if len(b) == 0 {
		return nil
	}
	if err := p.asks(Request{Kind: RequestWrite, Addr: at, Len: len(b)}); err != nil {
		return fmt.Errorf("write %d bytes of process %d at %v: %w", len(b), p.pid, at, err)
	}
	f, err := p.memFile()
	if err != nil {
		return err
	}
	if uint64(at) >= 1<<63 {
		return fmt.Errorf("write memory of process %d at %v: %w", p.pid, at, syscall.EFAULT)
	}
	step()
	if _, err = f.WriteAt(b, int64(at)); err != nil {
		if perr := p.poke(b, at); perr != nil {
			if errors.Is(perr, ErrGone) {
				err = ErrGone
			}
			return fmt.Errorf("write %d bytes of process %d at %v: %w", len(b), p.pid, at, err)
		}
	}
	if err := p.verify(b, at); err != nil {
		return err
	}
	p.tr.unborn.write(p, b, at)
	return nil
}

// readBack are buffers for what verify reads.
var readBack = sync.Pool{New: func() any { return new([16 * pageSize]byte) }}

// verify returns an error if the process's memory doesn't have what was written there.
func (p *Process) verify(b []byte, at symbols.Addr) error {
	buf := readBack.Get().(*[16 * pageSize]byte)
	defer readBack.Put(buf)
	for off := 0; off < len(b); {
		part := b[off:min(off+len(buf), len(b))]
		back := buf[:len(part)]
		if _, err := p.ReadMemory(back, at+symbols.Addr(off)); err != nil {
			return fmt.Errorf("verify what was written: %w", err)
		}
		if !bytes.Equal(back, part) {
			return fmt.Errorf("write %d bytes of process %d at %v: memory reads differently: %w", len(b), p.pid, at, syscall.EIO)
		}
		off += len(part)
	}
	return nil
}

// poke writes word by word with PTRACE_POKEDATA from a stopped thread.
func (p *Process) poke(b []byte, at symbols.Addr) error {
	var th *Thread
	for _, t := range p.threads {
		if t.Stopped() {
			th = t
			break
		}
	}
	if th == nil {
		return ErrRunning
	}
	a, end := uint64(at)&^7, uint64(at)+uint64(len(b))
	for ; a < end; a += 8 {
		w, e := peek(th.tid, a)
		if e != 0 {
			return th.failed("peekdata", e)
		}
		for i := uint64(0); i < 8; i++ {
			if q := a + i; q >= uint64(at) && q < end {
				w = w&^(0xff<<(8*i)) | uint64(b[q-uint64(at)])<<(8*i)
			}
		}
		if e := poke(th.tid, a, w); e != 0 {
			return th.failed("pokedata", e)
		}
	}
	return nil
}
