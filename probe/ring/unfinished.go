package ring

// Unfinished is a record whose room is reserved, and that isn't committed.
type Unfinished struct {
	Ring int
	At   uint64 // its position in the ring
	Size uint64 // of its room, in bytes; 0: its length isn't stored yet
	TID  uint32 // of its thread, as the target's thread control block says; 0: it isn't stored yet

	// Of the ring, as the detours have them: its size less one, and where its first byte is.
	Mask, Data uint64
}

// unfinished describes a hole.
func (ln *lane) unfinished(h hole) Unfinished {
	u := Unfinished{
		Ring: ln.ring, At: h.at, Size: uint64(h.units) * Unit,
		Mask: ln.size - 1, Data: ln.m.load64(ln.head - HeadOff + DataPtr),
	}
	if h.units != 0 {
		u.TID = ln.m.load32(ln.at(h.at) + TIDOff)
	}
	return u
}

// Keeps reports whether a word in a register may lead a detour to the record. Between the reservation
// and the commit a detour has the record's address, or one in it, in a register. reserving says that it
// may have reserved the room only just now. Then it may still have the position, that behind the
// record, or the offset in the ring instead.
func (u *Unfinished) Keeps(word uint64, reserving bool) bool {
	size, offset := u.Size, u.At&u.Mask
	if size == 0 {
		size = MaxRecord
	}
	return word-(u.Data+offset) < size || reserving && (word-u.At <= size || word == offset)
}
