package detour

import (
	"encoding/binary"

	"kprobe/probe/asm"
	"kprobe/symbols"
)

// How a call of a Go function is identified
//
// It is identified by its goroutine and by the distance of its slot from the upper end of the goroutine's
// stack. The goroutine is in r14 throughout the code of Go's compiler (abi-internal.md). The distance
// stays the same when the stack is copied. Both fit into one word: the address of the g without its
// last bits, which are 0, and the distance in words. Calls on stacks that are too deep for that are
// not followed, and are counted as missed.
const (
	goAlign    = 5  // log2 of what a g is aligned to at least
	goDistance = 22 // bits of the distance
)

// GoKey returns the key of the call whose slot lies distance bytes below the upper end of the
// stack of the goroutine at g. ok is false if there is no such key.
func GoKey(g, distance uint64) (key uint64, ok bool) {
	if g == 0 || g&(1<<goAlign-1) != 0 || distance>>3 >= 1<<goDistance {
		return 0, false
	}
	return g>>goAlign<<goDistance | distance>>3, true
}

// GoCall returns the goroutine and the distance from which a key was made.
func GoCall(key uint64) (g, distance uint64) {
	return key >> goDistance << goAlign, key & (1<<goDistance - 1) << 3
}

// GoStack reads the bounds of the stack of the goroutine at g, and its stack pointer while it
// doesn't run: g.sched.sp.
func GoStack(mem symbols.Memory, g uint64) (lo, hi, sp uint64, err error) {
	var b [gSchedSP + 8]byte
	if _, err := mem.ReadMemory(b[:], symbols.Addr(g)); err != nil {
		return 0, 0, 0, err
	}
	le := binary.LittleEndian
	return le.Uint64(b[gStackLo:]), le.Uint64(b[gStackHi:]), le.Uint64(b[gSchedSP:]), nil
}

// key loads the call's key into DI. If the call has no key, the code continues at none. Changes AX.
func (e *calling) key(none asm.Label) {
	b := e.b
	if !e.k.Go {
		b.Lea(asm.DI, b.frame.above(0))
		return
	}
	b.Test(asm.W64, asm.R14, asm.R14)
	b.Jcc(asm.E, none)
	b.TestImm(asm.W32, asm.R14, 1<<goAlign-1)
	b.Jcc(asm.NE, none)
	b.mayFault(none) // in assembly r14 may have any value
	b.Load(asm.W64, asm.DI, asm.At(asm.R14, gStackHi))
	b.Lea(asm.AX, b.frame.above(0))
	b.Op(asm.Sub, asm.W64, asm.DI, asm.AX)
	b.ShiftImm(asm.Shr, asm.W64, asm.DI, 3)
	b.OpImm(asm.Cmp, asm.W64, asm.DI, 1<<goDistance)
	b.Jcc(asm.AE, none)
	b.Mov(asm.W64, asm.AX, asm.R14)
	b.ShiftImm(asm.Shl, asm.W64, asm.AX, goDistance-goAlign)
	b.Op(asm.Or, asm.W64, asm.DI, asm.AX)
}
