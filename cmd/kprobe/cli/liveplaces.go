package cli

import (
	"path/filepath"
	"strings"

	"kprobe/output"
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
			i, seen := at[key]
			if !seen {
				i = len(out)
				at[key] = i
				out = append(out, probe.Stats{
					Event: &probe.Event{Group: p.Group, Name: p.Event, Return: p.Return},
					Place: called.place, Module: called.module, Disabled: true,
				})
			}
			s := &out[i]
			s.Places++
			s.Hits += p.Counts.Hits
			s.Recorded += p.Counts.Recorded
			s.Filtered += p.Counts.Filtered
			s.Lost += p.Counts.Lost
			s.Unfinished += p.Counts.Unfinished
			s.Age = max(s.Age, p.Age)
			s.Missed += p.Counts.Missed
			s.Disabled = s.Disabled && p.Disabled
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
		called := placeCalled{place: output.Place("", uint64(p.Addr))}
		if name, off, _, m, ok := space.Symbolize(p.Addr); ok {
			called.place = output.Place(name, off)
			if m != nil && !m.Main {
				called.module = filepath.Base(m.Path)
			}
		}
		o.names[at] = called
	}
	return nil
}
