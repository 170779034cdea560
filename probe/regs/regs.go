// Package regs is what a handler sees of the thread that hit its probe: the registers, which it
// may change, and the memory. Package engine calls the handlers and gives the changed registers
// to the thread.
package regs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/symbols"
)

// Regs are the registers of a thread that a handler sees, the kernel's struct pt_regs, and what
// else the handler may know about the thread. Changes of registers become the thread's when the
// handler returns. Memory changes at once. Regs belongs to one call of the handler: after that
// it can be read, but changes have no effect. It is not for concurrent use.
type Regs struct {
	r  unix.PtraceRegs
	of Of

	vector    *fetch.Vector
	vectorSet bool
	stale     atomic.Bool // the handler has returned
}

// Of is whose registers a handler sees, and where.
type Of struct {
	Thread interface {
		Vector() (*fetch.Vector, error)
	}
	Memory interface {
		symbols.Memory
		WriteMemory(b []byte, at symbols.Addr) error
	}
	Space         *symbols.Space
	PID, TID, CPU int
	Comm          string
	Time          uint64       // of the hit, CLOCK_MONOTONIC ns
	Place         symbols.Addr // of the probe
	// Entry says that this is a function's, and that nothing of it was executed; Shadow
	// that the program has a shadow stack; Go that the code there is Go's.
	Entry, Shadow, Go bool
}

// New makes what a handler sees.
func New(r unix.PtraceRegs, of Of) *Regs { return &Regs{r: r, of: of} }

// End has nothing be changed any more: the handler has returned.
func End(r *Regs) { r.stale.Store(true) }

// Registers gives the registers as the handler has left them.
func Registers(r *Regs) unix.PtraceRegs { return r.r }

// Vector gives the vector registers that the handler has changed; nil: it hasn't.
func Vector(r *Regs) *fetch.Vector {
	if !r.vectorSet {
		return nil
	}
	return r.vector
}

// ErrStale is returned by methods of a Regs whose handler has returned.
var ErrStale = errors.New("the handler has returned")

// systemV and goRegisters are where integer arguments are: psABI x86-64 3.2.3,
// and Go's ABIInternal (cmd/compile/abi-internal.md).
var (
	systemV     = [...]fetch.Reg{fetch.DI, fetch.SI, fetch.DX, fetch.CX, fetch.R8, fetch.R9}
	goRegisters = [...]fetch.Reg{fetch.AX, fetch.BX, fetch.CX, fetch.DI, fetch.SI, fetch.R8, fetch.R9, fetch.R10, fetch.R11}
)

// gpr finds a general register by its number in the instruction encoding.
func (r *Regs) gpr(n fetch.Reg) *uint64 {
	p := &r.r
	return [...]*uint64{
		&p.Rax, &p.Rcx, &p.Rdx, &p.Rbx, &p.Rsp, &p.Rbp, &p.Rsi, &p.Rdi,
		&p.R8, &p.R9, &p.R10, &p.R11, &p.R12, &p.R13, &p.R14, &p.R15,
	}[n]
}

// IP is the address at which the thread continues. The handlers say what it is when they are
// called, and when a change counts.
func (r *Regs) IP() symbols.Addr { return symbols.Addr(r.r.Rip) }

// args are where integer arguments are.
func (r *Regs) args() []fetch.Reg {
	if r.of.Go {
		return goRegisters[:]
	}
	return systemV[:]
}

// SetIP changes where the thread continues. It must be the start of an instruction.
func (r *Regs) SetIP(a symbols.Addr) { r.r.Rip = uint64(a) }

// SP is the stack pointer.
func (r *Regs) SP() symbols.Addr { return symbols.Addr(r.r.Rsp) }

// SetSP changes the stack pointer.
func (r *Regs) SetSP(a symbols.Addr) { r.r.Rsp = uint64(a) }

// Flags is the flags register.
func (r *Regs) Flags() uint64 { return r.r.Eflags }

// SetFlags changes the flags register. The kernel keeps flags that a program
// may not change.
func (r *Regs) SetFlags(v uint64) { r.r.Eflags = v }

// Arg is the register of the n-th integer or pointer argument, counted from 1 as $argN is. It
// is valid at a function's entry. There are 6 in the System V calling convention, 9 in Go's;
// further arguments are on the stack (StackWord). Any other n is a programming error, and
// panics.
func (r *Regs) Arg(n int) uint64 { return *r.gpr(r.args()[n-1]) }

// SetArg changes the n-th argument; see Arg.
func (r *Regs) SetArg(n int, v uint64) { *r.gpr(r.args()[n-1]) = v }

// RetVal is the register of an integer or pointer result, rax: valid where a
// function returns or has returned.
func (r *Regs) RetVal() uint64 { return r.r.Rax }

// SetRetVal changes the result.
func (r *Regs) SetRetVal(v uint64) { r.r.Rax = v }

// Reg is a general register by the name that definitions use: "ax" or "rax" …
// "r15", "ip", "sp", "flags". ok is false where there is none of that name.
func (r *Regs) Reg(name string) (v uint64, ok bool) {
	if p := r.named(name); p != nil {
		return *p, true
	}
	return 0, false
}

