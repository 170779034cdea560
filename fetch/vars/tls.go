package vars

import (
	"kprobe/fetch"
	"kprobe/symbols"
)

// maxTLSOffset is less than any valid address. So an offset added to a missing block's
// address, which is 0, can't be read.
const maxTLSOffset = 1 << 15

// notCanonical makes an address unreadable when it is added to it.
const notCanonical = 1 << 62

// libraryThreadLocal computes the address of a library's thread-local variable. It lies at a
// fixed distance from the thread pointer, or in a block that the thread's vector of blocks
// lists. If a thread has no such block yet, the variable doesn't exist there, and reading it
// is a fault.
func (x *evaluator) libraryThreadLocal(m *symbols.Module, off uint64) error {
	b, err := x.f.scope.space.TLS(m)
	if err != nil {
		return unknown("it is a thread-local variable of a library: %w", err)
	}
	tp := register(fetch.RegFSBase)
	if b.Static {
		return x.push(tp.add(int64(off) + b.Offset))
	}
	if off > maxTLSOffset || b.Module > 1<<20 {
		return errBadExpression
	}
	// The vector's address is the second word of a thread's control block, both with
	// glibc (tcbhead_t) and with musl (struct pthread). With glibc, a vector that is too
	// short means that the module was loaded later. Steps have only one word to compute in,
	// so the comparison comes first and makes the address unreadable.
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
