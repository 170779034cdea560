package ring

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// lane is the reader's side of one ring.
//
//	tail ≤ holes … ≤ read ≤ head
//
// Everything in [tail, read) that isn't a hole has been copied out and cleared. The writers get
// the room back as tail advances.
type lane struct {
	m          mem
	ring       int
	head, tail int64 // offsets of the words
	data       int64 // offset of the ring's data
	size       uint64
	maxID      uint32

	read      uint64
	published uint64
	more      bool   // take has left records in the ring, for the next time
	marks     []mark // how far writers were, the oldest first; that of read or before it is the first
	holes     []hole // in order; one without known length is the last and at read
	left      []leftPart
	corrupt   uint64 // times emptied
	seen      *count // of the records copied out

	q      []entry // records, the oldest at qh
	qh     int
	buf    []byte // their data
	sorted bool
	// whole makes take leave records in buf as they lie in the ring, instead of queueing
	// them.
	whole bool
}

// mark is a time and the head after it: what is reserved from there on has a later time stamp.
type mark struct {
	head, tsc uint64
}

// hole is room that was reserved and isn't committed.
type hole struct {
	at    uint64
	units int // 0: not even its length is known
	id    uint32
	since int64  // when it was first seen, CLOCK_MONOTONIC
	floor uint64 // its time stamp won't be below
}

// entry is a record that was copied out.
type entry struct {
	tsc     uint64
	off, n  uint32 // data in buf
	id, tid uint32
}

func (ln *lane) init(m mem, l *Layout, n int, seen *count) {
	*ln = lane{
		m:    m,
		ring: n,
		head: l.RingWord(n, HeadOff), tail: l.RingWord(n, TailOff),
		data: l.RingData(n), size: uint64(l.RingSize),
		maxID: uint32(l.MaxProbes), sorted: true, seen: seen,
	}
	ln.read = m.load64(ln.tail)
	ln.published = ln.read
}

// mostMarks bounds the marks of a lane. Without some of them it is only less exactly known how
// old an unfinished record can be.
const mostMarks = 64

// mark notes that the head was loaded after tsc, and drops the marks that are of no use.
func (ln *lane) mark(head, tsc uint64) {
	i := 0
	for i+1 < len(ln.marks) && int64(ln.marks[i+1].head-ln.read) <= 0 {
		i++
	}
	ln.marks = append(ln.marks[:0], ln.marks[i:]...)
	switch n := len(ln.marks); {
	case n > 0 && ln.marks[n-1].head == head:
		ln.marks[n-1].tsc = tsc
	case n < mostMarks:
		ln.marks = append(ln.marks, mark{head, tsc})
	}
}

// floor is what the time stamp of a record that is reserved at pos, or after it, won't be below.
func (ln *lane) floor(pos uint64) uint64 {
	tsc := uint64(0)
	for _, m := range ln.marks {
		if int64(m.head-pos) > 0 {
			break
		}
		tsc = m.tsc
	}
	return tsc
}

// mostTaken bounds what take copies out, in bytes of the ring. A full ring then doesn't take
// its size, and more for the queue, of the reader's memory: a record without values has 16
// bytes there, and 40 here.
const mostTaken = 256 << 10

// take copies out what is committed, or a part of it and sets more. Holes are found at now; start
// is the counter before the look. If wait is set, a lane whose queue is long, because older
// records of other lanes come first, takes only what was unfinished.
func (ln *lane) take(now int64, start uint64, wait bool) {
	head := ln.m.load64(ln.head)
	ln.more = false
	if !ln.sound(head) {
		ln.empty(head)
		return
	}
	ln.mark(head, start)
	if head == ln.read && len(ln.holes) == 0 {
		return
	}
	old := ln.holes
	ln.holes = nil
	for _, h := range old {
		end := h.at + uint64(h.units)*Unit
		if h.units == 0 {
			break
		}
		if to, _ := ln.walk(h.at, end, ln.size, h.since, h.floor); to != end {
			ln.empty(head)
			return
		}
	}
	stuck := len(old) > 0 && old[len(old)-1].units == 0
	if wait && !stuck && head != ln.read && ln.queued() >= mostTaken {
		ln.more = true
		return
	}
	from := ln.read
	end, ok := ln.walk(from, head, mostTaken, now, 0)
	ln.read = end
	switch {
	case !ok:
		ln.empty(head)
	case end != head && end-from >= mostTaken:
		ln.more = true
	case end != head:
		// Reserved a moment ago, or by a thread that got no further.
		h := hole{at: end, since: now, floor: ln.floor(end)}
		if stuck && old[len(old)-1].at == end {
			h = old[len(old)-1]
		}
		ln.holes = append(ln.holes, h)
	}
}

// sound reports whether writers can have moved the head there.
func (ln *lane) sound(head uint64) bool {
	return head%Unit == 0 && ln.read%Unit == 0 && head-ln.published <= ln.size && head-ln.published >= ln.read-ln.published
}

// at is where a position's bytes are in the file.
func (ln *lane) at(pos uint64) int64 { return ln.data + int64(pos&(ln.size-1)) }

