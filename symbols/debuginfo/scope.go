package debuginfo

import (
	"cmp"
	"debug/dwarf"
	"slices"
	"sort"
)

// unitIndex is the functions of a unit, and the places where others were
// inlined into them.
type unitIndex struct {
	funcs   []funcSpan // by address
	inlines []inlined  // in order of the file
}

type funcSpan struct {
	Range
	reach uint64
	off   uint64
}

// inlined is an inlined call: its entry, and the function that was inlined.
type inlined struct {
	off    uint64
	origin uint64 // offset in the unit's section; 0 where it is of another unit
}

func (u *Unit) contents() *unitIndex {
	return u.index.get(func() *unitIndex {
		x := &unitIndex{}
		var room []Range
		u.walk(func(e *Entry, depth int) bool {
			switch e.tag {
			case dwarf.TagSubprogram:
				room = e.rangesInto(room[:0])
				for _, r := range room {
					x.funcs = append(x.funcs, funcSpan{Range: r, off: e.off})
				}
				return true
			case dwarf.TagInlinedSubroutine:
				in := inlined{off: e.off}
				if r, ok := e.RefTo(dwarf.AttrAbstractOrigin); ok && r.unit == u {
					in.origin = r.off
				}
				x.inlines = append(x.inlines, in)
				return true
			case dwarf.TagCompileUnit, dwarf.TagPartialUnit, dwarf.TagNamespace, dwarf.TagLexDwarfBlock,
				dwarf.TagClassType, dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagModule, dwarf.TagSkeletonUnit:
				return true
			}
			return false
		})
		slices.SortStableFunc(x.funcs, func(a, b funcSpan) int { return cmp.Compare(a.Low, b.Low) })
		reach := uint64(0)
		for i := range x.funcs {
			reach = max(reach, x.funcs[i].High)
			x.funcs[i].reach = reach
		}
		if u.data.release != nil && !u.types {
			u.data.release(u.off, u.end) // few of its entries will be read again
		}
		return x
	})
}

// FuncAt finds the entry of the function that has the code at an address; of
// nested ones the innermost.
func (u *Unit) FuncAt(pc uint64) (Entry, bool) {
	list := u.contents().funcs
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

// Scopes are the entries whose code holds an address, from the function down:
// lexical blocks and inlined calls. nil when the function is not known.
func (d *Data) Scopes(pc uint64) []Entry {
	u := d.UnitAt(pc)
	if u == nil {
		return nil
	}
	return u.Scopes(pc)
}

// Scopes are the Scopes of a unit that is known to have the address.
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
				in = holdsCode(c, pc, 0) // a block that says nothing of its code
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

// EntryPC is where the code of a function or an inlined call is entered.
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
