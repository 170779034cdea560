package detour

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// TestTally: what a tally counts is counted once, in the way that the thread's area allows,
// where the probe is switched on; no register and no flag changes, and at each instruction
// of it and of its detours the program's registers can be told.
func TestTally(t *testing.T) {
	const far = 0x2900_0000_0000
	for _, tt := range []struct {
		name   string
		rseq   int32
		base   uint64 // of the tally; 0: behind the other code
		probes []uint32
		off    uint32 // the probe that is switched off
		exit   bool
	}{
		{name: "locked", probes: []uint32{1}},
		{name: "in a sequence", rseq: rseqArea(t), probes: []uint32{1}},
		{name: "switched off", rseq: rseqArea(t), probes: []uint32{1}, off: 1},
		{name: "several probes", rseq: rseqArea(t), probes: []uint32{1, 900, 3}, off: 900},
		{name: "at a return", probes: []uint32{7}, exit: true},
		{name: "far away", rseq: rseqArea(t), base: far, probes: []uint32{1, 900}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const cases = 64
			m := newMachine(t, cases, 64<<10, shared{logAt, 0, 4 << 20, protRW}, shared{far, 0, 8192, protRX})
			m.rseq = tt.rseq
			base := tt.base
			if base == 0 {
				base = m.code
			}
			p := *m.params()
			s, err := BuildTally(base, &p, nil)
			if err != nil {
				t.Fatal(err)
			}
			copy(m.at(base), s.Code)
			if tt.base == 0 {
				m.code = (m.code + uint64(len(s.Code)) + 63) &^ 63
			}
			p.Tally = s
			var probes []Probe
			for _, id := range tt.probes {
				probes = append(probes, Probe{ID: id, Program: must(t, "p f a=%di"), CountOnly: true})
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
			if most := 40*len(probes) + 40; len(d.Code) > most {
				t.Errorf("a detour of %d bytes, more than %d", len(d.Code), most)
			}
			if tt.off != 0 {
				binary.LittleEndian.PutUint32(m.at(flagsAt + 4*uint64(tt.off))[:4], 0)
			}
			regs := fetch.Regs{Flags: 0x202}
			for i := range regs.GPR {
				regs.GPR[i] = uint64(i) * 0x1111_1111_1111
			}
			m.runCounted(d, &regs, cases, tt.probes, tt.off, tt.rseq != 0)
			if tt.base != 0 {
				return
			}

			regs.Flags |= 0x100 // step
			m.setCase(0, d.Base, &regs, &fetch.Vector{})
			var took []int
			counted := func() (n int) {
				for _, id := range tt.probes {
					n += int(m.counter(id, ring.CounterHits) + m.counter(id, ring.CounterHits+ring.CounterSeq))
				}
				return n
			}
			before, inside := counted(), 0
			for _, st := range m.step(&Detour{Base: s.Base, Code: make([]byte, d.Base+uint64(len(d.Code))-s.Base)}) {
				now := st.regs
				in, err := s.Caller(&now, st.mem)
				if err != nil {
					t.Fatal(err)
				}
				if in {
					inside++
				}
				n, ok, err := d.Undo(&now, st.mem)
				if err != nil || in && !ok && now.IP != d.Copy() && !tt.exit {
					t.Fatalf("at %#x: led to %#x, which is in no frame, %v", st.regs.IP, now.IP, err)
				}
				if ok {
					took = append(took, n)
				}
				if now.GPR != regs.GPR || (now.Flags^regs.Flags)&0xcd5 != 0 {
					t.Errorf("at %#x: registers %x, flags %#x; want %x, %#x", st.regs.IP, now.GPR, now.Flags, regs.GPR, regs.Flags)
				}
			}
			if inside < 15*len(probes) {
				t.Errorf("%d instructions in the tally", inside)
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

// TestTallyCaller: a thread elsewhere stays as it is, a stack that can't be read is an error.
func TestTallyCaller(t *testing.T) {
	s, err := BuildTally(codeAt, &Params{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := s.Base + uint64(len(s.Code))
	stack := logged{0x1000, make([]byte, tallyDepth)}
	binary.LittleEndian.PutUint64(stack.bytes, 0x4242)
	for _, tt := range []struct {
		ip, sp uint64
		ok     bool
		err    bool
		to     string
	}{
		{s.Base, 0x1000, true, false, fmt.Sprintf("%#x %#x", 0x4241, 0x1008)}, {s.Base - 1, 0x1000, false, false, ""},
		{end, 0x1000, false, false, ""}, {s.Base, 0x8000, false, true, ""},
	} {
		r := fetch.Regs{IP: tt.ip}
		r.GPR[fetch.SP] = tt.sp
		was := r
		ok, err := s.Caller(&r, stack)
		if got := fmt.Sprintf("%#x %#x", r.IP, r.GPR[fetch.SP]); ok != tt.ok || (err != nil) != tt.err || ok && got != tt.to || !ok && r != was {
			t.Errorf("Caller at %#x, %#x: %s, %v, %v", tt.ip, tt.sp, got, ok, err)
		}
	}
}

// TestTallied: what else is to be done at a hit isn't a tally's.
func TestTallied(t *testing.T) {
	s, err := BuildTally(codeAt, &Params{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	probe := Probe{ID: 1, Program: must(t, "p f"), CountOnly: true}
	for name, change := range map[string]func(p *Params, x *Probe){
		"records":          func(_ *Params, x *Probe) { x.CountOnly = false },
		"a filter":         func(_ *Params, x *Probe) { x.Program = must(t, "p f a=%di if a == 3") },
		"no red zone":      func(p *Params, _ *Probe) { p.NoRedZone = true },
		"a small stack":    func(p *Params, _ *Probe) { p.MaxStack = 100 },
		"a gate":           func(p *Params, _ *Probe) { p.Gate = flagsAt },
		"a result":         func(_ *Params, x *Probe) { x.Inject = &Injection{} },
		"no tally":         func(p *Params, _ *Probe) { p.Tally = nil },
		"births":           func(_ *Params, x *Probe) { x.Birth = &Birth{} },
		"limits, triggers": func(_ *Params, x *Probe) { x.Control = &Control{} },
	} {
		p, x := Params{Tally: s}, probe
		if !p.tallies([]Probe{x}) {
			t.Fatal("a counted hit isn't a tally's")
		}
		if change(&p, &x); p.tallies([]Probe{x}) {
			t.Errorf("%s: it is a tally's", name)
		}
	}
}

// runCounted runs a detour that only counts in a number of cases, with different flags, and checks the
// cases and what each probe has counted: nothing where it is off, and nearly all in sequences, or none.
func (m *machine) runCounted(d *Detour, regs *fetch.Regs, cases int, probes []uint32, off uint32, sequences bool) {
	m.t.Helper()
	for i := range cases {
		regs.GPR[fetch.SP] = stackAt + stackSize*uint64(i+1) - 4096
		regs.Flags = 0x202
		for k, bit := range []uint64{1 << 0, 1 << 2, 1 << 4, 1 << 6, 1 << 7, 1 << 11} {
			regs.Flags |= bit * uint64(i>>k&1)
		}
		m.setCase(i, d.Base, regs, &fetch.Vector{})
	}
	m.run(cases)
	for i := range cases {
		m.checkCase(i)
	}
	for _, id := range probes {
		locked, inSequence := m.counter(id, ring.CounterHits), m.counter(id, ring.CounterHits+ring.CounterSeq)
		want := uint64(cases)
		if id == off {
			want = 0
		}
		if locked+inSequence != want || !sequences && inSequence != 0 || sequences && inSequence+inSequence/9 < want {
			m.t.Errorf("probe %d: %d counted, %d of them in sequences; want %d", id, locked+inSequence, inSequence, want)
		}
	}
}
