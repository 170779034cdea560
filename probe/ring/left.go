package ring

// leftPart is what is known of records that take has left in the ring: of as many
// as it takes at a time. A full ring is left in many parts; each is looked through
// once, while its records are all finished, and not each time that one before it
// is taken.
type leftPart struct {
	from, end uint64 // positions
	oldest    uint64 // the least time stamp
	whole     bool   // it is as large as can be, and all in it is finished
}

// oldestLeft is the least time stamp of the records that take has left in the
// ring, where they lie nearly in order only, and of those that will be finished.
func (ln *lane) oldestLeft() uint64 {
	head := ln.m.load64(ln.head)
	if !ln.sound(head) {
		return ln.floor(ln.read) // the next take empties it
	}
	gone := 0
	for gone < len(ln.left) && ln.left[gone].from != ln.read {
		gone++
	}
	ln.left = append(ln.left[:0], ln.left[gone:]...)
	oldest := ^uint64(0)
	pos := ln.read
	for i := 0; pos != head; i++ {
		if i == len(ln.left) {
			ln.left = append(ln.left, leftPart{from: pos})
		}
		part := &ln.left[i]
		if !part.whole {
			end := part.end
			if *part = ln.lookThrough(pos, head); part.end != end {
				ln.left = ln.left[:i+1]
			}
		}
		if oldest = min(oldest, part.oldest); part.end == pos {
			break // nothing is known of what is there
		}
		pos = part.end
	}
	return oldest
}

// lookThrough looks at the records from a position on that take would take.
func (ln *lane) lookThrough(from, head uint64) leftPart {
	part := leftPart{from: from, oldest: ^uint64(0), whole: true}
	pos := from
	for pos != head && pos-from < mostTaken {
		at := ln.at(pos)
		id, units, committed := SplitState(ln.m.load32(at))
		n := uint64(units) * Unit
		if n == 0 || n > head-pos {
			part.oldest, part.whole, part.end = min(part.oldest, ln.floor(pos)), false, from
			return part
		}
		switch {
		case !committed:
			part.oldest, part.whole = min(part.oldest, ln.floor(pos)), false
		case id != 0:
			part.oldest = min(part.oldest, ln.m.load64(at+TimeOff))
		}
		pos += n
	}
	part.end = pos
	part.whole = part.whole && pos-from >= mostTaken
	return part
}
