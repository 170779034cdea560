package plan

import (
	"encoding/binary"
	"iter"
)

// How plans of many thousands of sites stay small: of a patch, only what is needed as long as it is in
// the text is kept, in little memory and without references to the function's code.

// Packed is what is kept of a Patch. Its fields mean the same as there. The zero value is a patch that writes
// nothing. Offsets and counts fit in a byte: no patch displaces more than four instructions under a short jump
// (leads), which are 60 bytes at most.
type Packed struct {
	At, Detour uint64
	Island     *Packed
	// The lists stand in few or, if that has no room for them, in long, one after another. Each has as many entries
	// as the counts below say:
	//
	//	sites      their offsets from At, int8
	//	guards     the offset from At and the byte
	//	displaced  the bytes
	//	writes     the offset from At as a varint, the number of bytes, the bytes
	//	outside    bytes that the writes replace and that are not displaced (Replaces)
	long                                      *[]byte
	Room                                      uint32
	Tactic                                    Tactic
	locked                                    uint8 // bytes from At to Lock
	sites, guards, displaced, writes, outside uint8
	has                                       uint8 // bytes in few
	few                                       [19]byte
}

// data are the lists. It has no room for more.
func (p *Packed) data() []byte {
	if p.long != nil {
		return *p.long
	}
	return p.few[:p.has:p.has]
}

// setData replaces the lists. Slices of the old ones stay as they are.
func (p *Packed) setData(data []byte) {
	if len(data) <= len(p.few) && p.long == nil && p.outside == 0 {
		p.has = uint8(copy(p.few[:], data))
		return
	}
	long := append(make([]byte, 0, len(data)), data...)
	p.long = &long
}

// guardSize is the size of a guard in Packed.data.
const guardSize = 2

// Pack returns what is kept of a patch. island is its island, packed; nil if it has none.
func (p *Patch) Pack(island *Packed) Packed {
	out := Packed{
		At: p.At, Detour: p.Detour, Island: island, Room: uint32(p.Room), Tactic: p.Tactic, locked: uint8(max(p.Lock, p.At) - p.At),
		sites: uint8(len(p.Sites)), guards: uint8(len(p.Guards)), displaced: uint8(len(p.Displaced)), writes: uint8(len(p.Writes)),
	}
	var room [128]byte
	data := room[:0]
	for _, a := range p.Sites {
		data = append(data, byte(a-p.At))
	}
	for _, g := range p.Guards {
		data = append(data, byte(g.At-p.At), g.Byte)
	}
	data = append(data, p.Displaced...)
	for _, w := range p.Writes {
		data = append(binary.AppendVarint(data, int64(w.At-p.At)), byte(len(w.Bytes)))
		data = append(data, w.Bytes...)
	}
	out.setData(data)
	return out
}

// Lock is the end of the bytes, from At on, that must stay as they are.
func (p *Packed) Lock() uint64 { return p.At + uint64(p.locked) }

// End is the address after the displaced instructions.
func (p *Packed) End() uint64 { return p.At + uint64(p.displaced) }

// Displaced are the displaced instructions. They may not be changed.
func (p *Packed) Displaced() []byte {
	from := int(p.sites) + guardSize*int(p.guards)
	return p.data()[from : from+int(p.displaced) : from+int(p.displaced)]
}

// Site is the lowest of the sites, without those of the island; 0: there is none.
func (p *Packed) Site() uint64 {
	if p.sites == 0 {
		return 0
	}
	return p.site(0)
}

func (p *Packed) site(n int) uint64 { return p.At + uint64(int8(p.data()[n])) }

// Guards yields the guards, without those of the island.
func (p *Packed) Guards() iter.Seq[Guard] {
	return func(yield func(Guard) bool) {
		for n := range int(p.guards) {
			if !yield(p.guard(n)) {
				return
			}
		}
	}
}

// CountGuards is the number of guards.
func (p *Packed) CountGuards() int { return int(p.guards) }

func (p *Packed) guard(n int) Guard {
	g := p.data()[int(p.sites)+guardSize*n:]
	return Guard{p.At + uint64(g[0]), g[1]}
}

// GuardsStart reports whether the patch's first byte is a guard instead of a jump.
func (p *Packed) GuardsStart() bool { return p.guards > 0 && p.guard(0).At == p.At }

// Replacement is a write of a patch, with the bytes that it replaces.
type Replacement struct {
	Write
	Old  []byte // nil before Replaces has noted them
	Last bool   // the write is the last of the patch
}

// Writes yields the writes in order, without those of the island. Their bytes may not be changed.
func (p *Packed) Writes() iter.Seq2[int, Replacement] {
	return func(yield func(int, Replacement) bool) {
		outside := p.data()
		outside = outside[len(outside)-int(p.outside):]
		data := p.firstWrite()
		for n := range int(p.writes) {
			var r Replacement
			r.Write, data = p.write(data)
			switch size := len(r.Bytes); {
			case p.Displaces(r.Write):
				r.Old = p.Displaced()[r.At-p.At:][:size:size]
			case size <= len(outside):
				r.Old, outside = outside[:size:size], outside[size:]
			}
			r.Last = n == int(p.writes)-1
			if !yield(n, r) {
				return
			}
		}
	}
}

// LastWrite is the write at At. ok is false if the patch writes nothing.
func (p *Packed) LastWrite() (w Write, ok bool) {
	data := p.firstWrite()
	for range p.writes {
		w, data = p.write(data)
	}
	return w, p.writes > 0
}

// firstWrite is the data from the first write on.
func (p *Packed) firstWrite() []byte {
	return p.data()[int(p.sites)+guardSize*int(p.guards)+int(p.displaced):]
}

// write returns the write at the start of data, and the data behind it.
func (p *Packed) write(data []byte) (Write, []byte) {
	off, n := binary.Varint(data)
	size := int(data[n])
	data = data[n+1:]
	return Write{p.At + uint64(off), data[:size:size]}, data[size:]
}

// Displaces reports whether all bytes of a write are those of displaced instructions.
func (p *Packed) Displaces(w Write) bool {
	return w.At >= p.At && w.At+uint64(len(w.Bytes)) <= p.End()
}

// Replaces notes the bytes that are replaced by the writes that are not over displaced instructions
// (Displaces), one after another.
func (p *Packed) Replaces(outside []byte) {
	if len(outside) > 0 || p.outside > 0 {
		data := p.data()
		data = data[:len(data)-int(p.outside)]
		p.setData(append(data[:len(data):len(data)], outside...))
		p.outside = uint8(len(outside))
	}
}
