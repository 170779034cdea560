package detour

import "encoding/binary"

// DWARF numbers (DWARF 5, 7.24 and 7.7; System V ABI, AMD64 supplement, 3.6.2).
const (
	dwCFADefCFA        = 0x0c
	dwCFAExpression    = 0x10
	dwCFAValExpression = 0x16
	dwOpAddr           = 0x03
	dwOpBreg7          = 0x77
	dwRSP              = 7
	dwRA               = 16
)

// Frames returns unwind information for the return trampolines, in the form of a terminated
// .eh_frame section, as __register_frame of libgcc takes it. With it exceptions, thread
// cancellation and backtraces pass through return trampolines to the callers. Without it a C++
// exception there ends the program.
//
// To an unwinder a return trampoline is one more frame, without code of its own: the return
// address is read from the instance, and the stack pointer stays. Its canonical frame address
// is made 8 more than the stack pointer, because frames are told apart by it, and the caller's
// is the stack pointer plus what it pushed.
//
// The instance of a call that is left this way stays in use (Pool.Used).
func (r *Return) Frames(pool Pool) []byte {
	le := binary.LittleEndian
	var out []byte
	entry := func(pointer uint32, body []byte) {
		for (len(body)+4)%8 != 4 { // length word, pointer and body: a multiple of 8 in all
			body = append(body, 0) // DW_CFA_nop
		}
		out = le.AppendUint32(out, uint32(4+len(body)))
		out = le.AppendUint32(out, pointer)
		out = append(out, body...)
	}
	entry(0, []byte{
		1, 'z', 'R', 0, // version, augmentation
		1, 0x78, dwRA, // code alignment 1, data alignment -8, return address
		1, 0, // augmentation data: addresses are absolute
		dwCFADefCFA, dwRSP, 8,
		dwCFAValExpression, dwRSP, 2, dwOpBreg7, 0,
	})
	for n := 1; n <= r.count; n++ {
		// From the call on: unwinders look for the byte before a return address.
		start := r.Trampoline(n) - trampolineOff + stubCall
		var b []byte
		b = le.AppendUint64(b, start)
		b = le.AppendUint64(b, stubSize-stubCall)
		b = append(b, 0) // no augmentation data
		b = append(b, dwCFAExpression, dwRA, 9, dwOpAddr)
		b = le.AppendUint64(b, pool.Addr+uint64(pool.offset(n))+instReturn)
		entry(uint32(len(out)+4), b)
	}
	return le.AppendUint32(out, 0)
}
