package insn

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Table is a jump table that was found and read.
type Table struct {
	Jump    uint64   // the indirect jump
	At      uint64   // the table
	Targets []uint64 // distinct, rising, all inside the function
	Outside []uint64 // likewise, but in parts of the function that lie elsewhere
	// Bounded: the number of entries was known from a comparison before the jump. Otherwise
	// entries were read as long as they were addresses of the function's instructions,
	// which may be too many.
	Bounded bool
}

// Tables lists the jump tables that could be resolved. It is never certain to have everything
// that the function's indirect jumps can do.
func (f *Function) Tables() []Table { return slices.Clone(f.tables) }

const (
	// lookback is how many instructions before a jump belong to its switch.
	lookback = 24
	// maxEntries bounds what is read of one table.
	maxEntries = 4096
)

func (f *Function) findTables() {
	if f.opts.Read == nil || !f.all.Has(IndirectJmp) {
		return
	}
	for k, fl := range f.flags {
		if !fl.Has(IndirectJmp) || fl.Has(RIPRel) {
			continue
		}
		i, _ := f.inst(k)
		if l, ok := f.lookup(k, i); ok {
			if t, ok := f.readAll(l); ok {
				t.Jump = f.at(k)
				f.tables = append(f.tables, t)
			}
		}
	}
}

// tableOf is the table of the k-th instruction; nil if it isn't known, or there is none.
func (f *Function) tableOf(k int) *Table {
	i, ok := slices.BinarySearchFunc(f.tables, f.at(k), func(t Table, at uint64) int { return cmp.Compare(t.Jump, at) })
	if !ok {
		return nil
	}
	return &f.tables[i]
}

// lookup is how a jump finds its target.
type lookup struct {
	table   uint64
	size    int // of an entry: 4, relative to the table, or 8
	entries int // 0: not known
	// others are further tables that it may be instead, where the register that holds
	// the address is set far away, in several places.
	others []uint64
}

// lookup recognises
//
//	cmp i, n; ja default; lea b, [rip+T]; movsxd i, [b+i*4]; add i, b; jmp i
//	cmp i, n; ja default; jmp [i*8+T]     or     mov i, [i*8+T]; jmp i
//	cmp i, n; ja default; lea b, [rip+T]; jmp [b+i*8]     (Go)
//
// with anything between that doesn't leave the order. A lea may stand anywhere: compilers take it out of loops (hoisted,
// hoistedBase).
func (f *Function) lookup(k int, jump Inst) (lookup, bool) {
	_, code := f.inst(k)
	if l, ok := absolute(jump, code); ok {
		l.entries = f.bound(k)
		return l, true
	}
	if jump.mod() != 3 {
		return f.based(k, jump)
	}
	base := NoReg
	for n := k - 1; n >= max(k-lookback, 0); n-- {
		i, code := f.inst(n)
		switch {
		case i.Encoding != Legacy || i.Map != 0:
		case i.Opcode == 0x8b && i.RegField() == jump.rm() && base == NoReg:
			l, ok := absolute(i, code)
			if !ok {
				return f.based(n, i)
			}
			l.entries = f.bound(n)
			return l, ok
		case i.Opcode == 0x63 && base == NoReg:
			if b, x, scale, disp, ok := i.Mem(code); ok && b != NoReg && x != NoReg && scale == 4 && disp == 0 {
				base = b
			}
		case i.Opcode == 0x8d && base != NoReg && i.RegField() == base:
			t, ok := i.RIPTarget(f.at(n), code)
			return lookup{table: t, size: 4, entries: f.bound(k)}, ok
		}
		if f.flags[n].Has(Call) {
			break
		}
	}
	if base != NoReg {
		return f.hoisted(k, base)
	}
	return lookup{}, false
}

