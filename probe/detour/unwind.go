package detour

import (
	"encoding/binary"
	"fmt"
	"sort"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/symbols"
)

// Unwind changes the registers of a thread that is stopped in the detour to those that the
// program had when it got there, except IP. In a return probe's return trampolines these are
// the registers after the return. ok is false, and nothing changes, for a thread that isn't in
// the detour's frame: outside of the detour, in the displaced instructions, or in the jump
// back.
//
// Such a thread has taken its hit, half of it, or none. If it is sent to the site, it takes the
// hit again; if it is sent to Copy, it doesn't. A record that it had begun stays unfinished.
func (d *Detour) Unwind(r *fetch.Regs, mem symbols.Memory) (ok bool, err error) {
	m := d.mark(r.IP)
	if m == nil {
		return false, nil
	}
	was := *r
	sp := r.GPR[asm.SP] + uint64(m.depth)
	ax, at := r.GPR[asm.AX], m.flags
	if at == flagsKept {
		ax = r.GPR[m.keep]
	}
	if at == flagsSaved {
		if ax, err = word(mem, sp-uint64(m.word)); err != nil {
			return false, fmt.Errorf("read a detour's flags: %w", err)
		}
	}
	if at != flagsLive {
		of := ax & 1
		if at == flagsAdded {
			of = ax >> 7 & 1
		}
		r.Flags = r.Flags&^arithFlags | ax>>8&ahFlags | of<<11
	}
	if m.axKept {
		r.GPR[asm.AX] = r.GPR[m.keep]
	}
	for _, s := range m.saved {
		if r.GPR[s.reg], err = word(mem, sp-uint64(s.off)); err != nil {
			*r = was
			return false, fmt.Errorf("read a detour's registers: %w", err)
		}
	}
	r.GPR[asm.SP] = sp
	return true, nil
}

// Undo is Unwind for a thread that can't continue in the detour, because its instruction
// faults. taken is how many of the site's probes have taken their hits; the caller must take
// the others'. A record that was begun is lost, and its reader counts it so.
func (d *Detour) Undo(r *fetch.Regs, mem symbols.Memory) (taken int, ok bool, err error) {
	m := d.mark(r.IP)
	if m == nil {
		return 0, false, nil
	}
	ok, err = d.Unwind(r, mem)
	return int(m.taken), ok, err
}

// Writing says how far a thread has got that is writing a record, or notes a call in an instance.
type Writing uint8

const (
	// NotWriting: there is none, or what is done to it has no name here.
	NotWriting Writing = iota
	// Reserving: the next change of the ring's head, which is based on SI, reserves its room. Then CX is its
	// address.
	Reserving
	// Open: it has its state word. While CX is its address, what is based on CX is in it.
	Open
	// Committing: as Open. The instruction commits it.
	Committing
	// Entered: CX is the instance of the call, whose entry it is.
	Entered
	// Leading: the word that is 16 bytes below the program's stack pointer says where the thread continues: at the
	// stub of the call's instance, or at the displaced instructions.
	Leading
)

// Writing returns how far the record has got of a thread that is stopped in the detour's frame.
func (d *Detour) Writing(ip uint64) Writing {
	if m := d.mark(ip); m != nil {
		return m.writing
	}
	return NotWriting
}

// MayReserve reports whether a thread at an address, of the detour or of code that it shares, may have
// reserved room for a record and not yet have the record's address in a register.
func (d *Detour) MayReserve(ip uint64) bool {
	return ip < d.Base || ip >= d.Base+uint64(d.size) || d.Writing(ip) == Reserving
}

// Returning reports whether an address is in the frame of return trampolines.
func (d *Detour) Returning(ip uint64) bool {
	m := d.mark(ip)
	return m != nil && m.trampoline
}

// Returns is the address where the frame of return trampolines begins; 0 if there is none.
func (d *Detour) Returns() uint64 {
	if d.undoing == nil {
		return 0
	}
	for i := range d.marks {
		if m := &d.marks[i]; m.trampoline && m.flags != flagsGone {
			return d.Base + uint64(m.off)
		}
	}
	return 0
}

// mark is the mark that holds at an address; nil outside the frame.
func (d *Detour) mark(ip uint64) *mark {
	if d.undoing == nil || ip < d.Base || ip >= d.Base+uint64(d.size) {
		return nil
	}
	off := int32(ip - d.Base)
	i := sort.Search(len(d.marks), func(i int) bool { return d.marks[i].off > off })
	if i == 0 || d.marks[i-1].flags == flagsGone {
		return nil
	}
	return &d.marks[i-1]
}

// same compares two marks, except saved.
func (m *mark) same(o *mark) bool {
	return m.off == o.off && m.depth == o.depth && m.word == o.word && m.flags == o.flags &&
		m.keep == o.keep && m.axKept == o.axKept && m.taken == o.taken && m.trampoline == o.trampoline && m.skips == o.skips && m.writing == o.writing
}

func word(mem symbols.Memory, at uint64) (uint64, error) {
	var b [8]byte
	if _, err := mem.ReadMemory(b[:], symbols.Addr(at)); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}
