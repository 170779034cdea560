// Package fetch is the definition language: the kernel's kprobe_events syntax for processes. It
// parses definitions, types and compiles their fetch arguments and filters, evaluates them over
// registers and memory, and encodes and decodes the records that hits leave.
//
// The package touches no process. Registers and memory come in as values and interfaces.
package fetch

import "kprobe/symbols"

// Numbers of the general registers in Regs.GPR, as the instruction encoding
// counts them (Intel SDM vol. 2, table 2-2).
const (
	AX = iota
	CX
	DX
	BX
	SP
	BP
	SI
	DI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
)

// Regs is the register state of a thread at a hit. The zero value is a state
// with every register zero.
type Regs struct {
	GPR                    [16]uint64 // indexed by AX … R15
	IP                     uint64     // address of the probed instruction, or of the return
	Flags                  uint64
	OrigAX                 uint64 // of user_regs_struct: the system call's number or -1
	FSBase, GSBase         uint64
	CS, SS, DS, ES, FS, GS uint64
}

// Vector holds the low 128 bits of the sixteen xmm registers, and behind them st(0)
// and st(1) of the x87 with six bytes of zeros each.
type Vector [18][16]byte

// Context is everything that a fetch program may look at when a hit is evaluated. The caller,
// who saw the hit, fills it. It is not kept.
type Context struct {
	Regs *Regs
	Mem  symbols.Memory
	// Vector fetches the vector registers. Only programs that use them call it. If it is
	// nil or returns an error, such a value is a fault.
	Vector func() (*Vector, error)
	// Comm is the thread's name, at most 15 bytes.
	Comm string
	// PID is the thread group, TID the thread.
	PID, TID int
	CPU      int
	// Time is CLOCK_MONOTONIC in nanoseconds.
	Time uint64
	// ReadLink resolves %pd and %pD: the path of a file descriptor of the process. If it is
	// nil, such a value is a fault.
	ReadLink func(fd int) (string, error)
	// Watched is the access of a watchpoint; nil for everything else.
	Watched *Watched
	// Entry is what EvalEntry captured at a return probe's entry; nil at
	// entry probes.
	Entry []byte
}
