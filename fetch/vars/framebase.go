package vars

import (
	"debug/dwarf"

	"kprobe/fetch"
	"kprobe/symbols/unwind"
)

// cfa returns the canonical frame address.
func (f *frame) cfa() (sym, error) {
	row, ok := f.module.File.Unwind().At(f.pc)
	if !ok {
		return sym{}, unknown("no unwinding information for %s", f.at(f.pc))
	}
	switch row.CFA.Kind {
	case unwind.InRegister:
		r, ok := dwarfRegister(row.CFA.Reg)
		if !ok {
			break
		}
		return register(r).add(row.CFA.Off), nil
	case unwind.IsExpr:
		f.depth++
		defer func() { f.depth-- }()
		if f.depth > maxNested {
			return sym{}, errTooDeep
		}
		x := evaluator{f: f, unit: f.fn.Unit()}
		if err := x.run(row.CFA.Expr); err != nil {
			return sym{}, err
		}
		return x.pop()
	}
	return sym{}, unknown("the frame's address is not known")
}

// frameBase returns the address that DW_OP_fbreg counts from.
func (f *frame) frameBase() (sym, error) {
	f.depth++
	defer func() { f.depth-- }()
	if f.depth > maxNested {
		return sym{}, errTooDeep
	}
	expr, list, ok := f.fn.LocationAt(dwarf.AttrFrameBase, f.pc)
	if !ok {
		return sym{}, f.optimizedOut(list)
	}
	x := evaluator{f: f, unit: f.fn.Unit()}
	p, err := x.location(expr)
	if err != nil {
		return sym{}, err
	}
	if p.kind != inMemory && p.kind != isValue {
		return sym{}, unknown("the frame base is not known")
	}
	return p.sym, nil // a register's contents, or a computed address
}

// dwarfRegister returns a general register by its DWARF number (psABI x86-64, figure 3.36).
func dwarfRegister(n uint64) (fetch.Reg, bool) {
	order := [...]fetch.Reg{fetch.AX, fetch.DX, fetch.CX, fetch.BX, fetch.SI, fetch.DI, fetch.BP, fetch.SP,
		fetch.R8, fetch.R9, fetch.R10, fetch.R11, fetch.R12, fetch.R13, fetch.R14, fetch.R15, fetch.RegIP}
	switch {
	case n < uint64(len(order)):
		return order[n], true
	case n == 58:
		return fetch.RegFSBase, true
	case n == 59:
		return fetch.RegGSBase, true
	}
	return 0, false
}

// registerPlace returns a register as the place of a value.
func registerPlace(n uint64) (place, error) {
	if r, ok := dwarfRegister(n); ok {
		return place{kind: isValue, sym: register(r)}, nil
	}
	if n >= 17 && n <= 32 {
		return place{kind: isValue, sym: sym{src: fetch.Chain{Source: fetch.SourceXMM, Reg: fetch.Reg(n - 17)}}}, nil
	}
	return place{}, unknown("it is in DWARF register %d, which is not recorded", n)
}
