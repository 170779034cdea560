//go:build linux && amd64

package tracee

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/symbols"
)

// ownMemory maps n bytes into the test's own process, which reads itself as it
// would read another, and gives them with their address.
func ownMemory(t *testing.T, n int) (*Process, []byte, uint64) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{pid: os.Getpid()}
	t.Cleanup(func() { p.closeMem(); _ = unix.Munmap(b) })
	return p, b, uint64(uintptr(unsafe.Pointer(&b[0])))
}

// noMemory is an address at which nothing is.
const noMemory = 0x1000

// TestBegun finds what a wait began as that will be made anew: from what the
// thread's registers show, from what was seen of it before, or from the number
// that the instructions before it load.
func TestBegun(t *testing.T) {
	p, b, base := ownMemory(t, 2*pageSize)
	const off = 256 // of the system call's instruction
	at := base + off
	const restarted, none = unix.SYS_RESTART_SYSCALL, -1
	for _, c := range []struct {
		name     string
		code     string // before the instruction that makes the call
		rax      int64
		orig     int64
		rip      uint64
		seenIn   uint64 // what was seen before at the same place
		wantRax  int64
		wantOrig int64
		ok       bool
	}{
		{"none", "", 0, none, at, 0, 0, none, true},
		{"a first time", "", erestartRestartblock, unix.SYS_NANOSLEEP, at + 2, 0, erestartRestartblock, unix.SYS_NANOSLEEP, true},
		{"again, by the number before", "\xb8\xe6\x00\x00\x00", erestartRestartblock, restarted, at + 2, 0, erestartRestartblock, unix.SYS_CLOCK_NANOSLEEP, true},
		{"again, by the nearest number", "\xb8\x23\x00\x00\x00\x90\xb8\x07\x00\x00\x00\x90\x90", erestartRestartblock, restarted, at + 2, 0, erestartRestartblock, unix.SYS_POLL, true},
		{"again, as it was seen", "\xb8\xe6\x00\x00\x00", erestartRestartblock, restarted, at + 2, unix.SYS_FUTEX, erestartRestartblock, unix.SYS_FUTEX, true},
		{"again, seen something that doesn't wait", "\xb8\xe6\x00\x00\x00", erestartRestartblock, restarted, at + 2, unix.SYS_READ, erestartRestartblock, unix.SYS_CLOCK_NANOSLEEP, true},
		{"again, the number by r9d", "\x41\xb9\xca\x00\x00\x00\x44\x89\xc8", erestartRestartblock, restarted, at + 2, 0, erestartRestartblock, unix.SYS_FUTEX, true},
		{"again, by ecx alone", "\xb9\xca\x00\x00\x00", erestartRestartblock, restarted, at + 2, 0, erestartRestartblock, restarted, false},
		{"again, only a number that doesn't wait", "\xb8\x01\x00\x00\x00", erestartRestartblock, restarted, at + 2, 0, erestartRestartblock, restarted, false},
		{"again, no number", "", erestartRestartblock, restarted, at + 2, 0, erestartRestartblock, restarted, false},
		{"again, nowhere", "", erestartRestartblock, restarted, noMemory, 0, erestartRestartblock, restarted, false},
		{"before the call, told by the kernel", "", restarted, unix.SYS_POLL, at, 0, unix.SYS_POLL, unix.SYS_POLL, true},
		{"before the call, by the number", "\xb8\xe6\x00\x00\x00", restarted, none, at, 0, unix.SYS_CLOCK_NANOSLEEP, none, true},
		{"before the call, no number", "", restarted, none, at, 0, restarted, none, false},
		{"the number by chance", "\xb8\xe6\x00\x00\x00", restarted, none, at + 2, 0, restarted, none, true},
	} {
		clear(b)
		copy(b[off-len(c.code):], c.code)
		copy(b[off:], "\x0f\x05")
		th := &Thread{p: p}
		if c.seenIn != 0 {
			th.waitsIn, th.waitsIP = c.seenIn, at
		}
		regs := unix.PtraceRegs{Rax: negative(c.rax), Orig_rax: negative(c.orig), Rip: c.rip, Rbx: 77}
		got, ok := th.begun(&regs)
		want := regs
		want.Rax, want.Orig_rax = negative(c.wantRax), negative(c.wantOrig)
		if got != want || ok != c.ok {
			t.Errorf("%s: rax %d, orig_rax %d, %v; want %d, %d, %v", c.name, int64(got.Rax), int64(got.Orig_rax), ok, c.wantRax, c.wantOrig, c.ok)
		}
	}
}

