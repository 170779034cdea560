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
	t.Run("repaired", func(t *testing.T) { stackCopyEnds(t, newMachine(t, 3, 3*8192)) })
	t.Run("asked", func(t *testing.T) {
		m := newMachine(t, 3, 3*8192)
		m.carefully()
		stackCopyEnds(t, m)
	})
}

func stackCopyEnds(t *testing.T, m *machine) {
	const n = 3
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

// signalFrame is above the stack pointer by at, and says that saved was the one before.
type signalFrame struct{ at, saved uint64 }

type signalCase struct {
	name   string
	frames []signalFrame
	spoil  func(put func(off, v uint64)) // of the first frame
	first  uint64                        // bytes of the first piece
	more   uint64
}

// TestStackCopySignal copies stacks with the frames of signals on them, and with
// what only looks like one: the pieces are the interpreter's.
func TestStackCopySignal(t *testing.T) {
	const outer, code = dataAt + 8192, dataAt
	last := uint64(dataAt + dataSize - 512)
	cases := []signalCase{
		{name: "none", first: 2048},
		{name: "one", frames: []signalFrame{{440, outer}}, first: 128 + 440 + fetch.SigFrameEnd},
		{name: "at once", frames: []signalFrame{{56, outer}}, first: 128 + 56 + fetch.SigFrameEnd},
		{name: "nested", frames: []signalFrame{{184, 900}, {824, outer}}, first: 128 + 824 + fetch.SigFrameEnd},
		{name: "near the end of the other", frames: []signalFrame{{440, last}}, first: 128 + 440 + fetch.SigFrameEnd, more: 128 + 512},
		{name: "of a stack that is gone", frames: []signalFrame{{440, dataAt + dataSize + 4096}}, first: 128 + 440 + fetch.SigFrameEnd, more: 1 << 40},
		{name: "below the stack pointer", frames: []signalFrame{{^uint64(0) - 7, outer}}, first: 2048},
		{name: "cut by the copy's end", frames: []signalFrame{{1784, outer}}, first: 2048},
		{name: "other code", frames: []signalFrame{{440, outer}}, spoil: func(put func(off, v uint64)) { put(0, code+64) }, first: 2048},
		{name: "no code", frames: []signalFrame{{440, outer}}, spoil: func(put func(off, v uint64)) { put(0, 1<<44) }, first: 2048},
		{name: "half a code", frames: []signalFrame{{440, outer}}, spoil: func(put func(off, v uint64)) { put(0, dataAt+dataSize-4) }, first: 2048},
		{name: "a link", frames: []signalFrame{{440, outer}}, spoil: func(put func(off, v uint64)) { put(fetch.SigFrameLink, 8) }, first: 2048},
		{name: "flags", frames: []signalFrame{{440, outer}}, spoil: func(put func(off, v uint64)) { put(fetch.SigFrameFlags, 8) }, first: 2048},
		{name: "another stack", frames: []signalFrame{{440, outer}}, spoil: func(put func(off, v uint64)) { put(fetch.SigFrameStack, dataAt) }, first: 2048},
		{name: "the same stack", frames: []signalFrame{{440, 16}}, first: 2048},
		{name: "no stack pointer", frames: []signalFrame{{440, 0}}, first: 2048},
		{name: "no segments", frames: []signalFrame{{440, outer}}, spoil: func(put func(off, v uint64)) { put(fetch.SigFrameCS, 0x23) }, first: 2048},
	}
	for _, careful := range []bool{false, true} {
		stackCopySignal(t, cases, careful)
	}
}

func stackCopySignal(t *testing.T, cases []signalCase, careful bool) {
	const outer, code = dataAt + 8192, dataAt
	n := len(cases)
	m := newMachine(t, n, n*8192)
	if careful {
		m.carefully()
	}
	rand.New(rand.NewSource(1)).Read(m.at(stackAt))
	rand.New(rand.NewSource(2)).Read(m.at(dataAt))
	m.put64(code, fetch.SigReturn)
	m.put64(code+64, fetch.SigReturn^1<<40)
	m.put64(dataAt+dataSize-8, fetch.SigReturn&(1<<32-1)<<32)
	prog, err := compile("p f a=%di stack=4")
	if err != nil {
		t.Fatal(err)
	}
	regs := make([]fetch.Regs, n)
	for i, c := range cases {
		low := stackAt + uint64(i)*stackSize
		sp := low + 4096
		regs[i].GPR[fetch.SP], regs[i].Flags = sp, 2
		for k, f := range c.frames {
			at := sp + f.at
			if f.saved != 0 && f.saved < stackSize {
				f.saved += sp
			}
			put := func(off, v uint64) { m.put64(at+off, v) }
			put(fetch.SigFrameCode, code)
			put(fetch.SigFrameFlags, 7)
			put(fetch.SigFrameLink, 0)
			put(fetch.SigFrameStack, low)
			put(fetch.SigFrameSize, stackSize)
			put(fetch.SigFrameRSP, f.saved)
			put(fetch.SigFrameCS, fetch.SigSegments)
			if k == 0 && c.spoil != nil {
				c.spoil(put)
			}
		}
		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return Build(base, m.params(), []Probe{{ID: uint32(i + 1), Program: prog, IP: 0x1000}}, tail)
		})
		if err != nil {
			t.Fatal(err)
		}
		m.setCase(i, d.Base, &regs[i], &fetch.Vector{})
	}
	var want []unwind.Stack
	for i := range cases {
		rec, _ := prog.Eval(&fetch.Context{Regs: &regs[i], Mem: m}, nil)
		var st unwind.Stack
		if _, ok := prog.Unwind(rec, 0x1000, &st); !ok {
			t.Fatal("no stack")
		}
		want = append(want, st)
	}
	m.run(n)
	head := uint64(0)
	for i, c := range cases {
		m.checkCase(i)
		now := binary.LittleEndian.Uint64(m.at(caseAt + uint64(i)*caseSize)[caseHead:])
		rec := m.at(ringAt + head&(testRing-1))[:now-head]
		head = now
		var got unwind.Stack
		if _, ok := prog.Unwind(rec[ring.DataOff:], 0x1000, &got); !ok {
			t.Fatal("no stack")
		}
		w := want[i]
		if got.Base != w.Base || !bytes.Equal(got.Bytes, w.Bytes) || len(w.More) > 0 && got.MoreBase != w.MoreBase || !bytes.Equal(got.More, w.More) {
			t.Errorf("%s: %d bytes from %#x and %d from %#x; the interpreter has %d from %#x and %d from %#x", c.name,
				len(got.Bytes), got.Base, len(got.More), got.MoreBase, len(w.Bytes), w.Base, len(w.More), w.MoreBase)
		}
		more := 2048 - c.first
		switch {
		case c.more == 1<<40:
			more = 0
		case c.more > 0:
			more = c.more
		}
		if uint64(len(got.Bytes)) != c.first || uint64(len(got.More)) != more {
			t.Errorf("%s: %d and %d bytes, want %d and %d", c.name, len(got.Bytes), len(got.More), c.first, more)
		}
	}
}
