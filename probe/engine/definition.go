package engine

import "kprobe/fetch"

// Definition is a definition of the session, with its event.
type Definition struct {
	Def *fetch.Def
	Ev  *Event
	// Waits says that it may wait for its library even if Options.Pending is not set.
	Waits bool
}

// defKey identifies a Definition: the same fetch.Def may belong to several events.
type defKey struct {
	def *fetch.Def
	ev  *Event
}

func (x *Definition) key() defKey { return defKey{x.Def, x.Ev} }

func (p *Placed) key() defKey { return defKey{p.Def, p.Ev} }

func defSet(list []*Definition) map[defKey]bool {
	out := make(map[defKey]bool, len(list))
	for _, x := range list {
		out[x.key()] = true
	}
	return out
}
