package vars

import (
	"debug/dwarf"

	"kprobe/fetch"
	"kprobe/probe/insn"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// attrGoClosureOffset is the offset in a closure at which a captured variable, or its address,
// lies (cmd/internal/dwarf, from Go 1.23 on).
const attrGoClosureOffset dwarf.Attr = 0x2907

// isCaptured reports whether a variable belongs to the function around a closure.
func (f *frame) isCaptured(e *debuginfo.Entry) bool {
	_, ok := e.Val(attrGoClosureOffset)
	return ok && f.language(*e).IsGo()
}

// captured returns where a variable of the surrounding function is at a closure's entry: in
// the closure, whose address is in rdx (abi-internal.md). For &NAME the closure has either the
// address or the contents; debug information doesn't say which, but the code may.
func (f *frame) captured(e *debuginfo.Entry) (place, bool) {
	off, ok := e.Int(attrGoClosureOffset)
	if !ok || off <= 0 || !f.atEntry() || !f.isGoFunc() || len(f.scopes) == 0 {
		return place{}, false
	}
	for c := range f.fn.Children() {
		if c.Ref() != e.Ref() {
			continue
		}
		p := place{kind: inMemory, sym: register(fetch.DX).add(off)}
		if f.escaped(e) {
			opcode := f.takenBy(e, off)
			if opcode == leaOpcode { // the contents are in the closure
				p.kind = isValue
			}
			return p, opcode != 0
		}
		return p, true
	}
	return place{}, false
}

// Opcodes of instructions that load a register from memory, or with an address.
const (
	movOpcode = 0x8b
	leaOpcode = 0x8d
)

// maxClosureCode limits the code that is read for a closure's captured variables, in bytes.
const maxClosureCode = 512

// takenBy returns the opcode of the instruction by which &NAME gets from the closure, at an
// offset, into the register where debug information has it from then on. The function's entry
// leads straight to it. 0 means that there is none.
func (f *frame) takenBy(e *debuginfo.Entry, off int64) byte {
	low := f.pc
	begins := map[uint64]fetch.Reg{} // where the variable's register locations begin
	for _, l := range e.Locations(dwarf.AttrLocation) {
		if len(l.Expr) != 1 || l.Everywhere() {
			continue
		}
		if r, ok := dwarfRegister(uint64(l.Expr[0] - opReg0)); ok && l.Expr[0] >= opReg0 {
			begins[l.Low] = r
		}
	}
	code, err := f.module.File.Text(symbols.Vaddr(low), maxClosureCode)
	if err != nil || len(begins) == 0 {
		return 0
	}
	for at := 0; at < len(code); {
		i, err := insn.Decode(code[at:])
		if err != nil || i.Flags.Any(insn.Ret|insn.Stops|insn.Jmp|insn.Trap|insn.Call) {
			return 0
		}
		base, index, _, disp, ok := i.Mem(code[at:])
		at += int(i.Len)
		if ok && i.Encoding == insn.Legacy && i.Map == 0 && (i.Opcode == movOpcode || i.Opcode == leaOpcode) && i.REX&insn.REXW != 0 &&
			base == insn.RDX && index == insn.NoReg && disp == off {
			if r, begun := begins[low+uint64(at)]; begun && r == fetch.Reg(i.RegField()) {
				return byte(i.Opcode)
			}
		}
		if i.RegsWritten().Has(insn.RDX) {
			return 0
		}
	}
	return 0
}
