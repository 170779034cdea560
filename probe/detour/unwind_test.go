package detour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os/exec"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/asm"
	"kprobe/symbols"
)

const logAt = 0x2800_0000_0000

// logged is the memory of a thread as detour_step.c kept it: the bytes from
// its stack pointer on.
type logged struct {
	sp    uint64
	bytes []byte
}

var errNotLogged = errors.New("not logged")

func (l logged) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	off := uint64(at) - l.sp
	if off > uint64(len(l.bytes)) || off+uint64(len(b)) > uint64(len(l.bytes)) {
		return 0, errNotLogged
	}
	return copy(b, l.bytes[off:]), nil
}

// pooled is the logged stack, and a pool.
type pooled struct {
	logged
	at   uint64
	pool []byte
}

func (p pooled) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	if off := uint64(at) - p.at; off < uint64(len(p.pool)) {
		return copy(b, p.pool[off:]), nil
	}
	return p.logged.ReadMemory(b, at)
}

// stepped is a thread before an instruction.
type stepped struct {
	regs fetch.Regs
	mem  logged
	data [8]uint64 // what stepOver was to watch
}

// step runs the machine's first case, instruction by instruction, and gives
// those in the detour.
func (m *machine) step(d *Detour) []stepped { return m.stepOver(d, 0) }

// stepOver is step, and also keeps 64 bytes of memory at an address, unless that is 0.
func (m *machine) stepOver(d *Detour, data uint64) []stepped {
	m.t.Helper()
	return m.stepWithin(d.Base, d.Base+uint64(len(d.Code)), data)
}

// stepWithin is stepOver for the instructions in [from, to).
func (m *machine) stepWithin(from, to, data uint64) []stepped {
	m.t.Helper()
	m.put64(logAt, 0)
	var args []string
	for _, v := range []uint64{m.enter, caseAt, from, to, logAt, m.fallback.Handler, m.fallback.Restorer, data} {
		args = append(args, hex(v))
	}
	if out, err := exec.Command(fixture.Build(m.t, "detour_step.c", "-O1"), append([]string{m.path}, args...)...).CombinedOutput(); err != nil {
		m.t.Fatalf("%v %s", err, out)
	}
	var steps []stepped
	for i := range m.get64(logAt) {
		e := m.at(logAt + 4096 + 2048*i)[:2048]
		var s stepped
		s.regs.IP = binary.LittleEndian.Uint64(e)
		for k := range s.regs.GPR {
			s.regs.GPR[k] = binary.LittleEndian.Uint64(e[8+8*k:])
		}
		s.regs.Flags = binary.LittleEndian.Uint64(e[17*8:])
		for k := range s.data {
			s.data[k] = binary.LittleEndian.Uint64(e[(18+k)*8:])
		}
		s.mem = logged{s.regs.GPR[fetch.SP], e[256:]}
		steps = append(steps, s)
	}
	return steps
}

// At every single instruction of a detour the program's registers can be told.
func TestUnwindEveryInstruction(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		rseq       int32
		careful    bool
		full       bool // the ring, whose records are overwritten
	}{
		{"scalars", "p f a=%di b=+8(%si):u32", 0, false, false},
		{"overwriting", "p f a=%di b=+8(%si):u32", 0, true, true},
		{"text and fault", "p f a=%di s=+0(%r12):string b=+8(%r13):u32 if a != 3", 0, false, false},
		{"flags, arrays, name", "p f a=%flags b=+0(%si):u32[64] c=+0(%r13):u32[64] d=$comm", 0, false, false},
		{"filtered", "p f a=%di if a == 3", 0, false, false},
		{"sequence", "p f a=%di b=+8(%si):u32", rseqArea(t), false, false}, // aborted, as all that are stepped
		{"sequence and text", "p f a=%di s=+0(%r12):string b=+8(%r13):u32 if a != 3", rseqArea(t), false, false},
		{"filtered in a sequence", "p f a=%di if a == 3", rseqArea(t), false, false},
		{"asked before", "p f a=%di s=+0(%r12):string b=+8(%r13):u32 c=+4(%si):u64", 0, true, false},
	} {
		for _, dead := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, flags dead: %v", tt.name, dead), func(t *testing.T) {
				r := rand.New(rand.NewSource(1))
				m := newMachine(t, 1, 8192, shared{logAt, 0, 4 << 20, protRW})
				m.rseq = tt.rseq
				if tt.careful {
					m.carefully()
				}
				prog, err := compile(tt.text)
				if err != nil {
					t.Fatal(err)
				}
				d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
					p := m.params()
					p.FlagsDead = dead
					if p.Overwrite = tt.full; tt.full {
						m.fillRingOf(99, 2, 3)
					}
					return Build(base, p, []Probe{{ID: 1, Program: prog}}, tail)
				})
				if err != nil {
					t.Fatal(err)
				}
				var regs fetch.Regs
				for i := range regs.GPR {
					regs.GPR[i] = r.Uint64()
				}
				regs.GPR[fetch.SP] = stackAt + stackSize - 4096
				regs.GPR[fetch.SI] = dataAt
				regs.GPR[fetch.R12] = dataAt + 5
				copy(m.at(dataAt), "what the text says\x00")
				regs.Flags = 0x100 | 0x8d7
				m.setCase(0, d.Base, &regs, &fetch.Vector{})
				steps := m.step(d)
				in, outside := 0, 0
				for _, st := range steps {
					now := st.regs
					at := now.IP - d.Base
					ok, err := d.Unwind(&now, st.mem)
					if err != nil {
						t.Errorf("at +%#x: %v", at, err)
					}
					if ok {
						in++
					} else {
						outside++
					}
					changed := (now.Flags ^ regs.Flags) & 0xcd5
					if dead && !prog.Reads(fetch.RegFlags) {
						changed &^= arithFlags
					}
					if now.GPR != regs.GPR || changed != 0 {
						t.Errorf("at +%#x (in frame %v): registers %x, flags %#x; want %x, %#x", at, ok, now.GPR, now.Flags, regs.GPR, regs.Flags)
					}
				}
				if in < 20 || outside != 1 {
					t.Errorf("%d instructions in the frame, %d outside", in, outside)
				}
			})
		}
	}
}

