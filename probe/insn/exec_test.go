package insn

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// Addresses of testdata/insn_exec.c.
const (
	execData  = 0x10000000
	execStack = 0x20000000
	execCode  = 0x30000000
	execNear  = 0x38000000
	execFar   = 0x130000000
	formsAt   = execCode + 0x2200
)

// execIn is what insn_exec reads of one run, behind the code.
type execIn struct {
	Regs  [16]uint64
	Flags uint64
	Seed  uint64
}

// execOut is what it prints.
type execOut struct {
	Regs                     [16]uint64
	Flags, RIP, Signal, Data uint64
	Stack                    [64]uint64
	XMM                      [16]uint64
}

const (
	sigtrap = 5
	sigsegv = 11
)

// batch collects runs for one process.
type batch struct {
	in bytes.Buffer
	n  int
}

// add appends a run and returns its number.
func (b *batch) add(at uint64, code []byte, in execIn) int {
	for _, v := range []uint64{at, at, uint64(len(code))} {
		b.in.Write(binary.LittleEndian.AppendUint64(nil, v))
	}
	b.in.Write(code)
	if err := binary.Write(&b.in, binary.LittleEndian, in); err != nil {
		panic(err)
	}
	b.n++
	return b.n - 1
}

func (b *batch) run(t *testing.T) []execOut {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, fixture.Build(t, "insn_exec.c", "-O1", "-fcf-protection=none"))
	cmd.Stdin = &b.in
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("insn_exec: %v", err)
	}
	outs := make([]execOut, b.n)
	if err := binary.Read(bytes.NewReader(out), binary.LittleEndian, outs); err != nil {
		t.Fatalf("%d bytes for %d runs: %v", len(out), b.n, err)
	}
	return outs
}

// form is an instruction of testdata/insn_forms.s.
type form struct {
	at   uint64
	code []byte
	inst Inst
}

func (f form) String() string { return fmt.Sprintf("%s [% x]", Text(f.code, f.at, nil), f.code) }

func forms(t *testing.T) []form {
	t.Helper()
	path := fixture.Build(t, "insn_forms.s", "-nostdlib", "-static", "-no-pie",
		fmt.Sprintf("-Wl,-Ttext=%#x,--defsym=data=%#x", formsAt, execData+0x100))
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	var out []form
	for off := 0; off < len(code); {
		i, err := Decode(code[off:])
		if err != nil {
			t.Fatalf("forms + %#x: % x: %v", off, code[off:min(off+15, len(code))], err)
		}
		out = append(out, form{formsAt + uint64(off), code[off : off+int(i.Len)], i})
		off += int(i.Len)
	}
	return out
}

// registers makes the registers of case n: pointers into the data, pointers to
// code, small numbers (and the edges of counting), random bits.
func registers(r *rand.Rand, n int) execIn {
	in := execIn{Flags: r.Uint64() & 0x8d5, Seed: r.Uint64()}
	for k := range in.Regs {
		switch n % 4 {
		case 0:
			in.Regs[k] = execData + r.Uint64N(0x1000)*8
		case 1:
			in.Regs[k] = execCode + 0x400 + uint64(k)*0x10
		case 2:
			in.Regs[k] = []uint64{0, 1, 2, 3, 1 << 32, 1<<32 + 1, 8}[r.IntN(7)]
		case 3:
			in.Regs[k] = r.Uint64()
		}
	}
	if n%8 < 4 {
		in.Regs[RCX] = r.Uint64N(9)
	}
	if n%3 == 0 { // so that indexes stay near
		in.Regs[RAX] = uint64(n) & 7
	}
	in.Regs[RSP] = execStack + 0x8000
	if n%4 != 3 {
		in.Regs[RBP] = execStack + 0x9000
	}
	return in
}

// present gives what a program would see of a thread that stopped at off of a
// copy.
func present(m Moved, off int, o execOut) (execOut, State) {
	p := m.Where(off)
	if p.Scratch != NoReg {
		o.Regs[p.Scratch] = o.Stack[(int64(o.Regs[RSP])+int64(p.ScratchAt)-(execStack+0x8000)+256)/8]
	}
	o.Regs[RSP] += uint64(p.AddSP)
	o.RIP = p.IP
	return o, p.State
}

// differ names what is different between the original's end and the copy's.
// Memory more than 128 below the stack pointer of the start doesn't count.
func differ(a, b execOut) string {
	for k := range a.Regs {
		if a.Regs[k] != b.Regs[k] {
			return fmt.Sprintf("%s is %#x, not %#x", Reg(k), b.Regs[k], a.Regs[k])
		}
	}
	switch {
	case a.RIP != b.RIP:
		return fmt.Sprintf("rip is %#x, not %#x", b.RIP, a.RIP)
	case a.Flags != b.Flags:
		return fmt.Sprintf("flags are %#x, not %#x", b.Flags, a.Flags)
	case a.Signal != b.Signal:
		return fmt.Sprintf("signal %d, not %d", b.Signal, a.Signal)
	case a.Data != b.Data:
		return "the data differs"
	case a.XMM != b.XMM:
		return "vector registers differ"
	case !slices.Equal(a.Stack[16:], b.Stack[16:]):
		return "the stack differs"
	}
	return ""
}

