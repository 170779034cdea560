package vars

import (
	"debug/dwarf"
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
	"kprobe/symbols/unwind"
)

// Values from the entry, later in the function
//
// Later in a function, the register that passed a parameter has other contents, but the caller
// may still have the value: debug information says how a call's arguments are computed from the
// caller's registers (DWARF 5, 3.4.2). That holds for one call only, so the return address is
// compared when the probe is hit. If the function was called from elsewhere, the value is a
// fault. Only constants are used, and registers that calls preserve (the callee has them in its
// registers or frame). Memory is not read, because the caller may have changed it since. A
// function that ends in a jump may be entered again with the same return address, so it has no
// such values.

// callersRegisters are the registers that calls preserve, as a set of DWARF numbers: bx, bp,
// r12 to r15.
const callersRegisters = 1<<3 | 1<<6 | 1<<12 | 1<<13 | 1<<14 | 1<<15

// passedBy returns what the only known call passes in a location at the function's entry, or
// for a parameter that isn't passed any more.
func (f *frame) passedBy(location []byte, parameter debuginfo.Ref) (s sym, ok bool) {
	site, ok := f.onlyCall()
	if !ok {
		return s, false
	}
	expr, unit, ok := site.Passed(location, parameter)
	if !ok {
		return s, false
	}
	row, ok := f.module.File.Unwind().At(f.pc)
	cfa, err := f.cfa()
	if !ok || err != nil || row.CFA.Kind != unwind.InRegister || row.Regs[16].Kind != unwind.AtCFA || row.Regs[16].Off != -8 {
		return s, false
	}
	back := f.module.Addr(symbols.Vaddr(site.Return))
	c := caller{f: f, unit: unit, row: &row, site: &site}
	c.cfa = cfa.step(fetch.Step{Op: fetch.StepWhen, Size: 8, Imm: ^uint64(7), Imm2: uint64(back)})
	return c.value(expr)
}

// onlyCall returns the call of the function, if its unit has exactly one, and that one names
// the function directly.
func (f *frame) onlyCall() (only debuginfo.CallSite, ok bool) {
	if _, at, ok := f.fn.Chased(dwarf.AttrNoreturn); ok && at.Flag(dwarf.AttrNoreturn) {
		return only, false // it doesn't have to keep the caller's registers
	}
	if f.atReturn || f.isGoFunc() || !f.fn.TellsTailCalls() {
		return only, false
	}
	own := f.fn.Same()
	for _, c := range f.fn.Unit().CallSites() {
		if c.Tail && c.In == f.fn.Ref() {
			return only, false
		}
		if c.Return == 0 || !slices.Contains(own, c.Callee) {
			continue
		}
		if only.Return != 0 {
			return only, false
		}
		only = c
	}
	low, ok := f.fn.EntryPC()
	if !ok || only.Return < 5 {
		return only, false
	}
	text, err := f.module.File.Text(symbols.Vaddr(only.Return-5), 5)
	if err != nil || len(text) != 5 || text[0] != 0xe8 {
		return only, false
	}
	r := dwread.At(text, 1)
	return only, only.Return+uint64(int64(int32(r.Uint(4)))) == low
}

// caller is the frame that a function was called from.
type caller struct {
	f    *frame
	unit *debuginfo.Unit
	row  *unwind.Row
	site *debuginfo.CallSite
	cfa  sym // of the called function; a fault if another call led here
}

// value computes an expression of the caller's: a constant, or a register plus a constant.
func (c *caller) value(expr []byte) (s sym, ok bool) {
	r := dwread.At(expr, 0)
	op := r.U8()
	switch {
	case op >= opLit0 && op <= opLit31:
		s = c.constant(uint64(op - opLit0))
	case op >= opConst1u && op <= opConsts:
		s = c.constant(constOperand(op, &r))
	case op == opAddr:
		if s, ok = c.address(r.Uint(8)); !ok {
			return s, false
		}
	case op == opAddrx || op == opGNUAddrIndex:
		at, known := c.unit.IndexedAddress(r.Uleb())
		if !known {
			return s, false
		}
		if s, ok = c.address(at); !ok {
			return s, false
		}
	case op >= opBreg0 && op <= opBreg31:
		if s, ok = c.register(uint64(op - opBreg0)); !ok {
			return s, false
		}
		s = s.add(r.Sleb())
	case op == opFbreg:
		if s, ok = c.frameBase(); !ok {
			return s, false
		}
		s = s.add(r.Sleb())
	default:
		return s, false
	}
	if r.Left() > 0 {
		if r.U8() != opPlusUconst { // such as DW_OP_deref: the caller's memory may have changed by now
			return s, false
		}
		s = s.add(int64(r.Uleb()))
	}
	return s, r.Left() == 0 && !r.Bad
}

func (c *caller) constant(v uint64) sym { return c.cfa.fold(fetch.StepAnd, 0).fold(fetch.StepOr, v) }

// address returns the address of a variable or of code in the file.
func (c *caller) address(v uint64) (s sym, ok bool) {
	at, ok := c.f.address(v).isConst()
	return c.constant(at), ok
}

// register returns what the caller had in a register, if it still has it.
func (c *caller) register(n uint64) (s sym, ok bool) {
	if n == spColumn {
		return c.cfa, true
	}
	reg, known := dwarfRegister(n)
	if !known || n >= 16 || callersRegisters>>n&1 == 0 {
		return s, false
	}
	switch rule := c.row.Regs[n]; rule.Kind {
	case unwind.Unspecified, unwind.SameValue:
		return c.cfa.fold(fetch.StepAnd, 0).step(fetch.Step{Op: fetch.StepAdd, FromReg: true, Reg: reg}), true
	case unwind.AtCFA:
		return c.cfa.add(rule.Off).load(8), true
	}
	return s, false
}

// frameBase returns the caller's frame base, if that is its canonical frame address.
func (c *caller) frameBase() (s sym, ok bool) {
	fn, ok := c.site.In.Entry()
	if !ok {
		return s, false
	}
	base := fn.Locations(dwarf.AttrFrameBase)
	row, has := c.f.module.File.Unwind().At(c.site.Return - 1)
	if len(base) != 1 || len(base[0].Expr) != 1 || base[0].Expr[0] != opCallFrameCFA || !has || row.CFA.Kind != unwind.InRegister {
		return s, false
	}
	if s, ok = c.register(row.CFA.Reg); !ok {
		return s, false
	}
	return s.add(row.CFA.Off), true
}

// parameterRef evaluates a reference to a parameter that GCC has removed from a function.
// Debug information of the callers says what they would have passed.
func (x *evaluator) parameterRef(off uint64) error {
	ref, ok := x.unit.RefUnit(off)
	if s, known := x.f.passedBy(nil, ref); ok && known {
		return x.push(s)
	}
	return fmt.Errorf("%w: it is not passed", fetch.ErrNoValue)
}

// goneValue returns the error for a value from the entry that isn't known at the address.
func (f *frame) goneValue() error {
	return fmt.Errorf("%w at this address; its value at the function's entry is available at %s", fetch.ErrNoValue, f.entryName())
}
