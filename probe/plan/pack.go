package plan

import "kprobe/probe/insn"

// How plans of thousands of sites stay small: what is kept of a function is copied out of its
// code, which is then released. What nearly all patches have lies next to them, in one piece of
// memory.

// packed is a patch with room for what most have.
type packed struct {
	Patch
	sites  [1]uint64
	writes [1]Write
	guards [2]Guard
	bytes  [24]byte
}

// pack returns the same patch in as little memory as possible, without references to its
// sources.
func (p *Patch) pack() *Patch {
	m := &packed{Patch: *p}
	m.Sites = append(m.sites[:0], p.Sites...)
	m.Writes = append(m.writes[:0], p.Writes...)
	if p.Guards != nil {
		m.Guards = append(m.guards[:0], p.Guards...)
	}
	room := m.bytes[:0]
	keep := func(b []byte) []byte {
		from := len(room)
		room = append(room, b...)
		return room[from:len(room):len(room)]
	}
	m.Displaced = keep(p.Displaced)
	for i := range m.Writes {
		m.Writes[i].Bytes = keep(m.Writes[i].Bytes)
	}
	if p.Island != nil {
		m.Island = p.Island.pack()
	}
	return &m.Patch
}

// starts are the offsets in Displaced at which instructions start.
func (p *Patch) starts() (out []int) {
	for off := 0; off < len(p.Displaced); {
		i, err := insn.Decode(p.Displaced[off:])
		if err != nil {
			return out // it is made of instructions
		}
		out = append(out, off)
		off += int(i.Len)
	}
	return out
}