// What can't be read is an error, and the registers stay.
func TestUnwindUnreadable(t *testing.T) {
	prog, err := compile("p f a=%di")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Build(codeAt, &Params{}, []Probe{{ID: 1, Program: prog}}, func(c *asm.Code) error { c.Ret(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	failed := false
	for off := range uint64(len(d.Code) + 1) {
		r := fetch.Regs{IP: codeAt + off}
		was := r
		ok, err := d.Unwind(&r, logged{})
		failed = failed || err != nil
		if (err != nil || !ok) && r != was {
			t.Errorf("at +%#x: changed with %v, %v", off, ok, err)
		}
	}
	if !failed {
		t.Error("no address needs memory")
	}
}

// A return probe's code shows the registers of the entry, and in the return trampoline
// those after the return.
func TestUnwindReturn(t *testing.T) {
	const text = "r f v=$retval a=$arg1 s=+0($arg2):string"
	t.Run("text", func(t *testing.T) { unwindReturn(t, text, 0, false) })
	t.Run("text, flags dead", func(t *testing.T) { unwindReturn(t, text, 0, true) })
	t.Run("kept", func(t *testing.T) { unwindReturn(t, "r f", rseqArea(t), false) })
	t.Run("kept, flags dead", func(t *testing.T) { unwindReturn(t, "r f", rseqArea(t), true) })
}

func unwindReturn(t *testing.T, def string, rseq int32, dead bool) {
	t.Helper()
	m := newMachine(t, 1, 8192, shared{logAt, 0, 4 << 20, protRW})
	m.rseq = rseq
	prog := must(t, def)
	pool, err := NewPool(poolAt, prog, 8, maxStripes)
	if err != nil {
		t.Fatal(err)
	}
	pool.Keeps = rseq != 0
	copy(m.at(poolAt), pool.Head(m.common(m.params())))
	var r *Return
	d, err := m.place(func(base uint64, _ func(*asm.Code) error) (*Detour, error) {
		var err error
		p := m.params()
		p.FlagsDead = dead
		r, err = BuildReturn(base, p, Probe{ID: 1, Program: prog}, pool, func(c *asm.Code) error {
			c.Lea(asm.AX, asm.At(asm.DI, 5)) // the function
			c.Ret()
			return nil
		})
		if err != nil {
			return nil, err
		}
		return &r.Detour, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	entry := fetch.Regs{Flags: 0x100 | 0x8d7}
	for i := range entry.GPR {
		entry.GPR[i] = uint64(i) * 0x1111_1111_1111
	}
	entry.GPR[fetch.SP] = stackAt + stackSize - 4096
	entry.GPR[fetch.SI] = dataAt
	m.put64(entry.GPR[fetch.SP], m.after)
	m.setCase(0, d.Base, &entry, &fetch.Vector{})
	left := entry
	left.GPR[fetch.AX] = entry.GPR[fetch.DI] + 5
	left.GPR[fetch.SP] += 8
	compared := uint64(0xcd5)
	if dead {
		compared &^= arithFlags // lea leaves them as they are
	}
	returned, frames, leaves := false, [2]int{}, [2]int{}
	steps := m.step(d)
	poolMem := append([]byte(nil), m.at(poolAt)[:pool.Size()]...)
	for n := range pool.Count { // as while they are in use
		binary.LittleEndian.PutUint32(poolMem[pool.offset(n+1)+instTID:], 1)
	}
	for _, st := range steps {
		now := st.regs
		gone := now
		if ok, err := r.Leave(&gone, pooled{st.mem, poolAt, poolMem}, 77); err != nil {
			t.Fatal(err)
		} else if ok {
			place, want := uint64(77), entry
			if gone.IP == m.after {
				place, want = m.after, left
			}
			leaves[b2i(gone.IP == m.after)]++
			if gone.IP != place || gone.GPR != want.GPR || (gone.Flags^want.Flags)&compared != 0 || returned && place == 77 {
				t.Errorf("from +%#x to %#x: registers %x, flags %#x; want %x, %#x", now.IP-d.Base, gone.IP, gone.GPR, gone.Flags, want.GPR, want.Flags)
			}
		}
		ok, err := d.Unwind(&now, st.mem)
		if err != nil {
			t.Fatal(err)
		}
		want := entry
		if returned = returned || now.IP == r.Trampoline(r.Instance(now.IP)); returned {
			want = left
		}
		if !ok {
			continue
		}
		frames[b2i(returned)]++
		if now.GPR != want.GPR || (now.Flags^want.Flags)&compared != 0 {
			t.Errorf("at +%#x, returned %v: registers %x, flags %#x; want %x, %#x", now.IP-d.Base, returned, now.GPR, now.Flags, want.GPR, want.Flags)
		}
	}
	if frames[0] < 30 || frames[1] < 30 {
		t.Errorf("%d instructions in frames", frames)
	}
	if leaves[0] != frames[0]+2 || leaves[1] != frames[1]+3 {
		t.Errorf("%d instructions left, %d in frames: the stubs have 2 and 3", leaves, frames)
	}
}
