package debuginfo

import (
	"cmp"
	"debug/dwarf"
	"slices"
	"sort"
)

// funcSpan is code of a function, with its entry. reach is the largest end of this span and
// all before it.
type funcSpan struct {
	span
	reach uint64
}

// functions returns the unit's functions by address.
func (u *Unit) functions() []funcSpan {
	return u.funcs.get(func() []funcSpan {
		var out []funcSpan
		var room []Range
		for s := u.scan(u.planner(), u.first, u.end); s.next(); {
			if s.plan.kind != kindFunc {
				continue
			}
			_, _, low := s.has(slotLow)
			if _, _, list := s.has(slotRanges); !low && !list {
				continue
			}
			e, _, _ := u.entryAt(s.off)
			room = e.rangesInto(room[:0])
			for _, r := range room {
				out = append(out, funcSpan{span: span{r, s.off}})
			}
		}
		slices.SortStableFunc(out, func(a, b funcSpan) int { return cmp.Compare(a.Low, b.Low) })
		reach := uint64(0)
		for i := range out {
			reach = max(reach, out[i].High)
			out[i].reach = reach
		}
		if u.data.release != nil && !u.types {
			u.data.release(u.off, u.end) // few of its entries will be read again
		}
		return out
	})
}

// FuncAt finds the entry of the function that has the code at an address. If functions are
// nested, it is the innermost.
func (u *Unit) FuncAt(pc uint64) (Entry, bool) {
	if x := u.data.ready(); x != nil && !u.types {
		found := uint64(0)
		spanAt(x.funcs, pc, func(off uint64) bool {
			if in := off >= u.first && off < u.end; in {
				found = off
			}
			return found != 0
		})
		if e, _, ok := u.entryAt(found); ok {
			return e, true
		}
	}
	list := u.functions()
	i := sort.Search(len(list), func(i int) bool { return list[i].Low > pc }) - 1
	for steps := 0; i >= 0 && list[i].reach > pc && steps < 4096; i, steps = i-1, steps+1 {
		if pc < list[i].High {
			e, _, ok := u.entryAt(list[i].off)
			return e, ok
		}
	}
	return Entry{}, false
}

// FuncAt finds the function that has the code at an address.
func (d *Data) FuncAt(pc uint64) (Entry, bool) {
	u := d.UnitAt(pc)
	if u == nil {
		return Entry{}, false
	}
	return u.FuncAt(pc)
}

// Scopes returns the entries whose code holds an address, from the function down: lexical
// blocks and inlined calls. It returns nil if the function is not known.
func (d *Data) Scopes(pc uint64) []Entry {
	u := d.UnitAt(pc)
	if u == nil {
		return nil
	}
	return u.Scopes(pc)
}

// Scopes is Scopes of a unit that is known to have the address.
func (u *Unit) Scopes(pc uint64) []Entry {
	fn, ok := u.FuncAt(pc)
	if !ok {
		return nil
	}
	out := []Entry{fn}
	var room []Range
	for len(out) < maxDepth {
		found := false
		for c := range out[len(out)-1].Children() {
			switch c.tag {
			case dwarf.TagLexDwarfBlock, dwarf.TagInlinedSubroutine:
			default:
				continue
			}
			room = c.rangesInto(room[:0])
			in := covers(room, pc)
			if len(room) == 0 && c.tag == dwarf.TagLexDwarfBlock {
				in = holdsCode(c, pc, 0) // the block doesn't say where its code is
			}
			if in {
				out, found = append(out, c), true
				break
			}
		}
		if !found {
			return out
		}
	}
	return out
}

// holdsCode reports whether something below a block covers the address.
func holdsCode(e Entry, pc uint64, depth int) bool {
	if depth > 16 {
		return false
	}
	for c := range e.Children() {
		switch c.tag {
		case dwarf.TagInlinedSubroutine, dwarf.TagLexDwarfBlock:
			list := c.Ranges()
			if covers(list, pc) || len(list) == 0 && holdsCode(c, pc, depth+1) {
				return true
			}
		}
	}
	return false
}

// EntryPC returns the address at which a function or an inlined call is entered.
func (e *Entry) EntryPC() (uint64, bool) {
	list := e.Ranges()
	if v, ok := e.Val(dwarf.AttrEntrypc); ok {
		a, isAddr := e.unit.addressIn(e.unit.root(), v)
		if !isAddr {
			n, ok := v.Int()
			if low, has := e.Address(dwarf.AttrLowpc); ok && has {
				a, isAddr = low+uint64(n), true
			} else if ok && len(list) > 0 {
				a, isAddr = list[0].Low+uint64(n), true
			}
		}
		if isAddr && (len(list) == 0 || covers(list, a)) && !dead(a) {
			return a, true
		}
	}
	if low, ok := e.Address(dwarf.AttrLowpc); ok && len(list) > 0 {
		return low, true
	}
	if len(list) == 0 {
		return 0, false
	}
	return list[0].Low, true
}
