//go:build linux && amd64

package tracee

import (
	"encoding/binary"

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

// rseqArea gives the address of the thread's rseq area; 0 is none. It is asked
// for once, at a stop.
func (t *Thread) rseqArea() uint64 {
	if !t.rseqInit && t.stopped {
		var c rseqConfiguration
		if getRseq(t.tid, &c) == 0 {
			t.rseq = c.Pointer
		}
		t.rseqInit = true
	}
	return t.rseq
}

// abortedSequence gives where the stopped thread, whose instruction pointer is
// ip, goes on if that is in the middle of a restartable sequence.
//
// The stop has interrupted the sequence, so the kernel would lead the thread to
// the abort handler. But it looks where the thread is when it runs on: finding
// it in an injected call it would take the sequence for finished, and the
// thread would later commit what other threads have changed meanwhile
// (kernel/rseq.c, rseq_ip_fixup).
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
		return 0, false // the kernel will tell the program
	}
	if ip-le.Uint64(cs[csStart:]) >= le.Uint64(cs[csLength:]) {
		return 0, false
	}
	return le.Uint64(cs[csAbort:]), true
}
