package inside

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/go-delve/delve/pkg/dwarf/regnum"
	"golang.org/x/sys/unix"

	"kprobe/probe/results"
	"kprobe/symbols/unwind"
)

// How threads that run are looked at
//
// The kernel samples them by a clock that goes while they run: their registers and the
// innermost bytes of their stack (perf_event_open(2), PERF_SAMPLE_REGS_USER and
// PERF_SAMPLE_STACK_USER). That neither stops nor signals anybody.

const (
	samplesWanted = 8
	samplePeriod  = 4_000_000 // ns of the thread's time
	sampleStack   = 16 << 10  // bytes, of each sample
	samplePages   = 64        // of the kernel's buffer: a power of two
	sampleAtOnce  = 4         // threads; the buffers are locked memory
)

// sampleRegs is what the kernel gives, in the order of its numbers
// (arch/x86/include/uapi/asm/perf_regs.h): ax, bx, cx, dx, si, di, bp, sp, ip and r8
// to r15.
const sampleRegs = 0x1ff | 0xff<<16

var sampleOrder = [...]int{
	regnum.AMD64_Rax, regnum.AMD64_Rbx, regnum.AMD64_Rcx, regnum.AMD64_Rdx, regnum.AMD64_Rsi, regnum.AMD64_Rdi, regnum.AMD64_Rbp, unwind.SP, unwind.PC,
	regnum.AMD64_R8, regnum.AMD64_R9, regnum.AMD64_R10, regnum.AMD64_R11, regnum.AMD64_R12, regnum.AMD64_R13, regnum.AMD64_R14, regnum.AMD64_R15,
}

// patience is how long threads that run are waited for, until each has been sampled.
const patience = 300 * time.Millisecond

// sampleAll samples threads that run, some at a time. The error says why none can be.
func (l *looker) sampleAll(ctx context.Context, list []*results.InsideThread) error {
	for len(list) > 0 && ctx.Err() == nil {
		some := list[:min(len(list), sampleAtOnce)]
		list = list[len(some):]
		if err := l.sampleSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (l *looker) sampleSome(ctx context.Context, list []*results.InsideThread) error {
	var open []*sampler
	defer func() {
		for _, s := range open {
			s.close()
		}
	}()
	for _, t := range list {
		s, err := newSampler(t)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			return &NotSampledError{err}
		}
		open = append(open, s)
	}
	for until := time.Now().Add(patience); time.Now().Before(until) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		waiting := false
		for _, s := range open {
			s.take(l)
			waiting = waiting || len(s.stacks) < samplesWanted
		}
		if !waiting {
			break
		}
	}
	for _, s := range open {
		s.tell(l)
	}
	return nil
}

// sampler is the samples of a thread.
type sampler struct {
	t      *results.InsideThread
	fd     int
	mem    []byte
	stacks [][]results.InsideFrame
}

func newSampler(t *results.InsideThread) (*sampler, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Sample: samplePeriod,
		Sample_type:      unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user: sampleRegs, Sample_stack_user: sampleStack,
		Bits: unix.PerfBitExcludeHv,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	// The kernel's part counts, too, where it may: a thread may be in system calls mostly.
	fd, err := unix.PerfEventOpen(&attr, t.TID, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == unix.EACCES || err == unix.EPERM {
		attr.Bits |= unix.PerfBitExcludeKernel
		fd, err = unix.PerfEventOpen(&attr, t.TID, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, (1+samplePages)*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &sampler{t: t, fd: fd, mem: mem}, nil
}

func (s *sampler) close() {
	_ = unix.Munmap(s.mem)
	_ = unix.Close(s.fd)
}

// take reads the samples that have come.
func (s *sampler) take(l *looker) {
	page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&s.mem[0]))
	head, tail := atomic.LoadUint64(&page.Data_head), page.Data_tail
	data := s.mem[4096:]
	at := func(pos uint64, n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = data[(pos+uint64(i))%uint64(len(data))]
		}
		return b
	}
	for head-tail >= 8 && head-tail <= uint64(len(data)) {
		h := at(tail, 8)
		typ, size := binary.LittleEndian.Uint32(h), int(binary.LittleEndian.Uint16(h[6:]))
		if size < 8 || uint64(size) > head-tail {
			break
		}
		if typ == unix.PERF_RECORD_SAMPLE && len(s.stacks) < samplesWanted {
			s.sample(l, at(tail+8, size-8))
		}
		tail += uint64(size)
	}
	atomic.StoreUint64(&page.Data_tail, tail)
}

// sample takes one sample: u64 abi, registers, u64 size, the stack, u64 what of it is
// there.
func (s *sampler) sample(l *looker, b []byte) {
	le := binary.LittleEndian
	if len(b) < 8*(2+len(sampleOrder)) || le.Uint64(b) != 2 { // PERF_SAMPLE_REGS_ABI_64
		return
	}
	var r unwind.Regs
	for i, n := range sampleOrder {
		r.Set(n, le.Uint64(b[8+8*i:]))
	}
	b = b[8*(1+len(sampleOrder)):]
	size := le.Uint64(b)
	if b = b[8:]; size > uint64(len(b)) || size+8 > uint64(len(b)) {
		return
	}
	stack := b[:min(size, le.Uint64(b[size:]))]
	frames, end := l.walk(r, &unwind.Stack{Base: r.V[unwind.SP], Bytes: stack})
	s.t.End = end
	s.stacks = append(s.stacks, frames)
}

// tell gives the thread what its samples have in common, and what they were in.
func (s *sampler) tell(l *looker) {
	t := s.t
	if t.Samples = len(s.stacks); t.Samples == 0 {
		return
	}
	common := s.stacks[0]
	for _, f := range s.stacks[1:] {
		n := 0 // of frames, from the outermost
		for n < len(f) && n < len(common) && sameFunction(&f[len(f)-1-n], &common[len(common)-1-n]) {
			n++
		}
		common = common[len(common)-n:]
	}
	t.Frames = common
	l.mark(t)
	times := map[string]int{}
	for _, f := range s.stacks {
		if len(f) > len(common) {
			times[f[0].Name]++
		}
	}
	for name, n := range times {
		t.Inner = append(t.Inner, results.FunctionCount{Name: name, Times: n})
	}
	slices.SortFunc(t.Inner, func(a, b results.FunctionCount) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Name, b.Name))
	})
}

// sameFunction reports whether two frames are of one call, as far as can be seen.
func sameFunction(a, b *results.InsideFrame) bool {
	return a.Name == b.Name && a.Slot == b.Slot && a.Inlined == b.Inlined
}

// NotSampledError says that threads that run can't be sampled.
type NotSampledError struct{ Err error }

// Error implements error.
func (e *NotSampledError) Error() string {
	return fmt.Sprintf("threads that run can't be sampled: %v; root may, and everybody with sysctl kernel.perf_event_paranoid=2 or less", e.Err)
}

// Unwrap gives the cause.
func (e *NotSampledError) Unwrap() error { return e.Err }
