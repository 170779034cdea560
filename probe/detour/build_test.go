package detour

import (
	"encoding/binary"
	"errors"
	"math/rand"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

func must(t testing.TB, text string) *fetch.Program {
	t.Helper()
	p, err := compile(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func noTail(c *asm.Code) error { c.Ret(); return nil }

// anyShared is shared code for detours that don't run.
func anyShared(t testing.TB) *Shared {
	t.Helper()
	s, err := BuildShared(codeAt+1<<40, &Params{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUnsupported(t *testing.T) {
	deep := "p f"
	for range 128 {
		deep += " +0(%di):string"
	}
	for _, tt := range []struct {
		name, text string
		p          Params
		want       bool // ErrUnsupported
	}{
		{"plain", "p f %di", Params{}, false},
		{"path", "p f %di:%pd", Params{}, false},
		{"path without system calls", "p f %di:%pd", Params{NoSyscall: true, TID: TID{Seg: asm.FS}}, true},
		{"path without /proc", "p f %di:%pd", Params{NoProc: true}, true},
		{"path in a filter", `p f a=%di:%pd if a == "/x" || a ~ "/tmp/*"`, Params{}, false},
		{"end of a path in a filter", `p f a=%di:%pd if a ~ "*.c"`, Params{}, true},
		{"paths on a small stack", "p f %di:%pd %si:%pd %dx:%pd", Params{MaxStack: 800}, true},
		{"symbol's text", "p f %di:symstr", Params{}, false},
		{"symbol's text in a filter", `p f a=%di:symstr if a ~ "m*"`, Params{}, true},
		{"name", "p f $comm", Params{}, false},
		{"name without system calls", "p f $comm", Params{NoSyscall: true}, true},
		{"name in a filter without system calls", `p f if comm == "a"`, Params{NoSyscall: true, TID: TID{Seg: asm.FS}}, true},
		{"thread without system calls", "p f %di", Params{NoSyscall: true}, true},
		{"thread by a path without system calls", "p f %di", Params{NoSyscall: true, TID: TID{Seg: asm.FS, Path: []int32{8}}}, true},
		{"thread in the control block", "p f %di", Params{NoSyscall: true, TID: TID{Seg: asm.FS}}, false},
		{"fs base", "p f %fs_base", Params{}, true},
		{"fs base allowed", "p f %fs_base", Params{FSGSBase: true}, false},
		{"fs base that only a control block tells, if it is one", "p f %fs_base", Params{TID: TID{Seg: asm.FS}}, true},
		{"gs base in a control block", "p f %gs_base", Params{TID: TID{Seg: asm.FS}}, true},
		{"time", "p f t=$time", Params{}, false},
		{"time in a filter", "p f t=$time if t > 5", Params{Clock: cpusAt}, false},
		{"half of the time", "p f t=$time:u32", Params{Clock: cpusAt}, false},
		{"time in a filter without a clock", "p f t=$time if t > 5", Params{}, true},
		{"too much stack", deep, Params{}, true},
		{"small stack", "p f a=%di b=%si", Params{MaxStack: 64, TID: TID{Seg: asm.FS}}, false},
		{"text on a small stack", "p f s=+0(%di):string", Params{MaxStack: 64, TID: TID{Seg: asm.FS}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.p.Shared = anyShared(t)
			d, err := Build(codeAt, &tt.p, []Probe{{ID: 1, Program: must(t, tt.text)}}, noTail)
			if errors.Is(err, ErrUnsupported) != tt.want || (err == nil) == tt.want || (d == nil) != (err != nil) {
				t.Errorf("error %v, want unsupported %v", err, tt.want)
			}
		})
	}
	for _, id := range []uint32{0, ring.MaxID + 1} {
		if _, err := Build(codeAt, &Params{}, []Probe{{ID: id, Program: must(t, "p f")}}, noTail); err == nil {
			t.Errorf("probe %d is built", id)
		}
	}
	failed := errors.New("tail")
	if _, err := Build(codeAt, &Params{}, []Probe{{ID: 1, Program: must(t, "p f")}}, func(*asm.Code) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a tail that fails gives %v", err)
	}
	if _, err := BuildReturn(codeAt, &Params{}, Probe{ID: 1, Program: must(t, `r f a=%di:symstr if a == "x"`)}, Pool{Count: 1, Shift: 6, Stripes: 1}, noTail); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a return probe of a symbol's text: %v", err)
	}
	for _, pool := range []Pool{{}, {Count: 1, Shift: 6, Stripes: 3}, {Count: 1, Shift: 60, Stripes: 1}, {Count: MaxInstances + 1, Shift: 6, Stripes: 1}} {
		if _, err := BuildReturn(codeAt, &Params{}, Probe{ID: 1, Program: must(t, "r f")}, pool, noTail); err == nil {
			t.Errorf("a return probe with the pool %+v", pool)
		}
	}
}

// Ways to the CPU, to the stack, and to several probes at one place.
func TestVariants(t *testing.T) {
	texts := []string{"p f a=%di b=$stack1 s=+0(%si):string", "p f a=%ax b=+0(%si):u8[50] f=%flags", "p f a=%cx if a == 1", "p f n=$comm t=$tid"}
	m := newMachine(t, 3, 64<<10)
	copy(m.at(dataAt), "text\x00")
	var probes []Probe
	for i, text := range texts {
		probes = append(probes, Probe{ID: uint32(i + 1), Program: must(t, text)})
	}
	binary.LittleEndian.PutUint32(m.at(flagsAt+4*5), 0)
	disabled := Probe{ID: 5, Program: must(t, "p f a=%di")}
	probes = append(probes, disabled)
	r := rand.New(rand.NewSource(7))
	for i := range 3 {
		p := *m.params()
		p.Rdpid = p.Rdpid && i == 0
		p.NoRedZone = i == 1
		if i == 2 {
			p.TID = TID{}
		}
		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return Build(base, &p, probes, tail)
		})
		if err != nil {
			t.Fatal(err)
		}
		var regs fetch.Regs
		for k := range regs.GPR {
			regs.GPR[k] = r.Uint64()
		}
		regs.GPR[fetch.SP] = stackAt + stackSize*uint64(i+1) - 256
		regs.GPR[fetch.SI] = dataAt
		regs.Flags = 2 | 0x8d5
		m.setCase(i, d.Base, &regs, &fetch.Vector{})
	}
	tid := m.run(3)
	ids := []uint32{1, 2, 4}
	head := uint64(0)
	for i := range 3 {
		m.checkCase(i)
		for _, id := range ids {
			rec := m.at(ringAt + head)
			got, units, committed := ring.SplitState(binary.LittleEndian.Uint32(rec))
			if got != id || !committed || binary.LittleEndian.Uint32(rec[4:]) != uint32(tid) {
				t.Fatalf("variant %d: record of probe %d, want %d, committed %v", i, got, id, committed)
			}
			head += uint64(units) * ring.Unit
		}
	}
	if now := m.get64(cpusAt + ring.HeadOff); now != head {
		t.Errorf("%d bytes of records more", now-head)
	}
	for id := range uint32(5) {
		if h, f := m.counter(id+1, ring.CounterHits), m.counter(id+1, ring.CounterFiltered); h != 0 || f != 3*b2i(id+1 == 3) {
			t.Errorf("probe %d: %d hits without records, %d filtered", id+1, h, f)
		}
	}
}

// An exit site records what is in the registers when the function is left,
// and where it goes.
func TestExit(t *testing.T) {
	m := newMachine(t, 1, 16<<10)
	prog := must(t, "r f v=$retval sp=$stack ip=%ip up=$stack0 s=+0(%si):string")
	d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
		return BuildExit(base, m.params(), []Probe{{ID: 2, Program: prog}}, func(c *asm.Code) error {
			c.OpImm(asm.Add, asm.W64, asm.AX, 1) // displaced
			return nil
		}, func(c *asm.Code) error { c.Ret(); return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(m.at(dataAt), "at the exit\x00")
	regs := fetch.Regs{Flags: 2}
	sp := uint64(stackAt + 4096)
	regs.GPR[fetch.SP], regs.GPR[fetch.AX], regs.GPR[fetch.SI] = sp, 41, dataAt
	m.put64(sp, m.after)
	m.put64(sp+8, 0x5757)
	m.setCase(0, d.Base, &regs, &fetch.Vector{})
	m.run(1)
	out := m.at(caseAt)[caseOut:]
	if ax, nsp := binary.LittleEndian.Uint64(out), binary.LittleEndian.Uint64(out[8*asm.SP:]); ax != 42 || nsp != sp+8 {
		t.Errorf("returns %d with sp %+d", ax, int64(nsp-sp))
	}
	rec := m.at(ringAt)
	_, units, committed := ring.SplitState(binary.LittleEndian.Uint32(rec))
	data := rec[ring.DataOff : units*ring.Unit]
	vals, err := prog.Decode(data[:len(data)-ReturnTail], nil)
	if err != nil || !committed {
		t.Fatal(err, committed)
	}
	ra := binary.LittleEndian.Uint64(data[len(data)-ReturnTail:])
	if vals[0].Int != 42 || vals[1].Int != sp+8 || vals[2].Int != m.after || vals[3].Int != 0x5757 || string(vals[4].Bytes) != "at the exit" || ra != m.after {
		t.Errorf("%+v to %#x", vals, ra)
	}
}

func BenchmarkBuild(b *testing.B) {
	prog := must(b, "p f a=%di b=+0(%si):u32 s=+0(%si):string if a > 3")
	p := &Params{TID: TID{Seg: asm.FS, Off: 0x2d0}, Rdpid: true, RingSize: 1 << 20, Shared: anyShared(b)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Build(codeAt, p, []Probe{{ID: 1, Program: prog}}, noTail); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzBuild feeds what no compiler makes: errors are welcome, panics are not.
func FuzzBuild(f *testing.F) {
	f.Add(uint8(0), uint8(0), uint8(8), uint8(0), uint8(0), int64(5), int64(-5), uint8(0), uint8(3))
	f.Add(uint8(4), uint8(2), uint8(1), uint8(64), uint8(9), int64(1)<<40, int64(0), uint8(3), uint8(1))
	p := &Params{Shared: anyShared(f)}
	f.Fuzz(func(t *testing.T, source, store, size, count, width uint8, off, load int64, cmp, target uint8) {
		a := fetch.ArgProgram{
			Chain: fetch.Chain{Source: fetch.Source(source), Reg: fetch.Reg(width), N: int(count), Off: off, Loads: []fetch.Load{{Off: load}}},
			Store: fetch.Store(store), StoreOff: load, Type: fetch.Type{Size: size, Count: count & 63, BitWidth: width & 63}, Slot: 8, Size: 8, FaultBit: 0,
		}
		prog := &fetch.Program{Args: []fetch.ArgProgram{a}, Bitmap: 8, Fixed: 16,
			Filter: &fetch.FilterProgram{Preds: []fetch.Pred{{Field: fetch.FieldKind(source & 7), Arg: int(count & 1), Cmp: fetch.Cmp(cmp),
				Operand: fetch.Operand(width & 7), Val: uint64(off), Text: "a*[b-", Target: int(target)}}}}
		d, err := Build(codeAt, p, []Probe{{ID: 1, Program: prog}}, noTail)
		if (d == nil) != (err != nil) {
			t.Fatal(d, err)
		}
	})
}
