package detour

import "kprobe/probe/asm"

// The value of a copy's key in a site table: in the bits from copyKind on what the
// copy had done so far, below them the address of the original.
const (
	copyKind = 57 // addresses of programs have so many bits

	copyScratch = 3 // which register the copy uses, 0: none
	copyRSI     = 1
	copyRDI     = 2
	copyRBX     = 3
	copyPushed  = 1 << 2 // rsp is 8 lower
	copyFar     = 1 << 3 // rsp is copySkip lower, besides
	copyMark    = 1 << 6 // the topmost bit: this is a copy's

	// copySkip is the red zone and a word, which has the scratch register's value.
	copySkip = 128 + 8
)

// CopyFault is what leads in a site table from the FaultKey of an instruction in
// a copy to its original: ip is that one's address, addSP what the copy has taken
// of the stack, scratch the register that it uses, whose value lies where the
// stack pointer was, less 136; asm.NoReg is none. ok is false for what a net
// can't undo.
func CopyFault(ip uint64, addSP int, scratch asm.Reg) (to uint64, ok bool) {
	kind := uint64(copyMark)
	switch addSP {
	case 0:
	case 8:
		kind |= copyPushed
	case copySkip:
		kind |= copyFar
	case copySkip + 8:
		kind |= copyFar | copyPushed
	default:
		return 0, false
	}
	switch scratch {
	case asm.NoReg:
	case asm.SI:
		kind |= copyRSI
	case asm.DI:
		kind |= copyRDI
	case asm.BX:
		kind |= copyRBX
	default:
		return 0, false
	}
	if ip>>copyKind != 0 || kind&copyScratch != 0 && kind&copyFar == 0 {
		return 0, false
	}
	return kind<<copyKind | ip, true
}
