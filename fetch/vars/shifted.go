package vars

import (
	"debug/dwarf"
)

// loseShifted marks members of a packed structure that may be bitfields at an unknown bit. If
// a bitfield is as wide as its type, LLVM says neither that it is a bitfield nor at which bit
// of its first byte it begins. Bitfields without a name, which debug information doesn't list,
// may have shifted it, and those that follow it directly. The place of such a run is certain if
// the next member begins where the run ends.
func (f *frame) loseShifted(t ctype, all []member) {
	if f.isGNU() || f.isRustFunc() || f.isGoFunc() || t.entry.Tag() == dwarf.TagUnionType {
		return
	}
	var list []*member
	for i := range all {
		if all[i].static.Unit() == nil {
			list = append(list, &all[i])
		}
	}
	packed := f.misaligns(all)
	behind := false // the member follows a bitfield
	for len(list) > 0 {
		m := list[0]
		if m.width != 0 || m.lost || !behind || !mayBeBits(m.typ.kind) {
			behind = m.width != 0 || m.lost
			list = list[1:]
			continue
		}
		run := contiguous(list)
		if behind = f.mayBeShifted(t, all, list, run, packed); behind {
			for _, m := range list[:run] {
				m.lose()
			}
		}
		list = list[run:]
	}
}

// contiguous returns how many of the first members begin where the one before them ends, and
// may be bitfields that are as wide as their types.
func contiguous(list []*member) int {
	for i := 1; i < len(list); i++ {
		if m, last := list[i], list[i-1]; m.width != 0 || m.lost || !mayBeBits(m.typ.kind) || m.off != last.off+last.typ.size {
			return i
		}
	}
	return len(list)
}

// mayBeShifted reports whether a run of members doesn't end where the next member, or the
// structure's end, shows that it isn't shifted. Where no member shows that the structure is
// packed, a distance that no alignment explains does.
func (f *frame) mayBeShifted(t ctype, all []member, list []*member, run int, packed bool) bool {
	end := list[run-1].off + list[run-1].typ.size
	start, align := t.size*8, int64(1)
	if run < len(list) {
		next := list[run]
		start = next.off*8 + int64(next.bit)
		if start == end*8 && !next.lost {
			return false
		}
		if align = f.natural(next.typ, 1); next.width != 0 {
			align = max(align, next.typ.size)
		}
	} else {
		if start == end*8 {
			return false
		}
		for i := range all {
			if all[i].static.Unit() == nil {
				align = max(align, f.natural(all[i].typ, 1))
			}
		}
		if n, ok := t.entry.Int(attrAlignment); ok {
			align = max(align, n)
		}
	}
	return packed || (end+align-1)/align*align*8 < start
}

// misaligns reports whether members aren't aligned as their types demand.
func (f *frame) misaligns(list []member) bool {
	for _, m := range list {
		if m.static.Unit() == nil && m.width == 0 && m.off%f.natural(m.typ, 1) != 0 {
			return true
		}
	}
	return false
}

// mayBeBits reports whether bitfields can have a type of this kind.
func mayBeBits(k typeKind) bool {
	return k == kindInt || k == kindUint || k == kindBool || k == kindEnum || k == kindChar
}
