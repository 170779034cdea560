package engine

import (
	"slices"

	"kprobe/fetch"
	"kprobe/symbols"
)

// namedPlaces are what was found for the places that definitions of one change name, for
// those that leave functions to others (fetch.Def.Except); nil: none does.
type namedPlaces map[symbols.Place][]symbols.Site

// newNamedPlaces is for a change of these definitions.
func newNamedPlaces(defs []*Definition) namedPlaces {
	if slices.ContainsFunc(defs, func(d *Definition) bool { return len(d.Def.Except) > 0 }) {
		return namedPlaces{}
	}
	return nil
}

func (n namedPlaces) note(p symbols.Place, sites []symbols.Site) {
	if n != nil {
		p.Return = false // entries and returns are of the same functions
		n[p] = sites
	}
}

func (n namedPlaces) of(p symbols.Place) (sites []symbols.Site, known bool) {
	p.Return = false
	sites, known = n[p]
	return sites, known
}

// except leaves out the places that a definition leaves to others.
func (tg *Target) except(d *fetch.Def, places []symbols.Site, named namedPlaces) []symbols.Site {
	theirs := map[symbols.Addr]bool{}
	for _, other := range d.Except {
		list, known := named.of(other)
		if !known {
			// What can't be found now has no places.
			list, _ = away(tg.Engine, func() ([]symbols.Site, error) { return tg.Space.Resolve(other) })
			named.note(other, list)
		}
		for _, w := range list {
			theirs[w.Addr] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(places), func(w symbols.Site) bool { return theirs[w.Addr] })
}
