package detour

import (
	"encoding/binary"
	"fmt"

	"kprobe/fetch"
)

// MaxInstances bounds the instances of one return probe.
const MaxInstances = 1 << 16

// Pool is the memory of a return probe's instances, little-endian:
//
//	0  Stripes × 64 bytes, each: u64 head: u32 changes, u32 number of the first
//	   free instance of that stripe, 0 for none. The first stripe continues with the
//	   address of shared code (Shared), and what that needs to know: u32
//	   64 × Stripes - 1, u32 1 << Shift, u32 (Count + 1) << Shift, u32 Shift, u64
//	   address of the place before instance 1, u32 Stripes, u32 Count. At 24 each
//	   stripe has the address of the instance that its CPU keeps (kept.go)
//	   instances, numbered from 1, each of 1 << Shift bytes:
//	     0  u64 where the call returns to
//	     8  u64 address of its return address's slot
//	    16  u32 number of the next free instance + 1; 0: the next of the stripe, if
//	        there is one, as long as the instance was never used
//	    20  u32 thread that entered; 0: free
//	    24  u64 where the program returns to: the same, or the address behind the
//	        return trampolines of functions that jumped to this one
//	    32  what fetch.EvalEntry would give: fault bits and values
//
// Instance n belongs to stripe (n-1) mod Stripes. A call takes one from the stripe of its CPU,
// so that CPUs don't wait for each other, or from another stripe if that has none. All can be
// in use at once.
//
// It must be memory that fork copies (MAP_PRIVATE): parent and child return through return
// trampolines of the same number, each to where it was called from.
//
// If an instance's slot no longer holds its return trampoline's address, and its thread is in
// no detour, the call was left by longjmp, an exception or the thread's end. Whoever stops the
// target may free it.
type Pool struct {
	Addr    uint64 // in the target, 64-aligned
	Count   int    // instances: maxactive, 1 to MaxInstances
	Shift   uint8  // log2 of an instance's size
	Stripes int    // a power of two
	Keeps   bool   // each CPU keeps a free instance for itself (kept.go)
}

const (
	stripeSize = 64
	maxStripes = 64

	// Offsets behind the head of the first stripe. The word at instTID is 0.
	poolTake   = 8
	poolMask   = 32
	poolSize   = 36
	poolEnd    = 40
	poolShift  = 44
	poolBefore = 48
	poolStride = 56
	poolCount  = 60

	instReturn = 0
	instSlot   = 8
	instNext   = 16
	instTID    = 20
	instReal   = 24
	instEntry  = 32
)

// NewPool lays out a pool for a program at an address, on a machine with at most so many CPUs.
func NewPool(addr uint64, prog *fetch.Program, count, cpus int) (Pool, error) {
	if count < 1 || count > MaxInstances {
		return Pool{}, fmt.Errorf("%d instances of a return probe", count)
	}
	p := Pool{Addr: addr, Count: count, Shift: 6, Stripes: 1}
	for instEntry+prog.EntrySize() > 1<<p.Shift {
		p.Shift++
	}
	for p.Stripes < min(maxStripes, cpus) && p.Stripes*4 <= count {
		p.Stripes *= 2
	}
	return p, nil
}

// KeepOn has each of so many CPUs keep a free instance, if the pool has a stripe for each of them, and
// at least three times as many instances stay for all.
func (p *Pool) KeepOn(cpus int) { p.Keeps = cpus <= p.Stripes && 4*cpus <= p.Count }

// Size is the pool's size in bytes.
func (p Pool) Size() int { return p.first() + p.Count<<p.Shift }

// Head is the beginning of the memory of a pool whose instances are all free, for code that uses
// s. The rest is all zero, so instances that no call has ever had take no memory.
func (p Pool) Head(s *Shared) []byte {
	b := make([]byte, p.first())
	le := binary.LittleEndian
	take := s.take
	if p.Keeps {
		take = s.takeKept
	}
	le.PutUint64(b[poolTake:], take)
	le.PutUint32(b[poolMask:], uint32(stripeSize*p.Stripes-1))
	le.PutUint32(b[poolSize:], 1<<p.Shift)
	le.PutUint32(b[poolEnd:], uint32((p.Count+1)<<p.Shift))
	le.PutUint32(b[poolShift:], uint32(p.Shift))
	le.PutUint64(b[poolBefore:], p.Addr+uint64(p.offset(0)))
	le.PutUint32(b[poolStride:], uint32(p.Stripes))
	le.PutUint32(b[poolCount:], uint32(p.Count))
	for s := range p.Stripes {
		le.PutUint32(b[stripeSize*s+4:], uint32(s+1))
	}
	return b
}

// first is the offset of instance 1.
func (p Pool) first() int { return stripeSize * p.Stripes }

func (p Pool) offset(number int) int { return p.first() + (number-1)<<p.Shift }

// Free frees an instance that its call will not free, in a copy of the pool's memory that is
// written back to the target before it runs again. An instance that isn't in use stays as it
// is.
func (p Pool) Free(mem []byte, number int) {
	if number < 1 || number > p.Count || p.offset(number)+1<<p.Shift > len(mem) {
		return
	}
	le := binary.LittleEndian
	inst, head := mem[p.offset(number):], mem[stripeSize*((number-1)&(p.Stripes-1)):]
	if le.Uint32(inst[instTID:]) == 0 {
		return
	}
	le.PutUint32(inst[instTID:], 0)
	le.PutUint32(inst[instNext:], le.Uint32(head[4:])+1)
	le.PutUint32(head, le.Uint32(head)+1)
	le.PutUint32(head[4:], uint32(number))
}

// RealAt is the address of the word that says where the program returns to from
// an instance's call.
func (p Pool) RealAt(number int) uint64 { return p.Addr + uint64(p.offset(number)) + instReal }

// ReturnAt is the address of the word that says where an instance's call
// returns to.
func (p Pool) ReturnAt(number int) uint64 { return p.Addr + uint64(p.offset(number)) + instReturn }

// Instance is one instance in use.
type Instance struct {
	Number int
	TID    uint32
	Slot   uint64 // address of the slot that holds the return trampoline's address
	Return uint64 // what the slot held before
	Real   uint64 // where the program returns to: Return, unless that is a return trampoline
}

// Entry is what the entry has left in an instance, from the pool's memory.
func (p Pool) Entry(mem []byte, number int) []byte {
	return mem[p.offset(number)+instEntry : p.offset(number+1)]
}

// Used lists the instances in use, from the pool's memory.
func (p Pool) Used(mem []byte) []Instance {
	var used []Instance
	le := binary.LittleEndian
	for n := 1; n <= p.Count && p.offset(n)+1<<p.Shift <= len(mem); n++ {
		b := mem[p.offset(n):]
		if tid := le.Uint32(b[instTID:]); tid != 0 {
			used = append(used, Instance{n, tid, le.Uint64(b[instSlot:]), le.Uint64(b[instReturn:]), le.Uint64(b[instReal:])})
		}
	}
	return used
}
