package probe

import "kprobe/fetch"

// defOf is a definition that the session holds, with the event it belongs to.
type defOf struct {
	def *fetch.Def
	ev  *event
	// waits lets it wait for its library, whatever Options.Pending says.
	waits bool
}

// defKey tells definitions apart: one definition may be of several events.
type defKey struct {
	def *fetch.Def
	ev  *event
}

func (x *defOf) key() defKey { return defKey{x.def, x.ev} }

func (p *placed) key() defKey { return defKey{p.def, p.ev} }

func defSet(list []*defOf) map[defKey]bool {
	out := make(map[defKey]bool, len(list))
	for _, x := range list {
		out[x.key()] = true
	}
	return out
}
