package detour

import "kprobe/probe/asm"

// The value of a copy's key in a site table. The bits from copyKind on say what the copy had
// done so far. The bits below are the address of the original.
const (
	copyKind = 57 // addresses of programs have so many bits

	copyScratch = 3 // which register the copy uses, 0: none
	copyRSI     = 1
	copyRDI     = 2
	copyRBX     = 3
	copyPushed  = 1 << 2 // rsp is 8 lower
	copyFar     = 1 << 3 // rsp is copySkip lower, besides
	copyRolled  = 1 << 5 // a detour's: see PushFault
	copyMark    = 1 << 6 // the topmost bit: this is a copy's

	// copySkip is the red zone and a word, which holds the scratch register's value.
	copySkip = 128 + 8
)

// CopyFault returns the value that a site table has under the FaultKey of an instruction in a
// copy. ip is the original's address, addSP what the copy has taken of the stack, scratch the
// register that it uses, whose value lies 136 bytes below the original stack pointer; asm.NoReg
// is none. ok is false for what a fallback handler can't undo.
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

// The value of a push's key. The bits from rolledDepth on are the depth in words. The bits
// below are the address of the displaced instructions.
const (
	rolledDepth = 47
	rolledBits  = 9
	rolledAX    = 1 << 4 // of the kind: rax is to be had from the stack
	rolledBack  = 1 << 3 // it is a return trampoline's: there is no address
)

// PushFault returns the value that a site table has under the FaultKey of a push of a detour's
// prologue. to is the address of the displaced instructions: if the stack has no room for the
// frame, the thread continues there, with the registers of the site. At a push of a return
// trampoline the thread continues where its call returns to, and the instance is nobody's. ok
// is false for what a fallback handler can't undo.
func PushFault(p Push, to uint64) (value uint64, ok bool) {
	depth := uint64(p.Depth)
	if p.Trampoline {
		to = 0
	}
	if to>>rolledDepth != 0 || depth%8 != 0 || depth/8>>rolledBits != 0 {
		return 0, false
	}
	kind := uint64(copyMark | copyRolled)
	if p.AX {
		kind |= rolledAX
	}
	if p.Trampoline {
		kind |= rolledBack
	}
	return kind<<copyKind | depth/8<<rolledDepth | to, true
}
