package unwind

import (
	"github.com/go-delve/delve/pkg/dwarf/frame"

	"kprobe/symbols/dwread"
)

// RuleKind says how to compute one of the caller's values.
type RuleKind uint8

// The kinds of rules.
const (
	// Unspecified registers keep their values. By the psABI these are the registers that
	// calls preserve.
	Unspecified RuleKind = iota
	// Undefined values are lost.
	Undefined
	// SameValue is the register's own value.
	SameValue
	// AtCFA is memory at CFA + Off.
	AtCFA
	// IsCFA is CFA + Off itself.
	IsCFA
	// InRegister is register Reg + Off. It is mostly used for the CFA.
	InRegister
	// AtExpr is memory at the address that Expr computes.
	AtExpr
	// IsExpr is the value that Expr computes.
	IsExpr
)

// Rule says how to compute one value.
type Rule struct {
	Kind RuleKind
	Reg  uint64 // DWARF's number
	Off  int64  // in bytes
	Expr []byte // of DWARF operations
}

// Columns is how many registers have rules: the sixteen general registers by their DWARF
// numbers, and the return address as number 16 (psABI, figure 3.36).
const Columns = 17

// Row has the rules for one address.
type Row struct {
	// CFA is the canonical frame address: the value of the stack pointer before
	// the call instruction of the caller. Its Kind is InRegister or IsExpr.
	CFA  Rule
	Regs [Columns]Rule
	// Signal says that a signal interrupted the caller, so the instruction at the return
	// address runs next.
	Signal bool
}

// At computes the rules for an address. ok is false if nothing describes it.
func (t *Table) At(pc uint64) (Row, bool) {
	f, ok := t.find(pc)
	if !ok {
		return Row{}, false
	}
	program, where := f.program()
	m := machine{cie: f.cie, at: f.low, pc: pc, program: where}
	if !m.run(f.cie.program, true) {
		return Row{}, false
	}
	m.initial = m.row
	if !m.run(program, false) || m.row.CFA.Kind == Unspecified {
		return Row{}, false
	}
	m.row.Signal = f.cie.signal
	return m.row, true
}

// machine runs call frame instructions (DWARF 5, 6.4.2).
type machine struct {
	cie     *cie
	at, pc  uint64
	program uint64 // address of the FDE's instructions
	row     Row
	initial Row
	stack   []Row
}

// maxRemembered limits DW_CFA_remember_state.
const maxRemembered = 64

// set sets a register's rule. Registers without a column are ignored.
func (m *machine) set(reg uint64, r Rule) {
	if reg == m.cie.ra {
		reg = Columns - 1
	}
	if reg < Columns {
		m.row.Regs[reg] = r
	}
}

func (m *machine) run(program []byte, initial bool) bool {
	r := dwread.At(program, 0)
	for r.At < uint64(len(program)) {
		op := r.U8()
		low := uint64(op & 0x3f)
		switch op >> 6 {
		case 1:
			if m.advance(low) && !initial {
				return !r.Bad
			}
			continue
		case 2:
			m.set(low, Rule{Kind: AtCFA, Off: int64(r.Uleb()) * m.cie.dataAlign})
			continue
		case 3:
			m.restore(low)
			continue
		}
		done, ok := m.step(&r, op)
		if !ok || r.Bad {
			return false
		}
		if done && !initial {
			return true
		}
	}
	return !r.Bad
}

// advance moves to a later address. It reports whether that is past the wanted address.
func (m *machine) advance(n uint64) bool {
	m.at += n * m.cie.codeAlign
	return m.at > m.pc
}

func (m *machine) restore(reg uint64) {
	if reg == m.cie.ra {
		reg = Columns - 1
	}
	if reg < Columns {
		m.row.Regs[reg] = m.initial.Regs[reg]
	}
}

// GNU's call frame instructions that delve has no names for (LSB, "Call Frame Instructions").
const (
	cfaGNUWindowSave = 0x2d
	cfaGNUNegOffset  = 0x2f
)

func (m *machine) step(r *dwread.Reader, op byte) (done, ok bool) {
	align := m.cie.dataAlign
	switch op {
	case frame.DW_CFA_nop, cfaGNUWindowSave:
	case frame.DW_CFA_set_loc:
		m.at = pointer(r, m.cie.enc, m.program)
		return m.at > m.pc, true
	case frame.DW_CFA_advance_loc1:
		return m.advance(uint64(r.U8())), true
	case frame.DW_CFA_advance_loc2:
		return m.advance(uint64(r.U16())), true
	case frame.DW_CFA_advance_loc4:
		return m.advance(uint64(r.U32())), true
	case frame.DW_CFA_offset_extended:
		m.set(r.Uleb(), Rule{Kind: AtCFA, Off: int64(r.Uleb()) * align})
	case frame.DW_CFA_offset_extended_sf:
		m.set(r.Uleb(), Rule{Kind: AtCFA, Off: r.Sleb() * align})
	case cfaGNUNegOffset:
		m.set(r.Uleb(), Rule{Kind: AtCFA, Off: -int64(r.Uleb()) * align})
	case frame.DW_CFA_restore_extended:
		m.restore(r.Uleb())
	case frame.DW_CFA_undefined:
		m.set(r.Uleb(), Rule{Kind: Undefined})
	case frame.DW_CFA_same_value:
		m.set(r.Uleb(), Rule{Kind: SameValue})
	case frame.DW_CFA_register:
		m.set(r.Uleb(), Rule{Kind: InRegister, Reg: r.Uleb()})
	case frame.DW_CFA_remember_state:
		if len(m.stack) == maxRemembered {
			return false, false
		}
		m.stack = append(m.stack, m.row)
	case frame.DW_CFA_restore_state:
		if len(m.stack) == 0 {
			return false, false
		}
		m.row = m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
	case frame.DW_CFA_def_cfa:
		m.row.CFA = Rule{Kind: InRegister, Reg: r.Uleb(), Off: int64(r.Uleb())}
	case frame.DW_CFA_def_cfa_sf:
		m.row.CFA = Rule{Kind: InRegister, Reg: r.Uleb(), Off: r.Sleb() * align}
	case frame.DW_CFA_def_cfa_register:
		m.row.CFA.Kind, m.row.CFA.Reg = InRegister, r.Uleb()
	case frame.DW_CFA_def_cfa_offset:
		m.row.CFA.Off = int64(r.Uleb())
	case frame.DW_CFA_def_cfa_offset_sf:
		m.row.CFA.Off = r.Sleb() * align
	case frame.DW_CFA_def_cfa_expression:
		m.row.CFA = Rule{Kind: IsExpr, Expr: r.Take(r.Uleb())}
	case frame.DW_CFA_expression:
		m.set(r.Uleb(), Rule{Kind: AtExpr, Expr: r.Take(r.Uleb())})
	case frame.DW_CFA_val_expression:
		m.set(r.Uleb(), Rule{Kind: IsExpr, Expr: r.Take(r.Uleb())})
	case frame.DW_CFA_val_offset:
		m.set(r.Uleb(), Rule{Kind: IsCFA, Off: int64(r.Uleb()) * align})
	case frame.DW_CFA_val_offset_sf:
		m.set(r.Uleb(), Rule{Kind: IsCFA, Off: r.Sleb() * align})
	case frame.DW_CFA_GNU_args_size:
		r.Uleb()
	default:
		return false, false
	}
	return false, true
}
