//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"fmt"

	"kprobe/symbols"
)

// Offsets in struct rseq and struct rseq_cs (include/uapi/linux/rseq.h).
const (
	rseqCPU      = 4
	rseqCS       = 8
	rseqCSSize   = 32
	csStart      = 8
	csLength     = 16
	csAbort      = 24
	rseqUnlinked = 0
)

// rseqArea returns the address of the thread's rseq area; 0 is none. It is asked for at stops,
// until there is one.
func (t *Thread) rseqArea() uint64 {
	if t.rseq == 0 && t.stopped {
		t.rseq, _ = t.RseqArea()
	}
	return t.rseq
}

// RseqArea returns the address of the rseq area (struct rseq) that the stopped thread has
// registered, and its signature. The address is 0 if the thread has none, or if the kernel
// doesn't tell (before Linux 5.13).
func (t *Thread) RseqArea() (addr uint64, signature uint32) {
	var c rseqConfiguration
	if !t.stopped || getRseq(t.tid, &c) != 0 {
		return 0, 0
	}
	return c.Pointer, c.Signature
}

// EndSequence ends the stopped thread's restartable sequence, if its description lies where in
// says, because the thread's registers were led out of it or will be. Otherwise the kernel
// would find that out when the thread runs on, and read the description, which would have to
// exist until then. If the thread is in no such sequence, nothing changes.
func (t *Thread) EndSequence(in func(symbols.Addr) bool) error {
	area := t.rseqArea()
	if area == 0 {
		return nil
	}
	var p [8]byte
	if _, err := t.p.ReadMemory(p[:], symbols.Addr(area+rseqCS)); err != nil {
		return nil // the thread has unmapped its area
	}
	if at := binary.LittleEndian.Uint64(p[:]); at == 0 || !in(symbols.Addr(at)) {
		return nil
	}
	if err := t.p.WriteMemory(make([]byte, len(p)), symbols.Addr(area+rseqCS)); err != nil {
		return fmt.Errorf("thread %d: end its restartable sequence: %w", t.tid, err)
	}
	return nil
}

// abortedSequence returns where the stopped thread, whose instruction pointer is ip, will
// continue if that is in the middle of a restartable sequence.
//
// The stop has interrupted the sequence, so the kernel would lead the thread to the abort
// handler. But it checks where the thread is when it runs on. If that were in an injected call,
// the kernel would take the sequence for finished, and the thread would later commit what other
// threads have changed meanwhile (kernel/rseq.c, rseq_ip_fixup).
func (t *Thread) abortedSequence(ip uint64) (to uint64, ok bool) {
	area := t.rseqArea()
	if area == 0 {
		return 0, false
	}
	le := binary.LittleEndian
	var p [8]byte
	if _, err := t.p.ReadMemory(p[:], symbols.Addr(area+rseqCS)); err != nil || le.Uint64(p[:]) == 0 {
		return 0, false
	}
	var cs [rseqCSSize]byte
	if _, err := t.p.ReadMemory(cs[:], symbols.Addr(le.Uint64(p[:]))); err != nil {
		return 0, false // the kernel will raise SIGSEGV for it
	}
	if ip-le.Uint64(cs[csStart:]) >= le.Uint64(cs[csLength:]) {
		return 0, false
	}
	return le.Uint64(cs[csAbort:]), true
}
