package detour

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// TestOwnCount: a detour that only counts does so once, in a sequence where the thread may have
// one; no register changes, nor a flag that isn't dead; and at each of its instructions the
// program's registers can be told.
func TestOwnCount(t *testing.T) {
	for _, tt := range []struct {
		name   string
		probes []uint32
		off    uint32 // the probe that is switched off
		exit   bool
		dead   bool // the flags
		cpus   uint32
	}{
		{name: "in a sequence", probes: []uint32{1}, cpus: 64},
		{name: "no CPU has sequences", probes: []uint32{1, 900}},
		{name: "no CPU has sequences, flags dead", probes: []uint32{1, 900}, dead: true},
		{name: "switched off", probes: []uint32{1}, off: 1, cpus: 64},
		{name: "several probes", probes: []uint32{1, 900, 3}, off: 900, cpus: 64},
		{name: "at a return", probes: []uint32{7}, exit: true, cpus: 64},
		{name: "flags dead", probes: []uint32{1}, dead: true, cpus: 64},
		{name: "several, flags dead", probes: []uint32{1, 900}, dead: true, cpus: 64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const cases = 64
			m := newMachine(t, cases, 64<<10, shared{logAt, 0, 4 << 20, protRW})
			m.rseq = rseqArea(t)
			p := *m.params()
			p.FlagsDead = tt.dead
			binary.LittleEndian.PutUint32(m.at(flagsAt + ring.SeqCPUs)[:4], tt.cpus)
			var probes []Probe
			for _, id := range tt.probes {
				probes = append(probes, Probe{ID: id, Program: must(t, "p f a=%di"), CountOnly: true})
			}
			if !p.countsHere(probes) {
				t.Fatal("they are counted elsewhere")
			}
			d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				if tt.exit {
					return BuildExit(base, &p, probes, nil, tail)
				}
				return Build(base, &p, probes, tail)
			})
			if err != nil {
				t.Fatal(err)
			}
			if tt.off != 0 {
				binary.LittleEndian.PutUint32(m.at(flagsAt + 4*uint64(tt.off))[:4], 0)
			}
			regs := fetch.Regs{}
			for i := range regs.GPR {
				regs.GPR[i] = uint64(i) * 0x1111_1111_1111
			}
			if !tt.dead { // else the cases' end compares flags that may change
				m.runCounted(d, &regs, cases, tt.probes, tt.off, tt.cpus != 0)
			}

			regs.GPR[fetch.SP] = stackAt + stackSize - 4096
			regs.Flags = 0x302 | 0x8d5 // step
			m.setCase(0, d.Base, &regs, &fetch.Vector{})
			counted := func() (n int) {
				for _, id := range tt.probes {
					n += int(m.counter(id, ring.CounterHits) + m.counter(id, ring.CounterHits+ring.CounterSeq))
				}
				return n
			}
			flags := uint64(0xcd5)
			if tt.dead {
				flags = 0x400
			}
			before, inside := counted(), 0
			var took []int
			for _, st := range m.step(d) {
				now := st.regs
				n, ok, err := d.Undo(&now, st.mem)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					inside++
					took = append(took, n)
				}
				if now.GPR != regs.GPR || (now.Flags^regs.Flags)&flags != 0 {
					t.Errorf("at %#x: registers %x, flags %#x; want %x, %#x", st.regs.IP, now.GPR, now.Flags, regs.GPR, regs.Flags)
				}
			}
			if inside < 10*len(probes) {
				t.Errorf("%d instructions in the frame", inside)
			}
			if off := int(b2i(tt.off != 0)); counted()-before != len(probes)-off {
				t.Errorf("stepped, %d were counted", counted()-before)
			}
			if !slices.IsSorted(took) {
				t.Errorf("hits that were taken, from instruction to instruction: %v", took)
			}
		})
	}
}