// TestThreadStack tells the stack of a thread library from memory that stacks are
// cut out of.
func TestThreadStack(t *testing.T) {
	p, b, base := ownMemory(t, 4*pageSize)
	const tcb = 3*pageSize + 64
	*(*uint64)(unsafe.Pointer(&b[tcb])) = base + tcb
	stack := symbols.Mapping{Start: symbols.Addr(base), End: symbols.Addr(base + 4*pageSize), Read: true, Write: true}
	guard := symbols.Mapping{Start: symbols.Addr(base - pageSize), End: symbols.Addr(base)}
	regs := unix.PtraceRegs{Rsp: base + pageSize, Fs_base: base + tcb}
	if !p.threadStack(&guard, &stack, &regs) {
		t.Error("a thread's stack isn't known")
	}
	for name, change := range map[string]func(g, m *symbols.Mapping, r *unix.PtraceRegs){
		"no guard":                  func(g, _ *symbols.Mapping, _ *unix.PtraceRegs) { g.Read = true },
		"a guard that can be run":   func(g, _ *symbols.Mapping, _ *unix.PtraceRegs) { g.Exec = true },
		"a guard that is written":   func(g, _ *symbols.Mapping, _ *unix.PtraceRegs) { g.Write = true },
		"a guard elsewhere":         func(g, _ *symbols.Mapping, _ *unix.PtraceRegs) { g.End -= pageSize },
		"the block below the stack": func(_, _ *symbols.Mapping, r *unix.PtraceRegs) { r.Rsp = base + tcb },
		"the block behind it":       func(_, m *symbols.Mapping, _ *unix.PtraceRegs) { m.End = symbols.Addr(base + tcb) },
		"no block":                  func(_, _ *symbols.Mapping, r *unix.PtraceRegs) { r.Fs_base += 8 },
	} {
		g, m, r := guard, stack, regs
		change(&g, &m, &r)
		if p.threadStack(&g, &m, &r) {
			t.Errorf("%s: taken for a thread's stack", name)
		}
	}
}

// elfHeader writes the header of an ELF file with loaded segments into b.
func elfHeader(b []byte, segments ...[3]uint64) {
	clear(b)
	copy(b, "\x7fELF\x02")
	put := func(off int, v uint64, size int) {
		for i := range size {
			b[off+i] = byte(v >> (8 * i))
		}
	}
	put(32, 64, 8)
	put(54, 56, 2)
	put(56, uint64(len(segments)), 2)
	for i, s := range segments {
		h := 64 + 56*i
		put(h, 1, 4)       // PT_LOAD
		put(h+8, s[0], 8)  // p_offset
		put(h+16, s[1], 8) // p_vaddr
		put(h+40, s[2], 8) // p_memsz
	}
}

// TestSegmentEnd reads where a segment ends, and nothing from headers that are
// none.
func TestSegmentEnd(t *testing.T) {
	p, b, base := ownMemory(t, 4*pageSize)
	text := symbols.Mapping{Start: symbols.Addr(base + pageSize), End: symbols.Addr(base + 3*pageSize)}
	for _, link := range []uint64{0, 0x400000} { // position independent, and not
		elfHeader(b, [3]uint64{0, link, 0x800}, [3]uint64{pageSize, link + pageSize, pageSize + 0x234})
		if end, ok := p.segmentEnd(base, &text); !ok || end != base+2*pageSize+0x234 {
			t.Errorf("linked at %#x: the segment ends at %#x, %v", link, end-base, ok)
		}
	}
	other := symbols.Mapping{Start: text.Start, End: text.End - pageSize}
	if end, ok := p.segmentEnd(base, &other); ok {
		t.Errorf("a mapping that is no segment's ends at %#x", end)
	}
	for name, change := range map[string]func(){
		"no ELF file":             func() { b[1] = 'F' },
		"of 32 bits":              func() { b[4] = 1 },
		"entries of another size": func() { b[54] = 32 },
		"no entry":                func() { b[56] = 0 },
		"many entries":            func() { b[56] = 65 },
		"entries far away":        func() { b[33] = 0x20 },
		"none at the start":       func() { b[64+8] = 1 },
		"none is loaded":          func() { b[64], b[64+56] = 6, 6 },
	} {
		elfHeader(b, [3]uint64{0, 0, 0x800}, [3]uint64{pageSize, pageSize, pageSize + 0x234})
		change()
		if end, ok := p.segmentEnd(base, &text); ok {
			t.Errorf("%s: the segment ends at %#x", name, end-base)
		}
	}
	if _, ok := p.segmentEnd(noMemory, &text); ok {
		t.Error("a header that can't be read has a segment")
	}
}

