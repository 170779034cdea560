package detour

import (
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// From the reservation of a record to its commit a register leads to it, at every single instruction,
// also in shared code (ring.Unfinished.Keeps, Detour.MayReserve).
func TestRegistersLeadToTheRecord(t *testing.T) {
	const codeSize, begin = 32768, 3*testRing + 0x4568
	for _, tt := range []struct {
		text    string
		rseq    bool // its sequences are aborted, as all that are stepped
		careful bool
		exits   bool
	}{
		{"p f", false, false, false},
		{"p f a=%di b=+8(%si):u32", false, false, false},
		{"p f a=%di s=+0(%r12):string b=+8(%r13):u32", false, false, false},
		{"p f s=+0(%r12):string u=+3(%r12):ustring", false, false, false},
		{"p f a=%flags b=+0(%si):u32[64] c=+0(%r13):u32[64] d=$comm", false, false, false},
		{"p f a=%xmm0 b=+0(%si):f64 c=$time", false, false, false},
		{"p f a=%di b=+8(%si):u32", true, false, false},
		{"p f s=+0(%r12):string", true, false, false},
		{"p f a=%di s=+0(%r12):string c=+4(%si):u64", false, true, false},
		{"r f v=$retval", false, false, false},
		{"r f v=$retval a=$arg1 s=+0($arg2):string", false, false, false},
		{"r f v=$retval a=$arg1", true, false, false},
		{"r f", false, false, true},
		{"r f v=$retval a=$arg1 s=+0($arg2):string", false, false, true},
		{"r f v=$retval d=$comm b=+0($arg2):u32[64]", true, false, true},
		{"r f v=$retval s=+0($arg2):string", false, true, true},
	} {
		t.Run(tt.text, func(t *testing.T) {
			m := newMachine(t, 1, codeSize, shared{logAt, 0, 8 << 20, protRW})
			if tt.rseq {
				m.rseq = rseqArea(t)
			}
			if tt.careful {
				m.carefully()
			}
			d, leave, reset := m.buildToStep(tt.text, tt.exits)
			of := func(ip uint64) *Detour {
				if leave != nil && ip >= leave.Base && ip < leave.Base+uint64(leave.size) {
					return leave
				}
				return d
			}
			run := func(watch uint64) []stepped {
				regs := fetch.Regs{Flags: 0x100 | 0x8d7}
				for i := range regs.GPR {
					regs.GPR[i] = uint64(i) * 0x1111_1111_1111
				}
				regs.GPR[fetch.SP] = stackAt + stackSize - 4096
				regs.GPR[fetch.SI], regs.GPR[fetch.R12] = dataAt, dataAt+5
				m.put64(regs.GPR[fetch.SP], m.after)
				copy(m.at(dataAt), "what the text says\x00")
				m.setCase(0, d.Base, &regs, &fetch.Vector{})
				clear(m.at(ringAt)[:testRing])
				reset()
				m.put64(cpusAt+ring.HeadOff, begin)
				m.put64(cpusAt+ring.TailOff, begin)
				return m.stepWithin(codeAt, codeAt+codeSize, watch)
			}
			heads := run(cpusAt + ring.HeadOff)
			states := run(ringAt + begin%testRing + ring.StateOff)
			end := m.get64(cpusAt + ring.HeadOff)
			if len(heads) != len(states) || end == begin {
				t.Fatalf("%d and %d steps, the head from %#x to %#x", len(heads), len(states), uint64(begin), end)
			}
			open := 0
			for i, st := range heads {
				if st.data[0] == begin || states[i].data[0]&(1<<31) != 0 {
					continue
				}
				open++
				u := ring.Unfinished{At: begin, Mask: testRing - 1, Data: ringAt}
				if states[i].data[0] != 0 {
					u.Size = end - begin
				}
				leads := false
				for _, v := range st.regs.GPR {
					leads = leads || u.Keeps(v, of(st.regs.IP).MayReserve(st.regs.IP))
				}
				if !leads {
					t.Errorf("at +%#x no register leads to the record: %x", st.regs.IP-d.Base, st.regs.GPR)
				}
			}
			if open < 5 {
				t.Errorf("the record is open for %d instructions", open)
			}
		})
	}
}

// buildToStep places the detour of a definition. That of a return probe displaces a return instruction: its
// calls return by a trampoline, or, if exits is set, have a detour at that
// instruction: leave, which lies in d. reset makes the memory of calls as before.
func (m *machine) buildToStep(text string, exits bool) (d, leave *Detour, reset func()) {
	m.t.Helper()
	prog := must(m.t, text)
	pool, err := NewPool(poolAt, prog, 8, maxStripes)
	if err != nil {
		m.t.Fatal(err)
	}
	pool.Keeps = m.rseq != 0
	head := pool.Head(m.common(m.params()))
	k, err := NewCalls(poolAt, prog, 8)
	if err != nil {
		m.t.Fatal(err)
	}
	if exits {
		head = k.Head(m.common(m.params()))
	}
	probe := Probe{ID: 1, Program: prog}
	leaves := func(c *asm.Code) (err error) {
		if leave, err = BuildLeave(c.Here(), m.params(), probe, k, 0, noTail); err == nil {
			c.Raw(leave.Code...)
		}
		return err
	}
	d, err = m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
		switch {
		case text[0] == 'p':
			return Build(base, m.params(), []Probe{probe}, tail)
		case exits:
			return BuildEnter(base, m.params(), nil, probe, k, leaves)
		}
		r, err := BuildReturn(base, m.params(), probe, pool, noTail)
		if err != nil {
			return nil, err
		}
		return &r.Detour, nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return d, leave, func() {
		mem := m.at(poolAt)
		clear(mem)
		copy(mem, head)
	}
}
