package detour

import (
	"encoding/binary"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// At every instruction of the shared code a thread has the frame of the detour
// that led there, at its link: its registers can be told, and it goes on there.
func TestUnwindShared(t *testing.T) {
	const slot = dataAt + 0x2800
	prog := must(t, "r f v=$retval a=$arg1")
	probe := Probe{ID: 1, Program: prog}
	type built = func(base uint64, tail func(*asm.Code) error) (*Detour, error)
	for _, tt := range []struct {
		name   string
		least  int // instructions in the shared code
		missed uint64
		build  func(m *machine, s *Shared) built
	}{
		{"no room for a call", 40, 1, func(m *machine, s *Shared) built {
			k := m.calls(prog, s, 3)
			for row := range k.Count {
				m.put64(k.Addr+uint64(k.offset(row)), slot+8*uint64(row+1))
			}
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				return BuildEnter(base, m.params(), nil, probe, k, tail)
			}
		}},
		{"room in another row", 15, 0, func(m *machine, s *Shared) built {
			k := m.calls(prog, s, 3)
			for row := range k.Count { // all but that before the slot's own
				if row != (firstRow(k, slot)+2)%3 {
					m.put64(k.Addr+uint64(k.offset(row)), slot+8*uint64(row+1))
				}
			}
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				in := Probe{ID: 2, Program: must(t, "p f a=+0($arg2):u64")}
				return BuildEnter(base, m.params(), []Probe{in}, probe, k, tail)
			}
		}},
		{"a call in another row", 15, 0, func(m *machine, s *Shared) built {
			k := m.calls(prog, s, 3)
			first := firstRow(k, slot)
			binary.LittleEndian.PutUint32(m.at(k.Addr + uint64(k.offset(first)) + callReach)[:4], 2)
			m.put64(k.Addr+uint64(k.offset((first+2)%3)), slot)
			m.put64(k.Addr+uint64(k.offset((first+2)%3))+callReturn, m.get64(slot))
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				return BuildLeave(base, m.params(), probe, k, 0, tail)
			}
		}},
		{"an address that ends as a return trampoline's", 5, 0, func(m *machine, s *Shared) built {
			k := m.calls(prog, s, 3)
			m.put64(slot, m.code&^31+32+trampolineOff)
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				return BuildEnter(base, m.params(), nil, probe, k, tail)
			}
		}},
		{"texts", 60, 0, func(m *machine, s *Shared) built {
			copy(m.at(dataAt), "what the text says\x00and another\x00abc\x00")
			probe := Probe{ID: 1, Program: must(t, "p f a=+0(%si):string b=+19(%si):string c=+31(%si):string d=+0(%di):string if a ~ \"what*\"")}
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				p := *m.params()
				p.Shared = s
				return Build(base, &p, []Probe{probe}, tail)
			}
		}},
		{"what may not be there", 100, 0, func(m *machine, s *Shared) built {
			m.careful = true
			m.texts = m.common(m.params())
			copy(m.at(dataAt+4000), "a text of a page and another, which has to be asked for as well as the first, since it lies in both of them\x00")
			probe := Probe{ID: 1, Program: must(t, "p f a=+0(%si):u64 b=+4093(%si):u32 c=+4000(%si):string d=+0(%di):u8")}
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				return Build(base, m.params(), []Probe{probe}, tail)
			}
		}},
		{"no instance", 60, 1, func(m *machine, s *Shared) built {
			pool, err := NewPool(poolAt, prog, 9, maxStripes)
			if err != nil {
				t.Fatal(err)
			}
			copy(m.at(pool.Addr), pool.Head(s))
			for stripe := range pool.Stripes {
				m.put64(pool.Addr+uint64(stripe*stripeSize), 0)
			}
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				r, err := BuildReturn(base, m.params(), probe, pool, tail)
				if err != nil {
					return nil, err
				}
				return &r.Detour, nil
			}
		}},
		{"the CPU keeps no instance", 40, 0, func(m *machine, _ *Shared) built {
			pool, err := NewPool(poolAt, prog, 8, maxStripes)
			if err != nil {
				t.Fatal(err)
			}
			m.rseq, pool.Keeps = rseqArea(t), true
			m.texts = m.common(m.params())
			copy(m.at(pool.Addr), pool.Head(m.texts))
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				r, err := BuildReturn(base, m.params(), probe, pool, tail)
				if err != nil {
					return nil, err
				}
				return &r.Detour, nil
			}
		}},
		{"an instance of another stripe", 15, 0, func(m *machine, s *Shared) built {
			pool, err := NewPool(poolAt, prog, 4, maxStripes)
			if err != nil {
				t.Fatal(err)
			}
			copy(m.at(pool.Addr), pool.Head(s))
			pool.Stripes = 1 // whichever CPU it runs on, its stripe is empty
			m.put64(pool.Addr, 0)
			return func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				r, err := BuildReturn(base, m.params(), probe, pool, tail)
				if err != nil {
					return nil, err
				}
				return &r.Detour, nil
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, 1, 64<<10, shared{logAt, 0, 4 << 20, protRW})
			s := m.common(m.params())
			m.put64(slot, 0x4242)
			d, err := m.place(tt.build(m, s))
			if err != nil {
				t.Fatal(err)
			}
			regs := fetch.Regs{Flags: 0x100 | 0x8d7}
			for i := range regs.GPR {
				regs.GPR[i] = uint64(i) * 0x1111_1111_1111
			}
			regs.GPR[fetch.SP], regs.GPR[fetch.SI] = slot, dataAt
			m.setCase(0, d.Base, &regs, &fetch.Vector{})
			inside := 0
			from := s.Base
			if m.careful || m.rseq != 0 {
				s = m.texts
			}
			for _, st := range m.step(&Detour{Base: from, Code: make([]byte, d.Base+uint64(len(d.Code))-from)}) {
				now := st.regs
				at, ok, err := s.Caller(now.IP, now.GPR[fetch.SP], st.mem)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					continue
				}
				inside++
				now.IP = at
				if ok, err = d.Unwind(&now, st.mem); !ok || err != nil {
					t.Fatalf("at +%#x, link %#x: in a frame %v, %v", st.regs.IP-s.Base, at, ok, err)
				}
				if now.GPR != regs.GPR || (now.Flags^regs.Flags)&0xcd5 != 0 {
					t.Errorf("at +%#x: registers %x, flags %#x; want %x, %#x", st.regs.IP-s.Base, now.GPR, now.Flags, regs.GPR, regs.Flags)
				}
			}
			if n := m.counter(1, ring.CounterMissed); inside < tt.least || n != tt.missed {
				t.Errorf("%d instructions in the shared code, %d calls missed; want %d, %d", inside, n, tt.least, tt.missed)
			}
		})
	}
}

