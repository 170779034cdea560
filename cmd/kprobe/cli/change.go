package cli

import (
	"context"
	"errors"
	"slices"

	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
	"kprobe/probe"
)

// change is what definitions and deletions change in the running trace of a process, in
// addition to what is kept.
type change struct {
	m    *messages
	live Live // nil: there is none, and nothing to do
	pid  int
	defs []*fetch.Def

	// here are the deletions that have taken out something that was kept.
	here map[*fetch.Def]bool
}

// traced gives the trace of the process of -p that is going on; nil if there is
// none, or no -p.
func (o *addOptions) traced(d *Deps) (Live, error) {
	if len(o.pids) == 0 {
		return nil, nil
	}
	l, err := d.live(o.pids[0])
	if errors.Is(err, probe.ErrNotTraced) {
		return nil, nil
	}
	return l, err
}

// kept leaves out the deletions that nothing in the list, nor before them,
// answers to: the trace must have what they name. It also leaves out definitions
// that are kept already and whose event was taken out of the trace (kprobe del -p):
// only the trace gets them again.
func (c *change) kept(l *kept.List, defs []*fetch.Def) []*fetch.Def {
	c.here = map[*fetch.Def]bool{}
	var out, again []*fetch.Def
	for _, d := range defs {
		if d.Kind == fetch.Delete {
			c.here[d] = l.Has(d) || slices.ContainsFunc(out, d.Deletes)
		}
		switch {
		case c.live == nil, d.Kind == fetch.Delete && c.here[d]:
			out = append(out, d)
		case d.Kind == fetch.Delete:
		case c.takenOut(l, d) && !slices.ContainsFunc(again, func(o *fetch.Def) bool { return kept.Same(o, d) }) &&
			!slices.ContainsFunc(out, func(o *fetch.Def) bool { return o.Deletes(d) }):
			again = append(again, d)
		default:
			out = append(out, d)
		}
	}
	return out
}

// takenOut reports whether a definition is kept and its event isn't in the trace.
func (c *change) takenOut(l *kept.List, d *fetch.Def) bool {
	return l.Holds(d) && !slices.ContainsFunc(c.live.Probes(), func(p probe.LiveProbe) bool {
		return p.Group == d.Group && p.Event == d.Event
	})
}

// make makes the change, deletions first. A trace that ends meanwhile needs
// nothing.
func (c *change) make(ctx context.Context) error {
	if c.live == nil {
		return nil
	}
	var put, take []*fetch.Def
	for _, d := range c.defs {
		if d.Kind != fetch.Delete {
			put = append(put, d)
			continue
		}
		put = slices.DeleteFunc(put, d.Deletes)
		take = append(take, d)
	}
	if err := c.take(ctx, take); err != nil {
		return unlessEnded(err)
	}
	if len(put) == 0 && len(take) > 0 {
		c.m.pending(c.pid, c.live)
	}
	if err := c.live.Add(ctx, put); err != nil {
		return unlessEnded(err)
	}
	waiting := c.live.Probes()
	for i, d := range put {
		waits := func(p probe.LiveProbe) bool {
			return p.Waiting && p.Group == d.Group && p.Event == d.Event
		}
		first := !slices.ContainsFunc(put[:i], func(o *fetch.Def) bool { return kept.Name(o) == kept.Name(d) })
		if first && slices.ContainsFunc(waiting, waits) {
			c.m.say("%s waits until process %d loads %s", kept.Name(d), c.pid, d.Place.Module)
		}
	}
	return nil
}

// take has the trace carry out deletions. One that the trace has nothing for is
// an error unless it was about something kept.
func (c *change) take(ctx context.Context, deletions []*fetch.Def) error {
	for {
		err := c.live.Delete(ctx, deletions)
		var def *probe.DefError
		if !errors.Is(err, probe.ErrNoEvent) || !errors.As(err, &def) {
			return err
		}
		if !c.here[def.Def] {
			var none fetch.Set
			return none.Add(def.Def) // its error is the language's
		}
		deletions = slices.DeleteFunc(deletions, func(d *fetch.Def) bool { return d == def.Def })
	}
}