// TestModuleBase finds the header of the same file, before the mapping.
func TestModuleBase(t *testing.T) {
	maps := []symbols.Mapping{
		{Start: 0x1000, Inode: 7, Major: 8, Minor: 1},
		{Start: 0x2000, Inode: 7, Major: 8, Minor: 2},
		{Start: 0x3000, Inode: 9, Major: 8, Minor: 1},
		{Start: 0x4000, Inode: 7, Major: 8, Minor: 1, Off: 0x1000},
		{Start: 0x5000, Inode: 7, Major: 8, Minor: 2, Off: 0x2000},
		{Start: 0x6000, Inode: 5, Major: 8, Minor: 1, Off: 0x2000},
		{Start: 0x7000, Inode: 5, Major: 8, Minor: 1},
	}
	for i, want := range []uint64{0x1000, 0x2000, 0x3000, 0x1000, 0x2000, 0, 0x7000} {
		if base, ok := moduleBase(maps, &maps[i]); base != want || ok != (want != 0) {
			t.Errorf("the header of the mapping at %v is at %#x (%v), want %#x", maps[i].Start, base, ok, want)
		}
	}
}

// TestPlaceOnStack: what an injected call leaves alone of a thread's stack, and
// when it takes another place.
func TestPlaceOnStack(t *testing.T) {
	p, b, base := ownMemory(t, 64*pageSize)
	const size = 2900
	stack := []symbols.Mapping{{Start: symbols.Addr(base), End: symbols.Addr(base + 64*pageSize), Read: true, Write: true, Path: "[stack]"}}
	for _, c := range []struct {
		name string
		rsp  uint64
		own  bool
	}{
		{"high on the stack", base + 60*pageSize, true},
		{"in what is lent", base + 10*pageSize, false},
		{"on no stack", base - 8, false},
	} {
		var r room
		if !p.findStack(&r, stack, &unix.PtraceRegs{Rsp: c.rsp}, size) {
			t.Fatalf("%s: no place", c.name)
		}
		end := r.buffer + bufferSize
		switch {
		case r.base%frameAlign != 0 || r.buffer < r.base+size:
			t.Errorf("%s: the image at %#x, the buffer at %#x", c.name, r.base-base, r.buffer-base)
		case c.own && (r.wipe || end > c.rsp-redZone || r.base < c.rsp-redZone-4*pageSize):
			t.Errorf("%s: %#x to %#x is used, far from %#x or in its red zone", c.name, r.base-base, end-base, c.rsp-base)
		case !c.own && (!r.wipe || end > borrowed(&stack[0]) || r.base < base+stackBelow):
			t.Errorf("%s: %#x to %#x is used", c.name, r.base-base, end-base)
		}
	}
	// A stack without a byte that was never used.
	for off := 0; off < len(b); off += pageSize {
		b[off] = 1
	}
	for _, c := range []struct {
		rsp uint64
		ok  bool
	}{{base + 60*pageSize, true}, {base + 20*pageSize, true}, {base + 4*pageSize, true}, {base + pageSize, false}, {base - 8, false}} {
		var r room
		ok := p.findStack(&r, stack, &unix.PtraceRegs{Rsp: c.rsp}, size)
		if ok != c.ok || ok && (r.wipe || r.base < base || r.buffer+bufferSize > c.rsp-redZone) {
			t.Errorf("on a stack that is used up, at %#x: %v, the image at %#x", c.rsp-base, ok, r.base-base)
		}
	}
	for name, change := range map[string]func(m *symbols.Mapping){
		"too small":        func(m *symbols.Mapping) { m.End = m.Start + 4*stackBelow - pageSize },
		"read-only":        func(m *symbols.Mapping) { m.Write = false },
		"not the first's":  func(m *symbols.Mapping) { m.Path = "" },
		"can't be read at": func(m *symbols.Mapping) { m.Start, m.End = noMemory, noMemory+64*pageSize },
	} {
		m := stack[0]
		change(&m)
		var r room
		if p.findStack(&r, []symbols.Mapping{m}, &unix.PtraceRegs{}, size) {
			t.Errorf("%s: a place at %#x", name, r.base-base)
		}
	}
}
