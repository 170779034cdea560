package vars

import (
	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Go 1.26 copies and clears large values in loops that advance the registers with the
// addresses, and count in another register. Its debug information ignores this and still
// places variables in those registers (cmd/compile/internal/ssa: clobbersArg0 and
// needIntTemp, which debug.go doesn't consider).

// overwritten reports whether such a loop, between the start of the location and here, has
// changed one of the place's registers. list has all locations of the variable.
func (f *frame) overwritten(p place, list []debuginfo.Location) bool {
	regs := p.registers()
	if regs == 0 {
		return false
	}
	from := f.pc
	for _, l := range list {
		if !l.Everywhere() && l.Low <= f.pc && f.pc < l.High {
			from = l.Low
		}
	}
	for range list { // the value may have got there in any of the neighbouring ranges
		for _, l := range list {
			if !l.Everywhere() && l.High == from && l.Low < from {
				from = l.Low
			}
		}
	}
	if from >= f.pc || f.pc-from > maxLoopCode {
		return from < f.pc
	}
	code, err := f.module.File.Text(symbols.Vaddr(from), int(f.pc-from))
	return err != nil || loopRegisters(code)&regs != 0
}

// maxLoopCode limits the code that is searched, in bytes.
const maxLoopCode = 1 << 20

// registers returns the general registers that a place uses, one bit for each.
func (p place) registers() (set uint16) {
	switch p.kind {
	case inMemory, isValue:
		if p.sym.src.Source == fetch.SourceReg && p.sym.src.Reg < 16 {
			set = 1 << p.sym.src.Reg
		}
	case inPieces:
		for _, q := range p.pieces {
			set |= q.place.registers()
		}
	}
	return set &^ (1 << fetch.SP)
}

// loopRegisters returns the registers that loops in a piece of code advance or count with. The
// loops have the form: add $64 to one or two registers, dec another one, jne back.
func loopRegisters(code []byte) (set uint16) {
	for at := range code {
		moved, i := uint16(0), at
		for i+4 <= len(code) && code[i]&^1 == 0x48 && code[i+1] == 0x83 && code[i+2]&0xf8 == 0xc0 && code[i+3] == 64 {
			moved |= 1 << fetch.Reg(code[i+2]&7|code[i]&1<<3)
			i += 4
		}
		high := byte(0)
		if moved != 0 && i < len(code) && code[i] == 0x41 {
			high, i = 8, i+1
		}
		if moved == 0 || i+4 > len(code) || code[i] != 0xff || code[i+1]&0xf8 != 0xc8 || code[i+2] != 0x75 || code[i+3] < 0x80 {
			continue
		}
		set |= moved | 1<<fetch.Reg(code[i+1]&7|high)
	}
	return set
}
