//go:build linux && amd64

package tracee

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// stackMemory is a stack that begins at an address.
type stackMemory struct {
	at symbols.Addr
	b  []byte
}

func (m *stackMemory) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	if at < m.at || at >= m.at+symbols.Addr(len(m.b)) {
		return 0, syscall.EFAULT
	}
	n := copy(b, m.b[at-m.at:])
	if n < len(b) {
		return n, syscall.EFAULT
	}
	return n, nil
}

// put lays a frame as the kernel does: what a signal interrupted, and the
// alternate stack, if there is one.
func (m *stackMemory) put(at symbols.Addr, pc, sp, stack symbols.Addr, size uint64) {
	r := unix.PtraceRegs{Rip: uint64(pc), Rsp: uint64(sp), Eflags: 0x10246, Cs: 0x33, Ss: 0x2b, Orig_rax: negative(-1)}
	image, _ := buildFrame(0, &r, 0, make([]byte, xstateMin), 0)
	b := m.b[at-m.at:]
	copy(b, image[8:8+frameSize]) // buildFrame's frame lies 8 in
	flags := byte(0)
	if size == 0 {
		flags = 2 // SS_DISABLE
	}
	copy(b[ucStackFlags:], []byte{flags, 0, 0, 0})
	copy(b[ucOffset+16:], leBytes(uint64(stack)))
	copy(b[ucOffset+32:], leBytes(size))
}

func leBytes(v uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

// TestInterrupted looks for a copy at 0x5000 under the frames of signals.
func TestInterrupted(t *testing.T) {
	const base, low, copyAt = symbols.Addr(0x100000), symbols.Addr(0x100100), symbols.Addr(0x5000)
	for _, c := range []struct {
		name string
		put  func(m *stackMemory)
		want bool
	}{
		{"no frame", func(*stackMemory) {}, false},
		{"addresses alone", func(m *stackMemory) { copy(m.b[0x200:], leBytes(uint64(copyAt))) }, false},
		{"a frame of other code", func(m *stackMemory) { m.put(base+0x800, 0x7000, base+0xe00, 0, 0) }, false},
		{"a frame", func(m *stackMemory) { m.put(base+0x800, copyAt, base+0xe00, 0, 0) }, true},
		{"not aligned to 16", func(m *stackMemory) { m.put(base+0x808, copyAt, base+0xe00, 0, 0) }, true},
		{"below the stack pointer", func(m *stackMemory) { m.put(base, copyAt, base+0xe00, 0, 0) }, false},
		{"the outer of two", func(m *stackMemory) {
			m.put(base+0x400, 0x7000, base+0x700, 0, 0)
			m.put(base+0x900, copyAt, base+0xe00, 0, 0)
		}, true},
		{"on the alternate stack", func(m *stackMemory) { m.put(base+0x400, copyAt, 0x10, base, 0x1000) }, true},
		{"interrupted on another stack", func(m *stackMemory) {
			m.put(base+0x400, 0x7000, base+0x8000, base, 0x1000)
			m.put(base+0x8100, copyAt, base+0x9000, base, 0x1000)
		}, true},
		{"left over above the alternate stack", func(m *stackMemory) {
			m.put(base+0x400, 0x7000, 0x10, base, 0x1000)
			m.put(base+0x1800, copyAt, base+0x9000, 0, 0)
		}, false},
		{"another thread's alternate stack", func(m *stackMemory) { m.put(base+0x4400, copyAt, 0x10, base+0x4000, 0x1000) }, false},
		{"a frame of an int3", func(m *stackMemory) {
			m.put(base+0x800, copyAt, base+0xe00, 0, 0)
			copy(m.b[0x800+sigmaskOffset+8:], []byte{byte(syscall.SIGTRAP), 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0})
		}, false},
		{"frames in a ring", func(m *stackMemory) { m.put(base+0x400, 0x7000, low, 0, 0) }, false},
	} {
		m := &stackMemory{base, make([]byte, 0xa000)}
		c.put(m)
		got := interrupted(m, low, func(f *signalFrame) bool { return f.pc == copyAt && !f.trapped })
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
