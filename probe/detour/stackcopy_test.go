package detour

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
	"kprobe/symbols/unwind"
)

// TestStackCopyEnds copies stacks that go on, that end where it is known, and
// that end without notice, by a fault.
func TestStackCopyEnds(t *testing.T) {
	const n = 3
	m := newMachine(t, n, n*8192)
	rand.New(rand.NewSource(1)).Read(m.at(stackAt))
	prog, err := compile("p f a=%di stack=4")
	if err != nil {
		t.Fatal(err)
	}
	const below, all = fetch.StackBelow, 2048
	want := [n]uint64{all, 512 + below, 1000 + below}
	var regs [n]fetch.Regs
	for i := range n {
		for r := range regs[i].GPR {
			regs[i].GPR[r] = uint64(i+1)<<32 | uint64(r)
		}
		// The last one's stack is the end of what is mapped.
		regs[i].GPR[fetch.SP] = stackAt + uint64(i+1)*stackSize - 1000
		regs[i].Flags = 2
		p := m.params()
		if i == 1 {
			p.StackEnd = regs[i].GPR[fetch.SP] + 512
		}
		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return Build(base, p, []Probe{{ID: uint32(i + 1), Program: prog, IP: 0x1000}}, tail)
		})
		if err != nil {
			t.Fatal(err)
		}
		m.setCase(i, d.Base, &regs[i], &fetch.Vector{})
	}
	before := bytes.Clone(m.at(stackAt))
	m.run(n)
	head := uint64(0)
	for i := range n {
		m.checkCase(i)
		now := binary.LittleEndian.Uint64(m.at(caseAt + uint64(i)*caseSize)[caseHead:])
		rec := m.at(ringAt + head&(testRing-1))[:now-head]
		head = now
		var stack unwind.Stack
		r, ok := prog.Unwind(rec[ring.DataOff:], 0x1000, &stack)
		sp := regs[i].GPR[fetch.SP]
		if !ok || uint64(len(stack.Bytes)) != want[i] || stack.Base != sp-below || r.V[unwind.SP] != sp {
			t.Fatalf("case %d: %d bytes from %#x, want %d from %#x", i, len(stack.Bytes), stack.Base, want[i], sp-below)
		}
		if off := sp - below - stackAt; !bytes.Equal(stack.Bytes, before[off:off+want[i]]) {
			t.Errorf("case %d: other bytes than the stack's", i)
		}
		for dwarf, reg := range []fetch.Reg{fetch.AX, fetch.DX, fetch.CX, fetch.BX, fetch.SI, fetch.DI, fetch.BP} {
			if r.V[dwarf] != regs[i].GPR[reg] {
				t.Errorf("case %d: %s is %#x", i, reg, r.V[dwarf])
			}
		}
	}
}
