package gocode

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// ErrUnknownMember says that the runtime's code doesn't tell where runtime.g has a member.
var ErrUnknownMember = errors.New("the program's code doesn't tell where its runtime keeps that")

// maxG is more bytes than a runtime.g has.
const maxG = 4096

// GMember is the offset of a member of runtime.g in a program without debug information,
// by the code that sets it: goid and labels are known. It is ErrUnknownMember where the
// code isn't there, or isn't as it is known to be.
func GMember(file *symbols.File, name string) (int64, error) {
	members := map[string]struct {
		fn   string
		find func(*insn.Function) (int64, bool)
	}{"goid": {"runtime.newproc1", numbered}, "labels": {"runtime/pprof.runtime_setProfLabel", labelled}}
	m, ok := members[name]
	if !ok {
		return 0, fmt.Errorf("%s of runtime.g: %w", name, ErrUnknownMember)
	}
	p := NewProgram(file)
	for _, s := range file.Lookup(m.fn) {
		if _, f := p.decode(s.Vaddr); f != nil {
			if off, ok := m.find(f.sweep); ok {
				return off, nil
			}
		}
	}
	return 0, fmt.Errorf("%s of runtime.g isn't told by %s: %w", name, m.fn, ErrUnknownMember)
}

// numbered finds where a new goroutine gets its number. runtime.newproc1 takes numbers
// from the processor's cache: the cache is filled with 16 at a time, which are taken from
// a global counter; the next one is loaded, stored into the goroutine, and increased in
// the cache. So there is one word that is stored to behind an atomic addition of 16, loaded
// for a store soon behind the load, and increased later.
func numbered(f *insn.Function) (off int64, ok bool) {
	list := accesses(f)
	for i, load := range list {
		if load.op != loads {
			continue
		}
		filled := slices.ContainsFunc(list[:i], func(x access) bool {
			return x.op == stores && x.base == load.base && x.disp == load.disp
		}) && refills(list[:i])
		increased := slices.ContainsFunc(list[i:], func(x access) bool { return x.op == increases && x.disp == load.disp })
		store, stored := keeps(list[i+1:], load.reg)
		if !filled || !increased || !stored || store.base == load.base || !inG(store) {
			continue
		}
		if ok && off != store.disp {
			return 0, false
		}
		off, ok = store.disp, true
	}
	return off, ok
}

// keeps finds what a register that was just loaded is stored to.
func keeps(list []access, reg insn.Reg) (access, bool) {
	for _, x := range list[:min(len(list), 3)] {
		if x.op == stores && x.reg == reg {
			return x, true
		}
		if x.leads || x.writes.Has(reg) {
			break
		}
	}
	return access{}, false
}

// refills reports whether the last atomic addition is of 16.
func refills(list []access) bool {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].op != adds {
			continue
		}
		for j := i - 1; j >= 0 && j >= i-3; j-- {
			if list[j].op == constants && list[j].reg == list[i].reg {
				return list[j].disp == 16
			}
		}
		return false
	}
	return false
}

// labelled finds where a goroutine gets its labels: the only word of memory that
// runtime_setProfLabel stores its argument to, but the stack and the write barrier's
// buffer. In old versions the barrier's call takes the address instead.
func labelled(f *insn.Function) (off int64, ok bool) {
	for _, x := range accesses(f) {
		if x.op != stores || x.reg != insn.RAX || !inG(x) || x.disp == 0 {
			continue
		}
		if ok && off != x.disp {
			return 0, false
		}
		off, ok = x.disp, true
	}
	return off, ok
}

// inG reports whether an access can be one of a goroutine's member.
func inG(x access) bool {
	return x.base != insn.RSP && x.base != insn.RBP && x.disp > 0 && x.disp < maxG && x.disp%8 == 0
}

// access is an instruction that is of interest here.
type access struct {
	op   accessOp
	reg  insn.Reg
	base insn.Reg
	disp int64 // of memory; the number of constants
	// leads says that it may lead elsewhere, writes which registers it changes.
	leads  bool
	writes insn.RegSet
}

type accessOp uint8

const (
	other     accessOp = iota
	loads              // reg = u64 at base + disp
	stores             // u64 at base + disp = reg
	increases          // u64 at base + disp is increased by 1
	adds               // lock xadd of reg
	constants          // reg = disp
)

// accesses are the instructions of a function as far as they are of interest here.
func accesses(f *insn.Function) (out []access) {
	for at := range f.All() {
		i, code, _ := f.At(at)
		x := accessOf(i, code)
		x.leads, x.writes = i.Flags.Any(insn.RelBranch|insn.Call|insn.Ret|insn.Jmp|insn.Stops), i.RegsWritten()
		out = append(out, x)
	}
	return out
}

func accessOf(i insn.Inst, code []byte) access {
	if i.Encoding != insn.Legacy || i.Prefixes&^(insn.PrefixREX|insn.PrefixLock) != 0 {
		return access{}
	}
	reg := i.RegField()
	if n, ok := i.Signed(code); ok && i.Map == 0 && i.Opcode&^7 == 0xb8 {
		return access{op: constants, reg: insn.Reg(i.Opcode&7 | i.REX&insn.REXB<<3), disp: n}
	}
	base, index, _, disp, ok := i.Mem(code)
	if !ok || index != insn.NoReg || i.REX&insn.REXW == 0 {
		return access{}
	}
	x := access{reg: reg, base: base, disp: disp}
	switch {
	case i.Map == 1 && i.Opcode == 0xc1 && i.Is(insn.Lock):
		x.op = adds
	case base == insn.NoReg:
		return access{}
	case i.Map == 0 && i.Opcode == 0x8b:
		x.op = loads
	case i.Map == 0 && i.Opcode == 0x89:
		x.op = stores
	case i.Map == 0 && i.Opcode == 0xff && reg == 0:
		x.op = increases
	}
	return x
}
