package cli

import (
	"strings"

	"kprobe/probe"
	"kprobe/symbols"
)

// placeAt is a place of one of several sessions.
type placeAt struct {
	live Live
	addr symbols.Addr
}

// placeCalled is what a place is called, as probe.Stats has it.
type placeCalled struct{ place, module string }

// counters are those of events, or of places if --each asks for them.
func (o *profileOptions) counters(lives []Live) ([]probe.Stats, error) {
	if !o.each {
		return merged(lives), nil
	}
	return o.placesOf(lives)
}

// placesOf are the counters of places.
func (o *profileOptions) placesOf(lives []Live) ([]probe.Stats, error) {
	var out []probe.Stats
	at := map[string]int{}
	for _, l := range lives {
		if err := o.name(l); err != nil {
			return nil, err
		}
		for _, p := range l.Probes() {
			if p.Waiting {
				continue
			}
			called := o.names[placeAt{l, p.Addr}]
			key := strings.Join([]string{p.Group, p.Event, called.module, called.place}, "\x00")
			st := p.Stats()
			st.Place, st.Module = called.place, called.module
			if i, seen := at[key]; seen {
				out[i].Merge(&st)
				continue
			}
			at[key] = len(out)
			out = append(out, st)
		}
	}
	return out, nil
}

// name finds out what the places of a session are called that have no name yet.
func (o *profileOptions) name(l Live) error {
	var space *symbols.Space
	for _, p := range l.Probes() {
		at := placeAt{l, p.Addr}
		if _, known := o.names[at]; known || p.Waiting {
			continue
		}
		if space == nil {
			var err error
			if space, err = l.Space(); err != nil {
				return err
			}
		}
		name, off, module := symbolized(space, p.Addr)
		called := placeCalled{p.Addr.String(), module}
		if name != "" {
			called.place = symbols.OffsetName(name, off)
		}
		o.names[at] = called
	}
	return nil
}
