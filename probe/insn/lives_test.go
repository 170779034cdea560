package insn

import (
	"debug/elf"
	"math/rand/v2"
	"testing"

	"kprobe/internal/fixture"
)

// inUse gives instructions of Go's standard library that work on registers, a few of
// each kind.
func inUse(t *testing.T) (out []form) {
	t.Helper()
	f, err := elf.Open(fixture.Build(t, "go_asm.go"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[6]byte]int{}
	for off := 0; off < len(code); {
		i, err := Decode(code[off:])
		if err != nil {
			off++
			continue
		}
		text := code[off : off+int(i.Len)]
		off += int(i.Len)
		const others = RelBranch | Jmp | Call | Ret | Syscall | Trap | Priv | RepString | MemRead | MemWrite | WritesSP | RIPRel |
			Halt | FarBranch | XBegin | Undefined | X87 | Push | Pop
		if i.Encoding > VEX || i.Flags.Any(others) || i.Regs().Has(RSP) {
			continue
		}
		if i.Encoding == VEX && i.Map == 1 {
			continue // of vectors' upper halves, which runs don't set
		}
		kind := [6]byte{byte(i.Encoding), i.Map, i.Opcode, byte(i.Prefixes), i.REX & REXW, i.ModRM >> 3 & 7}
		if seen[kind]++; seen[kind] <= 2 {
			out = append(out, form{formsAt, text, i})
		}
	}
	return out
}

// TestUses changes one register before each form that it isn't said to use, or the
// flags: nothing else is another behind it, and of what it overwrites nothing is left.
func TestUses(t *testing.T) {
	const status = 0x8d5
	r := rand.New(rand.NewPCG(3, 4))
	type run struct {
		f           form
		base, other int
		reg         Reg // NoReg: the flags
	}
	var b batch
	var runs []run
	overwrites, flags := 0, 0
	for _, f := range append(forms(t), inUse(t)...) {
		if i := f.inst; i.Flags.Any(Syscall|Priv) || i.Map == 1 && (i.Opcode == 0x31 || i.Opcode == 0x01 || i.Opcode == 0xa2 || i.Opcode == 0xc7) {
			continue // what they give is another each time: clocks, chance, the CPU's number
		}
		overwrites += f.inst.Overwrites().Len()
		if f.inst.OverwritesFlags() {
			flags++
		}
		for n := range 2 {
			in := registers(r, n)
			base := b.add(f.at, f.code, in)
			for reg := range R15 + 1 {
				if reg == RSP || f.inst.Uses().Has(reg) {
					continue
				}
				other := in
				other.Regs[reg] = r.Uint64()
				runs = append(runs, run{f, base, b.add(f.at, f.code, other), reg})
			}
			if !f.inst.ReadsFlags() {
				other := in
				other.Flags ^= status
				runs = append(runs, run{f, base, b.add(f.at, f.code, other), NoReg})
			}
		}
	}
	if overwrites < 150 || flags < 50 {
		t.Errorf("only %d registers and the flags of %d forms are overwritten: little is shown", overwrites, flags)
	}
	out := b.run(t)
	for _, x := range runs {
		was, is := out[x.base], out[x.other]
		if was.Signal != sigtrap {
			continue // it faults, and changes nothing
		}
		if x.reg == NoReg {
			if !x.f.inst.OverwritesFlags() {
				is.Flags = was.Flags
			}
		} else if !x.f.inst.Overwrites().Has(x.reg) {
			is.Regs[x.reg] = was.Regs[x.reg]
		}
		if why := differ(was, is); why != "" {
			t.Errorf("%v: with another %v %s", x.f, x.reg, why)
		}
	}
	t.Logf("%d runs", len(out))
}