// SetReg changes a general register by its name, and reports whether there is
// one.
func (r *Regs) SetReg(name string, v uint64) bool {
	p := r.named(name)
	if p != nil {
		*p = v
	}
	return p != nil
}

func (r *Regs) named(name string) *uint64 {
	if len(name) == 3 && name[0] == 'r' && name[1] >= 'a' && name[1] != 'r' {
		name = name[1:]
	}
	switch name {
	case "ip":
		return &r.r.Rip
	case "flags":
		return &r.r.Eflags
	}
	for n, s := range [...]string{"ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"} {
		if s == name {
			return r.gpr(fetch.Reg(n))
		}
	}
	return nil
}

// StackWord is the n-th 64-bit word of the stack, counted from 0, as $stackN.
// At a function's entry word 0 is the return address and word 1 the seventh
// integer argument of the System V convention.
func (r *Regs) StackWord(n int) (uint64, error) {
	var b [8]byte
	err := r.ReadMemory(b[:], r.SP()+symbols.Addr(8*n))
	return binary.LittleEndian.Uint64(b[:]), err
}

// xmm gives a vector register, read when it is first asked for.
func (r *Regs) xmm(n int) (*[16]byte, error) {
	if r.vector == nil {
		if r.stale.Load() {
			return nil, ErrStale
		}
		v, err := r.of.Thread.Vector()
		if err != nil {
			return nil, err
		}
		r.vector = v
	}
	return &r.vector[n], nil
}

// Float is the 64-bit floating-point number in xmm register n, from 0: the
// n+1-th floating-point argument at a function's entry, with n 0 the result at
// its return.
func (r *Regs) Float(n int) (float64, error) {
	x, err := r.xmm(n)
	if err != nil {
		return 0, err
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(x[:])), nil
}

// SetFloat changes the low 64 bits of xmm register n; see Float.
func (r *Regs) SetFloat(n int, v float64) error {
	x, err := r.xmm(n)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(x[:], math.Float64bits(v))
	r.vectorSet = true
	return nil
}

// PID is the thread group.
func (r *Regs) PID() int { return r.of.PID }

// TID is the thread.
func (r *Regs) TID() int { return r.of.TID }

// CPU is where the thread last ran.
func (r *Regs) CPU() int { return r.of.CPU }

// Comm is the thread's name, at most 15 bytes.
func (r *Regs) Comm() string { return r.of.Comm }

// Time is when the hit was seen, CLOCK_MONOTONIC in nanoseconds.
func (r *Regs) Time() uint64 { return r.of.Time }

// Symbol names an address of the process as SYM+0xOFFSET, or by its number.
func (r *Regs) Symbol(a symbols.Addr) string {
	name, off, _, _, ok := r.of.Space.Symbolize(a)
	switch {
	case !ok:
		return a.String()
	case off == 0:
		return name
	}
	return fmt.Sprintf("%s+%#x", name, off)
}

// ReadMemory fills b from the process's memory. Nothing of b counts on an error:
// syscall.EFAULT where there is no memory, tracee.ErrGone for a process that
// has ended.
func (r *Regs) ReadMemory(b []byte, at symbols.Addr) error {
	_, err := r.of.Memory.ReadMemory(b, at)
	return err
}

// WriteMemory changes the process's memory, at once, through page protections.
// It must not change text that a probe covers. On an error some of b may have
// been written; ErrStale writes nothing.
func (r *Regs) WriteMemory(b []byte, at symbols.Addr) error {
	if r.stale.Load() {
		return ErrStale
	}
	return r.of.Memory.WriteMemory(b, at)
}

// ReadString reads text up to its NUL, at most limit bytes. Text that is longer
// is cut.
func (r *Regs) ReadString(at symbols.Addr, limit int) (string, error) {
	const page = 4096
	var out []byte
	for len(out) < limit {
		b := make([]byte, min(limit-len(out), page-int(at%page)))
		if err := r.ReadMemory(b, at); err != nil {
			return "", err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(out, b[:i]...)), nil
		}
		out = append(out, b...)
		at += symbols.Addr(len(b))
	}
	return string(out), nil
}

// SkipFunction has the function that the thread is about to enter return at
// once with an integer or pointer result. The PreHandler, at the function's
// first instruction, must then return true. It is an error elsewhere, and in
// programs with shadow stacks, which only a return instruction leaves whole.
func (r *Regs) SkipFunction(result uint64) error {
	switch {
	case !r.of.Entry || r.IP() != r.of.Place:
		return fmt.Errorf("%s is not the entry of a function: a function can be skipped only there", r.Symbol(r.IP()))
	case r.of.Shadow:
		return errors.New("the program has a shadow stack: let the function return, and change its result")
	}
	to, err := r.StackWord(0)
	if err != nil {
		return fmt.Errorf("read the return address: %w", err)
	}
	r.r.Rip, r.r.Rax = to, result
	r.r.Rsp += 8
	return nil
}