// TestRelocateRuns runs every form in its place and its copies near and out of
// reach, with the same registers and memory, and compares what became of them.
func TestRelocateRuns(t *testing.T) {
	fs := forms(t)
	r := rand.New(rand.NewPCG(1, 2))
	type run struct {
		f        form
		m        Moved
		to       uint64
		original int
		copied   int
		point    int // number of the point that was made int3, -1 for none
		in       execIn
	}
	var b batch
	var runs []run
	refused := map[string]int{}
	cases := 16
	if testing.Short() {
		cases = 4
	}
	for _, f := range fs {
		for n := range cases {
			in := registers(r, n)
			if n%4 == 1 && f.inst.Flags.Any(RepString|MemRead) && !f.inst.Flags.Any(Jmp|Call) {
				continue // would read the code, which differs
			}
			original := b.add(f.at, f.code, in)
			for _, to := range []uint64{execNear, execFar} {
				for _, keep := range []bool{false, true} {
					if keep && !f.inst.Flags.Any(Call|Jmp) {
						continue
					}
					m, err := Relocate(f.code, f.at, to, Options{KeepCall: keep})
					var re *RefusedError
					if errors.As(err, &re) && to == execFar {
						refused[fmt.Sprintf("%s: %s", Text(f.code, f.at, nil), re.Rule)]++
						continue
					}
					if err != nil {
						t.Errorf("%v to %#x: %v", f, to, err)
						continue
					}
					if len(m.Code) > MaxMoved {
						t.Errorf("%v: %d bytes", f, len(m.Code))
					}
					if !(keep && f.inst.Flags.Has(Call)) {
						runs = append(runs, run{f, m, to, original, b.add(to, m.Code, in), -1, in})
					}
					for k, p := range m.Points {
						if n%4 != 0 && n > 4 || int(p.Off) >= len(m.Code) {
							continue
						}
						code := slices.Clone(m.Code)
						code[p.Off] = 0xcc
						if keep && f.inst.Flags.Has(Call) && p.State == After {
							continue
						}
						runs = append(runs, run{f, m, to, original, b.add(to, code, in), k, in})
					}
				}
			}
		}
	}
	outs := b.run(t)
	signals, points := map[uint64]int{}, 0
	for _, x := range runs {
		a, c := outs[x.original], outs[x.copied]
		signals[a.Signal]++
		if x.point >= 0 && c.Signal == sigtrap && c.RIP == x.to+uint64(x.m.Points[x.point].Off)+1 {
			points++
			got, state := present(x.m, int(x.m.Points[x.point].Off), c)
			if state == After {
				got.RIP++ // of the int3 behind
				if d := differ(a, got); d != "" {
					t.Errorf("%v to %#x, stopped behind at %+v: %s\n% x", x.f, x.to, x.m.Points[x.point], d, x.m.Code)
				}
				continue
			}
			want := execOut{Regs: x.in.Regs, Flags: got.Flags, Signal: sigtrap, RIP: x.f.at, Data: got.Data, XMM: got.XMM, Stack: got.Stack}
			if d := differ(want, got); d != "" {
				t.Errorf("%v to %#x, stopped before at %+v: %s\n% x", x.f, x.to, x.m.Points[x.point], d, x.m.Code)
			}
			continue
		}
		if x.point >= 0 && x.m.Points[x.point].State != After && a.Signal == sigtrap {
			if x.m.Points[x.point].State == Main || x.point == 0 {
				t.Errorf("%v to %#x: never came to %+v", x.f, x.to, x.m.Points[x.point])
			}
			continue
		}
		if c.RIP >= x.to && c.RIP < x.to+uint64(len(x.m.Code)) && c.Signal != sigtrap {
			var state State
			if c, state = present(x.m, int(c.RIP-x.to), c); state == After {
				t.Errorf("%v to %#x: signal %d behind it\n% x", x.f, x.to, c.Signal, x.m.Code)
			}
			// A fault leaves what lies below the stack pointer unspecified.
			copy(c.Stack[:32], a.Stack[:32])
		}
		if d := differ(a, c); d != "" {
			t.Errorf("%v to %#x: %s\n% x", x.f, x.to, d, x.m.Code)
		}
	}
	t.Logf("%d forms, %d runs, %d stops in copies, ends by signal %v", len(fs), b.n, points, signals)
	for why, n := range refused {
		t.Logf("refused out of reach, %d times: %s", n, why)
	}
	if len(fs) < 300 {
		t.Errorf("only %d forms", len(fs))
	}
}
