package vars

import (
	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Go 1.26 copies and clears large values by loops that move the registers with the
// addresses, and count in another one. Its debug information doesn't know: variables
// are in those registers as before (cmd/compile/internal/ssa: clobbersArg0 and
// needIntTemp, of which debug.go knows nothing).

// overwritten reports a place in registers of which such a loop, between where the
// location begins and here, has changed one. The locations are the variable's.
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
	for range list { // what is the same in neighbours may have come in any of them
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

// maxLoopCode bounds the code that is looked at, in bytes.
const maxLoopCode = 1 << 20

// registers are the general registers that a place is made of, a bit each.
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

// loopRegisters are the registers that the loops in a piece of code move and count
// with: add $64 to one or two, dec of another, and jne back.
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
