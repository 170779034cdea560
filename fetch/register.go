package fetch

import "strconv"

// Reg names a register of Regs. The general registers have their numbers of
// the instruction encoding, AX … R15.
type Reg uint8

// The registers that are not general.
const (
	RegIP Reg = 16 + iota
	RegFlags
	RegOrigAX
	RegFSBase
	RegGSBase
	RegCS
	RegSS
	RegDS
	RegES
	RegFS
	RegGS
	regCount
)

// registerNames lists, for each register, the kernel's name first (struct
// pt_regs, arch/x86/kernel/ptrace.c) and then the processor manual's.
func registerNames() *[regCount][2]string {
	return &[regCount][2]string{
		AX: {"ax", "rax"}, CX: {"cx", "rcx"}, DX: {"dx", "rdx"}, BX: {"bx", "rbx"},
		SP: {"sp", "rsp"}, BP: {"bp", "rbp"}, SI: {"si", "rsi"}, DI: {"di", "rdi"},
		R8: {"r8"}, R9: {"r9"}, R10: {"r10"}, R11: {"r11"},
		R12: {"r12"}, R13: {"r13"}, R14: {"r14"}, R15: {"r15"},
		RegIP: {"ip", "rip"}, RegFlags: {"flags", "rflags"}, RegOrigAX: {"orig_ax", "orig_rax"},
		RegFSBase: {"fs_base"}, RegGSBase: {"gs_base"},
		RegCS: {"cs"}, RegSS: {"ss"}, RegDS: {"ds"}, RegES: {"es"}, RegFS: {"fs"}, RegGS: {"gs"},
	}
}

// String returns the kernel's name of the register, without %.
func (r Reg) String() string {
	if r < regCount {
		return registerNames()[r][0]
	}
	return "reg" + strconv.Itoa(int(r))
}

// registerByName finds a register by one of its names, without %. Names of
// parts (eax, al) are none: a value's type says how much of it counts.
func registerByName(s string) (Reg, bool) {
	if s == "" {
		return 0, false
	}
	for r, names := range registerNames() {
		if s == names[0] || s == names[1] {
			return Reg(r), true
		}
	}
	return 0, false
}

// Get returns the value of a register; unknown ones are 0 and not ok.
func (r *Regs) Get(reg Reg) (v uint64, ok bool) {
	if reg < 16 {
		return r.GPR[reg], true
	}
	switch reg {
	case RegIP:
		return r.IP, true
	case RegFlags:
		return r.Flags, true
	case RegOrigAX:
		return r.OrigAX, true
	case RegFSBase:
		return r.FSBase, true
	case RegGSBase:
		return r.GSBase, true
	case RegCS:
		return r.CS, true
	case RegSS:
		return r.SS, true
	case RegDS:
		return r.DS, true
	case RegES:
		return r.ES, true
	case RegFS:
		return r.FS, true
	case RegGS:
		return r.GS, true
	}
	return 0, false
}
