package engine

import (
	"kprobe/fetch"
	"kprobe/symbols"
)

// inlined finds the places where a definition's function was inlined. They are further places of its
// event. Only definitions that name one function have them, and not those of returns, because
// inlined code has no return.
func inlined(space *symbols.Space, d *fetch.Def, places []symbols.Site) []symbols.Site {
	if !mayBeInlined(d) || len(places) == 0 {
		return nil
	}
	p := d.Place
	home := places[0].Module
	if home == nil || places[0].NamedAs().Inlined != "" {
		return nil // Resolve has found them already
	}
	if p.Module == "" {
		p.Module = home.Path
	}
	found, err := space.Inlined(p)
	if err != nil {
		return nil
	}
	known := map[symbols.Addr]bool{}
	for i := range places {
		known[places[i].Addr] = true
	}
	var out []symbols.Site
	for _, site := range found {
		if site.Module == home && !known[site.Addr] {
			known[site.Addr] = true
			out = append(out, site)
		}
	}
	return out
}

// mayBeInlined reports whether inlined places are looked for, in debug information.
func mayBeInlined(d *fetch.Def) bool {
	p := d.Place
	return p.Kind == symbols.PlaceSymbol && p.Offset == 0 && !p.IsGlob() && d.Kind != fetch.Return
}

// resolveInlined adds the requests for the inlined places. A definition's arguments may not exist
// there: $argN has no meaning in the middle of another function. Such a place is left out with a
// warning.
func (tg *Target) resolveInlined(d *fetch.Def, ev *Event, places []symbols.Site, out *resolved) {
	for _, site := range inlined(tg.Space, d, places) {
		if err := tg.place(d, ev, site, out); err != nil {
			tg.Engine.Warnf("%s is inlined at %s too, and not probed there: %v", site.NamedAs().Inlined, site.Name(), err)
		}
	}
}
