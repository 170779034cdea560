package debuginfo

import "debug/dwarf"

// Tags and attributes that debug/dwarf has no names for: DWARF 5, 7.5.4, and GNU's older ones.
const (
	tagGNUCallSite = dwarf.Tag(0x4109)
	tagGNUCallParm = dwarf.Tag(0x410a)

	attrGNUCallValue    = dwarf.Attr(0x2111)
	attrGNUTailCall     = dwarf.Attr(0x2115)
	attrGNUAllTailCalls = dwarf.Attr(0x2116)
	attrGNUAllCalls     = dwarf.Attr(0x2117)
)

// CallSite is a call that debug information describes.
type CallSite struct {
	Entry  Ref
	In     Ref    // the function that has the call, not an inlined one
	Callee Ref    // zero: unknown
	Return uint64 // where the call returns to; 0: unknown, or the call is a jump
	Tail   bool   // the call leaves the function
}

// CallSites returns the calls of a unit.
func (u *Unit) CallSites() []CallSite {
	return u.calls.get(func() (out []CallSite) {
		if u.end-u.off > maxCallSiteUnit {
			return nil
		}
		var in []Ref // the functions around, outermost first
		var depths []int
		u.walk(func(e *Entry, depth int) bool {
			for len(depths) > 0 && depths[len(depths)-1] >= depth {
				in, depths = in[:len(in)-1], depths[:len(depths)-1]
			}
			switch e.tag {
			case dwarf.TagSubprogram:
				in, depths = append(in, e.Ref()), append(depths, depth)
			case dwarf.TagCallSite, tagGNUCallSite:
				if len(in) > 0 {
					out = append(out, callSite(e, in[len(in)-1]))
				}
			}
			return true
		})
		return out
	})
}

// maxCallSiteUnit is the size up to which a unit is searched for calls.
const maxCallSiteUnit = 16 << 20

func callSite(e *Entry, in Ref) CallSite {
	c := CallSite{Entry: e.Ref(), In: in, Tail: e.Flag(dwarf.AttrCallTailCall) || e.Flag(attrGNUTailCall)}
	origin, ret := dwarf.AttrCallOrigin, dwarf.AttrCallReturnPC
	if e.tag == tagGNUCallSite {
		origin, ret = dwarf.AttrAbstractOrigin, dwarf.AttrLowpc
	}
	c.Callee, _ = e.RefTo(origin)
	if at, ok := e.Address(ret); ok && !c.Tail {
		c.Return = at
	}
	return c
}

// TellsTailCalls reports whether debug information describes all jumps by which a function
// leaves itself.
func (e *Entry) TellsTailCalls() bool {
	return e.Flag(dwarf.AttrCallAllCalls) || e.Flag(dwarf.AttrCallAllTailCalls) || e.Flag(attrGNUAllCalls) || e.Flag(attrGNUAllTailCalls)
}

// Passed returns the expression for what a call passes in a location. For a parameter that
// isn't passed anywhere, location is nil.
func (c *CallSite) Passed(location []byte, parameter Ref) (value []byte, at *Unit, ok bool) {
	e, ok := c.Entry.Entry()
	if !ok {
		return nil, nil, false
	}
	for p := range e.Children() {
		attr, of := dwarf.AttrCallValue, dwarf.AttrCallParameter
		switch p.tag {
		case dwarf.TagCallSiteParameter:
		case tagGNUCallParm:
			attr, of = attrGNUCallValue, dwarf.AttrAbstractOrigin
		default:
			continue
		}
		where, ok := p.Val(dwarf.AttrLocation)
		ref, isOf := p.RefTo(of)
		if location == nil && (!isOf || ref != parameter) || location != nil && (!ok || len(location) == 0 || string(where.B) != string(location)) {
			continue
		}
		v, ok := p.Val(attr)
		return v.B, p.unit, ok && v.IsBlock() && len(v.B) > 0
	}
	return nil, nil, false
}

// Same returns the entries that stand for the same function: this one, and those that it
// completes.
func (e *Entry) Same() []Ref {
	out := []Ref{e.Ref()}
	at := *e
	for range 4 {
		r, ok := at.RefTo(dwarf.AttrAbstractOrigin)
		if !ok {
			if r, ok = at.RefTo(dwarf.AttrSpecification); !ok {
				break
			}
		}
		out = append(out, r)
		if at, ok = r.Entry(); !ok {
			break
		}
	}
	return out
}
