package debuginfo

import "debug/dwarf"

// maxJudged limits how many entries of a unit are examined.
const maxJudged = 1 << 20

// MovesVariables reports whether more than an eighth of the unit's variables have several places, as
// in optimized code. Code that isn't optimized has a few such variables at most. In a unit that is too
// large, only the first ones count.
func (u *Unit) MovesVariables() bool {
	return u.moves.get(func() bool {
		var room [16]Val
		n, lists, all := 0, 0, 0
		for off := u.first; off < u.end && n < maxJudged; n++ {
			e, next, ok := u.entryInto(off, room[:])
			if !ok || next <= off {
				break
			}
			off = next
			if e.tag != dwarf.TagVariable && e.tag != dwarf.TagFormalParameter {
				continue
			}
			if v, ok := e.Val(dwarf.AttrLocation); ok {
				if all++; !v.IsBlock() {
					lists++
				}
			}
		}
		return 8*lists > all
	})
}
