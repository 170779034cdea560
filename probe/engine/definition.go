package engine

import "kprobe/fetch"

// Definition is a definition that the session holds, with the event it belongs to.
type Definition struct {
	Def *fetch.Def
	Ev  *Event
	// waits lets it wait for its library, whatever Options.Pending says.
	Waits bool
}

// defKey tells definitions apart: one definition may be of several events.
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
