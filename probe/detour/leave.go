package detour

import (
	"bytes"
	"encoding/binary"
	"errors"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/symbols"
)

// Leave changes the registers of a thread that is stopped in the code of a return probe to
// those that the program has there, including IP: at the entry of the function, whose address
// is site, or after its return. ok is false, and nothing changes, for a thread that isn't in
// the code, or that is in the displaced instructions.
//
// In both cases the return address on the stack is then the program's own. An instance that the
// thread had taken, or not freed yet, stays in use.
func (r *Return) Leave(regs *fetch.Regs, mem symbols.Memory, site uint64) (ok bool, err error) {
	if n := r.Instance(regs.IP); n != 0 {
		return r.leaveStub(regs, mem, site, n)
	}
	m := r.mark(regs.IP)
	if m == nil {
		return false, nil
	}
	trampoline, popped := m.trampoline, m.depth == 8
	if ok, err = r.Unwind(regs, mem); !ok || err != nil {
		return ok, err
	}
	if !trampoline {
		regs.IP = site
		return true, nil
	}
	// The instance's number was pushed below the slot. Once the instance is free, the slot has the
	// return address.
	slot := regs.GPR[asm.SP] - 8
	if popped {
		regs.IP, err = word(mem, slot)
		return err == nil, err
	}
	number, err := word(mem, slot-8)
	if err != nil {
		return false, err
	}
	if n := int(uint32(number)); n >= 1 && n <= r.count {
		at := r.pool.Addr + uint64(r.pool.offset(n))
		next, err := word(mem, at+instNext)
		if err != nil {
			return false, err
		}
		owned, err := word(mem, at+instSlot)
		if err != nil {
			return false, err
		}
		if next>>32 != 0 && owned == slot {
			regs.IP, err = word(mem, at+instReturn)
			return err == nil, err
		}
	}
	regs.IP, err = word(mem, slot)
	return err == nil, err
}

// leaveStub is Leave for the stub and return trampoline of an instance.
func (r *Return) leaveStub(regs *fetch.Regs, mem symbols.Memory, site uint64, n int) (bool, error) {
	const push, jump = stubPush, stubPush + 5
	sp := &regs.GPR[asm.SP]
	off := regs.IP - (r.Trampoline(n) - trampolineOff)
	if off < trampolineOff {
		if off >= stubCall {
			*sp -= 8
		}
		regs.IP = site
		return true, nil
	}
	ra, err := word(mem, r.pool.Addr+uint64(r.pool.offset(n))+instReturn)
	if err != nil {
		return false, err
	}
	switch {
	case off >= jump:
		*sp += 16
	case off >= push:
		*sp += 8
	}
	regs.IP = ra
	return true, nil
}

// Enters returns the return trampoline that a thread is about to call the function from, which is stopped at an address
// of the entry's code and has these registers there. sp is its stack pointer at the site. The trampoline is 0 if the
// call isn't followed. ok is false where that can't be told.
func (r *Return) Enters(at uint64, regs *fetch.Regs, sp uint64, mem symbols.Memory) (trampoline uint64, ok bool) {
	n := 0
	switch r.Writing(at) {
	case Entered:
		off := regs.GPR[asm.CX] - r.pool.Addr - uint64(r.pool.first())
		n = int(off>>r.pool.Shift) + 1
		slot, err := word(mem, regs.GPR[asm.CX]+instSlot)
		if off&(1<<r.pool.Shift-1) != 0 || err != nil || slot != sp {
			return 0, false
		}
	case Leading:
		to, err := word(mem, sp-(-leadsOn))
		if err != nil {
			return 0, false
		}
		if to == r.Copy() {
			return 0, true
		}
		if n = r.Instance(to); n == 0 || to != r.Trampoline(n)-trampolineOff {
			return 0, false
		}
	}
	if n < 1 || n > r.count {
		return 0, false
	}
	return r.Trampoline(n), true
}

// Returned returns the return trampoline that a thread has returned to, which is stopped at an address of its code. slot
// is where it was. ok is false where that can't be told.
func (r *Return) Returned(at, slot uint64, mem symbols.Memory) (trampoline uint64, ok bool) {
	n := r.Instance(at)
	if n == 0 {
		w, err := word(mem, slot-8)
		if err != nil {
			return 0, false
		}
		n = int(uint32(w))
	}
	if n < 1 || n > r.count {
		return 0, false
	}
	owned, err := word(mem, r.pool.Addr+uint64(r.pool.offset(n))+instSlot)
	return r.Trampoline(n), err == nil && owned == slot
}

// ReturnsFrom reports whether an address is in the code of a return trampoline.
func (r *Return) ReturnsFrom(at uint64) bool {
	n := r.Instance(at)
	return n != 0 && at >= r.Trampoline(n) || r.Returning(at)
}

// TrampolineSize is how many bytes of a return trampoline InstanceOf looks at.
const TrampolineSize = stubSize - trampolineOff

// InstanceOf returns the address of the instance whose return trampoline starts with code. ok
// is false if code is no return trampoline.
func InstanceOf(code []byte) (addr uint64, ok bool) {
	if len(code) < TrampolineSize || !bytes.HasPrefix(code, []byte{0x48, 0x8d, 0x64, 0x24, 0xf8, 0x68}) || code[10] != 0xe9 || code[15] != 0xcc {
		return 0, false
	}
	return binary.LittleEndian.Uint64(code[TrampolineSize-8:]) >> 16, true
}

// Left lists the calls that will return by return trampolines, from memory that holds pools of
// unknown layout and lies at addr. It is for a caller that finds what a killed session left: it
// believes what the memory says only if a slot of the program leads to a return trampoline of
// that very instance. Number is 0. The error is symbols.ErrLatePage if a slot that may lead to
// one can't be read yet.
func Left(mem []byte, addr uint64, target symbols.Memory) (calls []Instance, late error) {
	le := binary.LittleEndian
	code := make([]byte, TrampolineSize)
	for off := 0; off+instEntry <= len(mem); off += stripeSize {
		b := mem[off:]
		in := Instance{TID: le.Uint32(b[instTID:]), Slot: le.Uint64(b[instSlot:]), Return: le.Uint64(b[instReturn:]), Real: le.Uint64(b[instReal:])}
		if in.TID == 0 || in.Slot == 0 { // no call, or none yet: no stack is at 0
			continue
		}
		trampoline, err := word(target, in.Slot)
		if err != nil {
			if errors.Is(err, symbols.ErrLatePage) {
				late = err
			}
			continue
		}
		if _, err := target.ReadMemory(code, symbols.Addr(trampoline)); err != nil {
			continue
		}
		if of, ok := InstanceOf(code); ok && of == addr+uint64(off) {
			calls = append(calls, in)
		}
	}
	return calls, late
}