// hoisted is the lookup of a jump behind "movsxd i, [b+i*4]; add i, b" whose b is set
// far away: the tables at the addresses that anything in the function puts into b, as
// far as they hold nothing but instructions of the function up to the switch's bound.
// Without a bound that would say little.
func (f *Function) hoisted(k int, base Reg) (lookup, bool) {
	entries := f.bound(k)
	if entries == 0 {
		return lookup{}, false
	}
	var tables []uint64
	for n := range f.starts {
		if f.code[f.starts[n]]&0xf8 != 0x48 { // REX.W, as addresses have
			continue
		}
		i, code := f.inst(n)
		if i.Encoding != Legacy || i.Map != 0 || i.Opcode != 0x8d || i.RegField() != base {
			continue
		}
		t, ok := i.RIPTarget(f.at(n), code)
		if !ok || slices.Contains(tables, t) {
			continue
		}
		if _, ok := f.read(lookup{table: t, size: 4, entries: entries}); ok {
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 {
		return lookup{}, false
	}
	return lookup{table: tables[0], size: 4, entries: entries, others: tables[1:]}, true
}

// based recognises [b+i*8] as the operand of the k-th instruction, behind lea b, [rip+T].
func (f *Function) based(k int, i Inst) (lookup, bool) {
	_, code := f.inst(k)
	base, x, scale, disp, ok := i.Mem(code)
	if !ok || base == NoReg || x == NoReg || scale != 8 {
		return lookup{}, false
	}
	for n := k - 1; n >= max(k-lookback, 0); n-- {
		if i, _ := f.inst(n); i.RegsWritten().Has(base) {
			t, ok := f.constant(n, base)
			if !ok {
				break
			}
			return lookup{table: t + uint64(disp), size: 8, entries: f.bound(k)}, true
		}
		if f.flags[n].Any(Call | Stops) {
			break
		}
	}
	return f.hoistedBase(k, base, uint64(disp))
}

// hoistedBase is the lookup of [b+i*8+disp] whose b is set far away, if all that the function ever puts into b are
// addresses.
func (f *Function) hoistedBase(k int, base Reg, disp uint64) (lookup, bool) {
	var tables []uint64
	for n := range f.starts {
		if i, _ := f.inst(n); !i.RegsWritten().Has(base) {
			continue
		}
		t, ok := f.constant(n, base)
		if !ok {
			return lookup{}, false
		}
		if t += disp; !slices.Contains(tables, t) {
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 {
		return lookup{}, false
	}
	return lookup{table: tables[0], size: 8, entries: f.bound(k), others: tables[1:]}, true
}

// constant is the address that the k-th instruction puts into a register: lea r, [rip+T] or mov r, T.
func (f *Function) constant(k int, r Reg) (uint64, bool) {
	i, code := f.inst(k)
	switch {
	case i.Encoding != Legacy || i.Map != 0:
	case i.Opcode == 0x8d && i.RegField() == r && i.REX&REXW != 0:
		return i.RIPTarget(f.at(k), code)
	case i.Opcode&^7 == 0xb8 && Reg(i.Opcode&7|i.REX&REXB<<3) == r && i.ImmLen >= 4:
		v, ok := i.Signed(code)
		if i.ImmLen == 4 {
			v = int64(uint32(v))
		}
		return uint64(v), ok
	case i.Opcode == 0xc7 && i.mod() == 3 && i.rm() == r && i.REX&REXW != 0:
		v, ok := i.Signed(code)
		return uint64(v), ok
	}
	return 0, false
}

// absolute recognises [i*8+T].
func absolute(i Inst, code []byte) (lookup, bool) {
	b, x, scale, disp, ok := i.Mem(code)
	if !ok || b != NoReg || x == NoReg || scale != 8 || disp <= 0 {
		return lookup{}, false
	}
	return lookup{table: uint64(disp), size: 8}, true
}

// bound finds the comparison that guards the switch and returns the number of
// entries, 0 if there is none.
func (f *Function) bound(k int) int {
	above := false
	for n := k - 1; n >= max(k-lookback, 0); n-- {
		i, code := f.inst(n)
		if i.Flags.Has(CondBranch) {
			above = i.Opcode&15 == 7 && !i.Flags.Has(Loop) // ja
			continue
		}
		if above && i.Map == 0 && i.WritesFlags() {
			v, ok := i.Signed(code)
			if i.Opcode == 0x3c || i.Opcode == 0x3d || i.Opcode|3 == 0x83 && i.ModRM>>3&7 == 7 {
				if ok && v >= 0 && v < maxEntries {
					return int(v) + 1
				}
			}
			return 0
		}
	}
	return 0
}

// atOnce is how many entries are read at a time.
const atOnce = 64

// readAll reads the entries of a lookup's tables.
func (f *Function) readAll(l lookup) (Table, bool) {
	t, ok := f.read(l)
	for _, at := range l.others {
		more, mok := f.read(lookup{table: at, size: l.size, entries: l.entries})
		t.Targets, t.Outside = append(t.Targets, more.Targets...), append(t.Outside, more.Outside...)
		ok = ok && mok
	}
	return t, f.distinct(&t) && ok
}

// read reads the entries of one table. A bounded table with one that is no instruction of the function, nor in a part of
// it, isn't believed, nor one of which all are the function itself, which may be a table of functions.
func (f *Function) read(l lookup) (Table, bool) {
	t := Table{At: l.table, Bounded: l.entries != 0}
	n := l.entries
	if n == 0 {
		n = maxEntries
	}
	var b []byte
	for e := range n {
		if len(b) == 0 {
			if b = f.entries(l, e, min(atOnce, n-e)); b == nil {
				return t, !t.Bounded && f.distinct(&t) && !f.onlyStart(&t)
			}
		}
		to := l.target(b)
		b = b[l.size:]
		switch {
		case f.inside(to):
			t.Targets = append(t.Targets, to)
		case f.inPart(to, t.Outside):
			t.Outside = append(t.Outside, to)
		case l.size == 4 && to == f.End():
			// A case that never happens. Compilers give it a place without instructions.
		default:
			return t, !t.Bounded && f.distinct(&t) && !f.onlyStart(&t)
		}
	}
	return t, f.distinct(&t) && !f.onlyStart(&t)
}

// target is where the entry leads that b begins with.
func (l lookup) target(b []byte) uint64 {
	if l.size == 4 {
		return l.table + uint64(int32(binary.LittleEndian.Uint32(b)))
	}
	return binary.LittleEndian.Uint64(b)
}

// inside reports whether an instruction of the function is at an address.
func (f *Function) inside(at uint64) bool {
	return f.Boundary(at) || f.opts.Inside != nil && f.opts.Inside(at)
}

// inPart reports whether an address is in a part of the function that lies elsewhere. So those in known are.
func (f *Function) inPart(at uint64, known []uint64) bool {
	n := len(known)
	return n > 0 && known[n-1] == at || !f.inCode(at) && f.opts.Part != nil && f.opts.Part(at)
}

// entries reads up to n entries from the e-th on; nil if there is not one.
func (f *Function) entries(l lookup, e, n int) []byte {
	at := l.table + uint64(e*l.size)
	for ; n > 0 && f.opts.Read != nil; n /= 2 {
		if b := make([]byte, n*l.size); f.opts.Read(b, at) == nil {
			return b
		}
	}
	return nil
}

// onlyStart reports whether the function itself is the only target of a table.
func (f *Function) onlyStart(t *Table) bool { return len(t.Targets) == 1 && t.Targets[0] == f.start }

// distinct sorts the targets of a table, and reports whether it has some inside the function.
func (f *Function) distinct(t *Table) bool {
	slices.Sort(t.Targets)
	slices.Sort(t.Outside)
	t.Targets, t.Outside = slices.Compact(t.Targets), slices.Compact(t.Outside)
	return len(t.Targets) > 0
}
