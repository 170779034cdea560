package detour

import (
	"encoding/binary"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// A call that finds no free row frees those of its thread that are over, and
// reads no slot that might not be there: no fallback handler is needed.
func TestLeaveReclaim(t *testing.T) {
	const (
		slot   = dataAt + 0x2800 // of the call that is entered
		end    = dataAt + dataSize
		was    = 0x4242
		before = dataAt - 0x3000 // not mapped, as what is behind end
	)
	cases := []struct {
		name      string
		main, row uint64 // where the main stack ends; the slot of the row in use
		now       uint64 // what that holds
		alien     uint32 // added to the number of the row's thread
		freed     bool
	}{
		{"above, used anew", 0, slot + 0x100, 1, 0, true},
		{"above, under way", 0, slot + 0x100, was, 0, false},
		{"below in the page, used anew", 0, slot - 0x100, 1, 0, true},
		{"below in the page, under way", 0, slot - 0x100, was, 0, false},
		{"last of the page", 0, dataAt + 0x2ff8, 1, 0, true},
		{"over the page's end", 0, dataAt + 0x2ffc, 1, 0, false},
		{"over the page's start", 0, dataAt + 0x1ffc, 1, 0, false},
		{"another page", 0, slot + 0x2000, 1, 0, false},
		{"nowhere", 0, end + 0x800, 0, 0, false},
		{"another thread's", 0, slot + 0x100, 1, 1, false},
		{"main stack, used anew", end, slot + 0x2000, 1, 0, true},
		{"main stack, under way", end, slot + 0x2000, was, 0, false},
		{"main stack, last", end, end - 8, 1, 0, true},
		{"main stack, over its end", end, end - 4, 0, 0, false},
		{"beyond the main stack", end, end + 0x800, 0, 0, false},
		{"main stack, below", end, before, 0, 0, true},
		{"not on the main stack", slot - 0x1000, slot + 0x2000, 1, 0, false},
	}
	m := newMachine(t, 2*len(cases), 96<<10)
	prog := must(t, "r f v=$retval")
	one, err := NewCalls(poolAt, prog, 1)
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(one.Size()+63) &^ 63
	calls := make([]Calls, len(cases))
	for i, c := range cases {
		k, err := NewCalls(poolAt+uint64(i)*size, prog, 1)
		if err != nil {
			t.Fatal(err)
		}
		calls[i] = k
		p := m.params()
		p.StackEnd = c.main
		copy(m.at(k.Addr), k.Head(m.common(p)))
		row := k.Addr + uint64(k.offset(0))
		m.put64(row+callSlot, c.row)
		m.put64(row+callReturn, was)
		// Only the child knows its thread's number, and the cases have slots
		// in common.
		set := asm.New(m.code)
		set.Load(asm.W32, asm.AX, asm.SegAbs(asm.FS, 0x2d0))
		set.OpImm(asm.Add, asm.W32, asm.AX, int32(c.alien))
		set.MovAbs(asm.CX, row)
		set.Store(asm.W32, asm.At(asm.CX, callTID), asm.AX)
		if c.now != 0 {
			set.MovAbs(asm.CX, c.row)
			set.StoreImm(asm.W64, asm.At(asm.CX, 0), int32(c.now))
		}
		set.MovAbs(asm.CX, m.after)
		set.JmpReg(asm.CX)
		copy(m.at(m.code), assemble(t, set))
		m.setCase(2*i, m.code, &fetch.Regs{}, &fetch.Vector{})
		m.code = (m.code + uint64(set.Len()) + 63) &^ 63

		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return BuildEnter(base, p, nil, Probe{ID: uint32(i + 1), Program: prog}, k, tail)
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Faults()) != 0 {
			t.Errorf("%s: %d loads of the detour may fault", c.name, len(d.Faults()))
		}
		regs := fetch.Regs{Flags: 2}
		regs.GPR[fetch.SP] = slot
		m.setCase(2*i+1, d.Base, &regs, &fetch.Vector{})
	}
	tid := m.run(2 * len(cases))
	for i, c := range cases {
		m.checkCase(2*i + 1)
		in := calls[i].Used(m.at(calls[i].Addr)[:calls[i].Size()])
		missed := m.counter(uint32(i+1), ring.CounterMissed)
		switch {
		case len(in) != 1:
			t.Errorf("%s: %d rows are in use", c.name, len(in))
		case c.freed && (in[0].Slot != slot || in[0].TID != uint32(tid) || missed != 0):
			t.Errorf("%s: %+v, %d missed: not freed", c.name, in[0], missed)
		case !c.freed && (in[0].Slot != c.row || in[0].Return != was || missed != 1):
			t.Errorf("%s: %+v, %d missed: freed", c.name, in[0], missed)
		}
	}
	if binary.LittleEndian.Uint64(m.at(slot)) != 0 {
		t.Error("the slot was written")
	}
}
