package vars

import (
	"fmt"

	"kprobe/fetch"
)

// maxTLSOffset is below what an address can be: an offset from no block at all
// is then one that can't be read.
const maxTLSOffset = 1 << 15

// notCanonical, added to an address, makes one that can't be read.
const notCanonical = 1 << 62

// libraryThreadLocal is the address of a library's thread-local variable: at a
// fixed distance from the thread pointer, or in the block that the thread's
// vector of blocks names. A thread that has no such block yet has no such
// variable: reading it is a fault.
func (x *evaluator) libraryThreadLocal(off uint64) error {
	b, err := x.f.scope.space.TLS(x.f.module)
	if err != nil {
		return fmt.Errorf("it is a thread-local variable of a library: %w: %w", err, fetch.ErrNoValue)
	}
	tp := register(fetch.RegFSBase)
	if b.Static {
		return x.push(tp.add(int64(off) + b.Offset))
	}
	if off > maxTLSOffset || b.Module > 1<<20 {
		return errBadExpression
	}
	// The vector's address is the second word of a thread's control block, with
	// glibc (tcbhead_t) as with musl (struct pthread). A vector that is too short
	// is glibc's way to say that the module came later: there is one word to
	// compute in, so the comparison comes first and spoils the address.
	const vector = 8
	count, entry := int64(-16), 16*int64(b.Module)
	if b.Musl {
		count, entry = 0, 8*int64(b.Module)
	}
	unlessShort := func(have sym, need uint64) sym {
		bad := have.add(-int64(need)).fold(fetch.StepSar, 63).fold(fetch.StepAnd, notCanonical)
		return bad.step(fetch.Step{Op: fetch.StepAdd, FromReg: true, Reg: fetch.RegFSBase})
	}
	again := unlessShort(tp.add(vector).load(8).add(count).load(8), b.Module)
	if b.Generation > 0 && b.Generation < 1<<31 {
		again = unlessShort(again.add(vector).load(8).load(8), b.Generation)
	}
	return x.push(again.add(vector).load(8).add(entry).load(8).add(int64(off)))
}