// calls lays out the calls of a program.
func (m *machine) calls(prog *fetch.Program, s *Shared, count int) Calls {
	k, err := NewCalls(poolAt, prog, count)
	if err != nil {
		m.t.Fatal(err)
	}
	copy(m.at(k.Addr), k.Head(s))
	return k
}

// firstRow is the row that a slot is looked for at first.
func firstRow(k Calls, slot uint64) int {
	return int(uint64(uint32(slot)*golden32u) * uint64(k.Count) >> 32)
}

// What can't be read of a stack is an error; other code isn't the shared one's.
func TestSharedCaller(t *testing.T) {
	s, err := BuildShared(codeAt, &Params{})
	if err != nil {
		t.Fatal(err)
	}
	end := s.Base + uint64(len(s.Code))
	stack := logged{0x1000, binary.LittleEndian.AppendUint64(nil, 0x4242)}
	for _, tt := range []struct {
		ip, sp uint64
		ok     bool
		err    bool
	}{{s.Base, 0x1000, true, false}, {end - 1, 0x1000, true, false}, {s.Base - 1, 0x1000, false, false}, {end, 0x1000, false, false}, {s.Base, 0x2000, false, true}} {
		at, ok, err := s.Caller(tt.ip, tt.sp, stack)
		if ok != tt.ok || (err != nil) != tt.err || ok && at != 0x4242 {
			t.Errorf("Caller(%#x, %#x) = %#x, %v, %v", tt.ip, tt.sp, at, ok, err)
		}
	}
}

// Handlers that interrupt the shared code at any instruction, and need it
// themselves: each call is followed or counted as missed. It runs until enough
// of them came and calls of both probes were missed.
func TestSharedInterrupted(t *testing.T) {
	const threads, n, rounds, signals = 4, 100000, 200, 100
	g := newTarget(t, 4<<20)
	g.pools = seenPoolAt
	prog := g.program("r f v=$retval")
	g.function(func(c *asm.Code, _ asm.Label) { c.Ret() }, g.returns(1, "r f v=$retval", 2, nil))
	k := g.exits(2, "r f v=$retval", 2, func(c *asm.Code, _ asm.Label, leave leaver) { leave() })
	var vals []fetch.Value
	got := map[uint32]uint64{}
	var calls, came uint64
	for round := 0; came < signals || g.counts(1).Missed == 0 || g.counts(2).Missed == 0; round++ {
		if round == rounds {
			t.Errorf("%d signals came, the probes missed %d and %d calls", came, g.counts(1).Missed, g.counts(2).Missed)
			break
		}
		sums := g.run("signal", threads, n, func(r *ring.Record) error {
			got[r.ID]++
			var err error
			if vals, err = prog.Decode(r.Data[:len(r.Data)-ReturnTail], vals); err != nil || vals[0].Int >= n {
				t.Errorf("probe %d: %+v, %v", r.ID, vals, err)
			}
			return nil
		})
		for _, s := range sums[:threads] {
			if want := uint64(n * (n - 1)); s != want {
				t.Errorf("sum %d, want %d", s, want)
			}
		}
		calls, came = calls+threads*n+sums[threads], came+sums[threads]
		if u := g.inUse(k); u != 0 {
			t.Errorf("%d calls are left", u)
		}
	}
	for id := range uint32(2) {
		c := g.counts(id + 1)
		if c.Hits+c.Missed != calls || c.Hits != got[id+1]+c.Lost {
			t.Errorf("probe %d: %+v and %d records, want %d hits and missed calls", id+1, c, got[id+1], calls)
		}
	}
}
