package engine

import (
	"slices"

	"kprobe/fetch"
	"kprobe/symbols"
)

// namedPlaces has the sites of all places that the definitions of one change name. Definitions that
// leave functions to others (fetch.Def.Except) look them up. It is nil if no definition does so.
type namedPlaces map[symbols.Place][]symbols.Site

// newNamedPlaces makes the namedPlaces of a change of defs.
func newNamedPlaces(defs []*Definition) namedPlaces {
	if slices.ContainsFunc(defs, func(d *Definition) bool { return len(d.Def.Except) > 0 }) {
		return namedPlaces{}
	}
	return nil
}

func (n namedPlaces) note(p symbols.Place, sites []symbols.Site) {
	if n != nil {
		p.Return = false // probes of entries and of returns have the same functions
		n[p] = sites
	}
}

func (n namedPlaces) of(p symbols.Place) (sites []symbols.Site, known bool) {
	p.Return = false
	sites, known = n[p]
	return sites, known
}

// except removes the places that a definition leaves to other definitions.
func (tg *Target) except(d *fetch.Def, places []symbols.Site, named namedPlaces) []symbols.Site {
	theirs := map[symbols.Addr]bool{}
	for _, other := range d.Except {
		list, known := named.of(other)
		if !known {
			// A place that can't be resolved now excepts nothing.
			list, _ = away(tg.Engine, func() ([]symbols.Site, error) { return tg.Space.Resolve(other) })
			named.note(other, list)
		}
		for _, w := range list {
			theirs[w.Addr] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(places), func(w symbols.Site) bool { return theirs[w.Addr] })
}