// walk copies out and clears the committed records in [from, end) and notes the others as
// holes. It returns end, or the first position that is most bytes or more after from, or the
// position at which it found no record. In the last case ok says that a record is still to be
// written there; otherwise the contents are corrupt. Each state word is read once: it changes
// at any time.
func (ln *lane) walk(from, end, most uint64, since int64, floor uint64) (to uint64, ok bool) {
	ok = true
	run := from // records in [run, pos) lie in one piece, are committed, and aren't copied yet
	pos := from
	for pos != end && pos-from < most {
		at := ln.at(pos)
		w := ln.m.load32(at)
		id, units, committed := SplitState(w)
		n := uint64(units) * Unit
		if w == 0 {
			break
		}
		if n == 0 || n > end-pos || id > ln.maxID || id != 0 && n < HeaderSize || id == 0 && !committed {
			ok = false
			break
		}
		if !committed {
			ln.copyOut(run, pos)
			ln.holes = append(ln.holes, hole{pos, units, id, since, max(floor, ln.floor(pos))})
			pos += n
			run = pos
			continue
		}
		if id != 0 && ln.whole {
			ln.seen.add(id)
		} else if id != 0 {
			b := ln.m.b[at : at+HeaderSize]
			ln.push(entry{
				tsc: binary.LittleEndian.Uint64(b[TimeOff:]),
				tid: binary.LittleEndian.Uint32(b[TIDOff:]),
				off: uint32(uint64(len(ln.buf)) + pos - run + DataOff), n: uint32(n) - HeaderSize,
				id: id,
			})
		}
		pos += n
		if ln.at(pos) <= at { // the ring's end
			ln.copyOut(run, pos)
			run = pos
		}
	}
	ln.copyOut(run, pos)
	return pos, ok
}

// finished calls add with the probe of every record that take would copy out
// now.
func (ln *lane) finished(add func(id uint32)) {
	head := ln.m.load64(ln.head)
	if !ln.sound(head) {
		return // take empties it
	}
	for _, h := range ln.holes {
		ln.finishedIn(h.at, h.at+uint64(h.units)*Unit, add)
	}
	ln.finishedIn(ln.read, head, add)
}

func (ln *lane) finishedIn(from, end uint64, add func(id uint32)) {
	for pos := from; pos != end; {
		id, units, committed := SplitState(ln.m.load32(ln.at(pos)))
		n := uint64(units) * Unit
		if n == 0 || n > end-pos || id > ln.maxID {
			return
		}
		if committed && id != 0 {
			add(id)
		}
		pos += n
	}
}

// copyOut takes the bytes of [from, to), which lie in one piece, and clears
// them.
func (ln *lane) copyOut(from, to uint64) {
	if from == to {
		return
	}
	b := ln.m.b[ln.at(from) : ln.at(from)+int64(to-from)]
	ln.buf = append(ln.buf, b...)
	clear(b)
}

// usualQueue is how many records most looks find at most.
const usualQueue = 64

// near is how far push searches for a record's place.
const near = 32

// push queues a record in order of time. Records lie in the ring nearly in order. Only two
// kinds come before their predecessors: one that a signal handler wrote in the middle of
// another's writing, and one that was a hole.
func (ln *lane) push(e entry) {
	ln.seen.add(e.id)
	if len(ln.q) == cap(ln.q) {
		ln.q = slices.Grow(ln.q, max(len(ln.q), usualQueue)) // twice as many: what is left behind is garbage
	}
	ln.q = append(ln.q, e)
	q := ln.q[ln.qh:]
	i := len(q) - 1
	for stop := max(0, i-near); i > stop && q[i-1].tsc > e.tsc; i-- {
		q[i] = q[i-1]
	}
	q[i] = e
	if i > 0 && q[i-1].tsc > e.tsc {
		ln.sorted = false
	}
}

// sort restores the order that push could not keep.
func (ln *lane) sort() {
	if !ln.sorted {
		slices.SortStableFunc(ln.q[ln.qh:], func(a, b entry) int { return cmp.Compare(a.tsc, b.tsc) })
		ln.sorted = true
	}
}

// queued is how many bytes the records that haven't been given take, about.
func (ln *lane) queued() int {
	if ln.qh == len(ln.q) {
		return 0
	}
	return (len(ln.q)-ln.qh)*HeaderSize + len(ln.buf) - int(ln.q[ln.qh].off)
}

// compact drops what was given.
func (ln *lane) compact() {
	const keep = mostTaken // bytes of data that may lie about until the queue is empty
	if ln.qh == len(ln.q) {
		ln.q, ln.qh, ln.buf = ln.q[:0], 0, ln.buf[:0]
		return
	}
	if len(ln.buf) < keep {
		return
	}
	rest := ln.q[ln.qh:]
	var buf []byte
	for i := range rest {
		e := &rest[i]
		buf = append(buf, ln.buf[e.off:e.off+e.n]...)
		e.off = uint32(len(buf)) - e.n
	}
	ln.q, ln.qh, ln.buf = append(ln.q[:0], rest...), 0, append(ln.buf[:0], buf...)
}

// publish frees the room that was read, and returns how many bytes.
func (ln *lane) publish() uint64 {
	to := ln.read
	if len(ln.holes) > 0 {
		to = ln.holes[0].at
	}
	n := to - ln.published
	if n != 0 {
		ln.m.store64(ln.tail, to)
		ln.published = to
	}
	return n
}

// unstick moves read over a reservation of unknown length. Its writer stored nothing, so the
// next word that isn't zero starts the next record.
func (ln *lane) unstick() {
	head := ln.m.load64(ln.head)
	for n := ln.size / Unit; n > 0 && ln.read != head && ln.m.load32(ln.at(ln.read)) == 0; n-- {
		ln.read += Unit
	}
}

// clear zeroes the room of one record.
func (ln *lane) clear(from, to uint64) {
	clear(ln.m.b[ln.at(from) : ln.at(from)+int64(to-from)])
}

// empty gives everything up: the ring holds what no detour writes.
func (ln *lane) empty(head uint64) {
	ln.corrupt++
	ln.holes, ln.left, ln.marks = nil, nil, nil
	clear(ln.m.b[ln.data : ln.data+int64(ln.size)+Slack])
	ln.read = head
}
