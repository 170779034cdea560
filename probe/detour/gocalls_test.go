package detour

import (
	"encoding/binary"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

func TestGoKey(t *testing.T) {
	for _, x := range []struct {
		g, distance uint64
		ok          bool
	}{
		{0xc000002380, 0x98, true},
		{0x7fffffffffe0, 0, true},
		{0x55d0a0, 32<<20 - 8, true},
		{0xc000002380, 32 << 20, false}, // deeper than it can tell
		{0xc000002390, 8, false},        // no g lies there
		{0, 8, false},
	} {
		key, ok := GoKey(x.g, x.distance)
		if ok != x.ok {
			t.Errorf("%#x %#x: %#x, %v", x.g, x.distance, key, ok)
		}
		if g, d := GoCall(key); ok && (g != x.g || d != x.distance) {
			t.Errorf("%#x %#x: back from %#x are %#x, %#x", x.g, x.distance, key, g, d)
		}
	}
}

// TestGoCalls runs the two sides with a goroutine made by hand: the entry's call
// is found by the exit though the stack was moved in between, and what has no key is
// missed or just returns.
func TestGoCalls(t *testing.T) {
	const (
		slot  = dataAt + 0x2000
		moved = dataAt + 0x3000 // where the slot is after the stack was copied
		g     = dataAt + 0x100
		hi    = slot + 0x500
	)
	cases := []struct {
		name   string
		g      uint64
		hi     uint64
		missed uint64
	}{
		{"a goroutine", g, hi, 0},
		{"no goroutine", 0, hi, 1},
		{"not aligned", g + 8, hi, 1},
		{"too deep", g, slot + 64<<20, 1},
		{"not on its stack", g, slot - 8, 1},
	}
	for _, c := range cases {
		for _, whole := range []bool{false, true} { // or the entry only
			m := newMachine(t, 3, 64<<10)
			prog := must(t, "r f v=$retval a=$arg1")
			k, err := NewCalls(poolAt, prog, 3)
			if err != nil {
				t.Fatal(err)
			}
			k.Go = true
			copy(m.at(k.Addr), k.Head(m.common(m.params())))
			probe := Probe{ID: 1, Program: prog}
			side := func(n int, sp uint64, build func(base uint64, tail func(*asm.Code) error) (*Detour, error)) {
				d, err := m.place(build)
				if err != nil {
					t.Fatal(err)
				}
				regs := fetch.Regs{Flags: 2}
				regs.GPR[fetch.SP], regs.GPR[fetch.DI], regs.GPR[fetch.R14] = sp, 77, c.g
				m.setCase(n, d.Base, &regs, &fetch.Vector{})
			}
			side(0, slot, func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				return BuildEnter(base, m.params(), nil, probe, k, tail)
			})
			side(2, moved, func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				return BuildLeave(base, m.params(), probe, k, 0, tail)
			})
			grown := asm.New(m.code)
			grown.MovAbs(asm.AX, g+gStackHi)
			grown.MovImm(asm.CX, c.hi+moved-slot)
			grown.Store(asm.W64, asm.At(asm.AX, 0), asm.CX)
			grown.MovAbs(asm.CX, m.after)
			grown.JmpReg(asm.CX)
			copy(m.at(m.code), assemble(t, grown))
			m.setCase(1, m.code, &fetch.Regs{}, &fetch.Vector{})
			m.put64(slot, 0x4242)
			m.put64(moved, 0x4242)
			m.put64(g+gStackHi, c.hi)
			if whole {
				m.run(3)
				m.checkCase(2)
			} else {
				m.run(1)
			}
			m.checkCase(0)
			mem := m.at(k.Addr)[:k.Size()]
			in := k.Used(mem)
			noted, hits := 1-c.missed, uint64(0)
			if whole {
				noted, hits = 0, noted
			}
			if missed := m.counter(1, ring.CounterMissed); missed != c.missed || uint64(len(in)) != noted || m.hits(1) != hits {
				t.Errorf("%s: %d calls noted, %d missed, %d hits; want %d, %d, %d", c.name, len(in), missed, m.hits(1), noted, c.missed, hits)
			}
			if len(in) == 0 {
				continue
			}
			key, _ := GoKey(c.g, c.hi-slot)
			if in[0].Slot != key || in[0].Return != 0x4242 || in[0].TID == 0 {
				t.Errorf("%s: noted %+v, want key %#x", c.name, in[0], key)
			}
			if v := binary.LittleEndian.Uint64(k.Entry(mem, in[0].Number)[8:]); v != 77 {
				t.Errorf("%s: kept %d of the entry, want 77", c.name, v)
			}
		}
	}
}
