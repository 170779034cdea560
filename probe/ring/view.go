package ring

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// View reads rings as a bystander: it takes nothing out, and no writer notices it. It is for
// rings that are overwritten (overwrite.go), of a running process, of a file whose process is
// gone, or of a core dump. Of other rings it sees what their reader hasn't taken yet. It is for
// one goroutine.
//
// A record that it returns was whole in the ring: it was finished before its bytes were copied,
// and the tail had not reached it afterwards. Contents that no session writes cost records, and
// do no harm.
type View struct {
	r     io.ReaderAt
	l     *Layout
	rings []viewed

	half int    // that is looked at; -1: all
	from uint64 // the time stamp before which records are passed over

	states, bytes []byte
	pending       []ViewRecord
	data          []byte

	// Overwritten are the records that were overwritten before the View came to them:
	// Before of them before its first look.
	Overwritten, Before uint64
	// Unfinished are those that were begun and not finished when they were passed.
	Unfinished uint64
}

// viewed is what a View knows of a ring.
type viewed struct {
	begun   bool
	pos     uint64 // everything before it was given, or is lost
	over    uint64 // OverOff, were the tail at pos
	waiting bool   // at an unfinished record
}

// ViewRecord is a hit that a View has copied. Data is valid until the next Take.
type ViewRecord struct {
	ID, TID uint32
	CPU     int
	TSC     uint64
	Data    []byte
	off, n  int

	ring int
	pos  uint64
}

// viewChunk is how much of a ring is copied at a time; it is more than MaxRecord.
const viewChunk = 1 << 20

// NewView reads the file that r holds, as ReadHeader does.
func NewView(r io.ReaderAt, l *Layout) *View {
	return &View{r: r, l: l, rings: make([]viewed, l.NumRings()), half: -1}
}

// Snapshot has the View look at the last snapshot alone.
func (v *View) Snapshot(s Swaps) { v.half, v.from = s.Half, s.Since }

// Live has the View look at what came behind the last snapshot and is in no other.
func (v *View) Live(s Swaps) {
	if v.from = s.At; s.Taken > 0 {
		v.half = 1 - s.Half
	}
}

// Follow has the View look at what came behind the last snapshot and is still to come,
// whatever snapshots are taken meanwhile.
func (v *View) Follow(s Swaps) { v.from = s.At }

// Take copies what has come since the last Take, and gives the records with time stamps
// up to until, in their order; the others wait for the next. wait leaves what is behind
// an unfinished record in a ring to the next Take: for rings that are being written.
func (v *View) Take(until uint64, wait bool) ([]ViewRecord, error) {
	v.settle()
	for n := range v.rings {
		if v.half >= 0 && v.half != v.l.half(n) {
			continue
		}
		if err := v.ring(n, wait); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(v.pending, func(a, b ViewRecord) int { return cmp.Compare(a.TSC, b.TSC) })
	n, _ := slices.BinarySearchFunc(v.pending, until, func(r ViewRecord, t uint64) int {
		if r.TSC <= t {
			return -1
		}
		return 1
	})
	out := v.pending[:n]
	for i := range v.pending {
		r := &v.pending[i]
		r.Data = v.data[r.off : r.off+r.n : r.off+r.n]
	}
	v.pending = v.pending[n:]
	return out, nil
}

// Waiting reports whether the last Take found a record that was being written.
func (v *View) Waiting() bool {
	return slices.ContainsFunc(v.rings, func(r viewed) bool { return r.waiting })
}

// settle drops the bytes of what was given.
func (v *View) settle() {
	var data []byte
	pending := make([]ViewRecord, len(v.pending))
	for i, r := range v.pending {
		at := len(data)
		data = append(data, v.data[r.off:r.off+r.n]...)
		r.off = at
		pending[i] = r
	}
	v.pending, v.data = pending, data
}

func (v *View) word(off int64) (uint64, error) {
	var b [8]byte
	if err := readFull(v.r, b[:], off); err != nil {
		return 0, fmt.Errorf("read a ring: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// bounds reads how far a ring reaches: its tail, with the number of records that were
// overwritten when it was there, and its head.
func (v *View) bounds(n int) (tail, over, head uint64, err error) {
	// A writer counts first and then moves the tail: what is counted is passed over.
	for range 8 {
		var words [4]uint64
		for i, off := range [...]int64{OverTo, OverOff, TailOff, OverTo} {
			if off == OverTo && !v.l.Overwrite {
				continue
			}
			if words[i], err = v.word(v.l.RingWord(n, off)); err != nil {
				return 0, 0, 0, err
			}
		}
		to := words[0]
		over, tail = words[1], words[2]
		if to-tail-1 < uint64(v.l.RingSize) {
			tail = to
		}
		if to == words[3] {
			break
		}
	}
	head, err = v.word(v.l.RingWord(n, HeadOff))
	return tail, over, head, err
}

// overtaken notes that the writers have come to tail, and gives the position to go on at.
func (v *View) overtaken(x *viewed, tail, over uint64) {
	if tail-x.pos-1 >= 1<<63 { // tail <= pos
		return
	}
	if over > x.over {
		v.Overwritten += over - x.over
	}
	x.pos, x.over = tail, max(over, x.over)
}

// ring copies what is new in a ring.
func (v *View) ring(n int, wait bool) error {
	x := &v.rings[n]
	x.waiting = false
	tail, over, head, err := v.bounds(n)
	if err != nil {
		return err
	}
	size := uint64(v.l.RingSize)
	if tail%Unit != 0 || head%Unit != 0 || head-tail > size {
		return nil // what no writer leaves: the words are the program's
	}
	if !x.begun {
		x.begun, x.pos, x.over = true, tail, over
		v.Before += over
		v.Overwritten += over
	}
	v.overtaken(x, tail, over)
	if x.pos%Unit != 0 || head-x.pos > size {
		x.pos = head // the ring was laid anew, or its words are the program's
	}
	for x.pos != head && head-x.pos <= size {
		from := x.pos
		if err := v.chunk(n, x, head, wait); err != nil {
			return err
		}
		if x.waiting || x.pos == from {
			break
		}
	}
	return nil
}

// chunk copies a part of what lies between x.pos and head.
func (v *View) chunk(n int, x *viewed, head uint64, wait bool) error {
	from, size := x.pos, uint64(v.l.RingSize)
	inRing := from & (size - 1)
	length := min(head-from, size-inRing+Slack, viewChunk)
	at := v.l.RingData(n) + int64(inRing)
	v.states, v.bytes = slices.Grow(v.states[:0], int(length))[:length], slices.Grow(v.bytes[:0], int(length))[:length]
	// A record that was finished in the first copy is whole in the second.
	for _, b := range [...][]byte{v.states, v.bytes} {
		if err := readFull(v.r, b, at); err != nil {
			return fmt.Errorf("read a ring: %w", err)
		}
	}
	tail, over, _, err := v.bounds(n)
	if err != nil {
		return err
	}
	v.overtaken(x, tail, over)
	if head-x.pos > size {
		return nil // the writers have come round since head was read
	}
	for pos := x.pos; pos != head; x.pos = pos {
		off := pos - from
		if off >= length || off > 0 && inRing+off >= size || length-off < v.stamp()+HeaderSize && length < head-from {
			return nil // the next chunk's
		}
		units, state := v.header(pos, off, length, head)
		bytes := uint64(units)*Unit + v.stamp()
		switch {
		case state == recordNone && wait || state == recordBegun && wait:
			x.waiting = true
			return nil
		case state == recordNone:
			next := v.resync(pos, off, length, head)
			v.Unfinished++
			pos = next
			continue
		case bytes > length-off:
			if off == 0 {
				pos = head // what no writer leaves
				continue
			}
			return nil
		case state == recordBegun:
			v.Unfinished++
		case state == recordWhole:
			v.put(n, pos, off+v.stamp(), bytes-v.stamp())
		}
		x.over++
		pos += bytes
	}
	return nil
}

// What lies at a position.
const (
	recordNone  = iota // room that is reserved, or anything
	recordBegun        // a record that isn't finished
	recordWhole
	recordSkip
)

// stamp is how many bytes stand before a record.
func (v *View) stamp() uint64 {
	if v.l.Overwrite {
		return StampSize
	}
	return 0
}

// header looks at what lies off bytes into the copy of a chunk, at position pos.
func (v *View) header(pos, off, length, head uint64) (units, state int) {
	if length-off < v.stamp()+HeaderSize {
		return 0, recordNone
	}
	b := v.states[off:]
	if v.l.Overwrite && binary.LittleEndian.Uint64(b) != pos {
		return 0, recordNone
	}
	id, units, committed := SplitState(binary.LittleEndian.Uint32(b[v.stamp():]))
	if units == 0 || uint64(units)*Unit+v.stamp() > head-pos || int64(id) > int64(v.l.MaxProbes) {
		return 0, recordNone
	}
	switch {
	case !committed:
		return units, recordBegun
	case id == 0:
		return units, recordSkip
	}
	return units, recordWhole
}

// put keeps a record.
func (v *View) put(n int, pos, off, bytes uint64) {
	b := v.bytes[off : off+bytes]
	le := binary.LittleEndian
	id, _, _ := SplitState(le.Uint32(b))
	r := ViewRecord{ID: id, TID: le.Uint32(b[TIDOff:]), CPU: n % v.l.CPUs, TSC: le.Uint64(b[TimeOff:]), off: len(v.data), n: int(bytes) - DataOff, ring: n, pos: pos}
	if r.n < 0 || r.TSC != 0 && r.TSC < v.from { // 0: the time is not known (Calibration.NS)
		return
	}
	v.data = append(v.data, b[DataOff:]...)
	v.pending = append(v.pending, r)
}

// chainLength is how many records must follow each other for a position to be believed.
const chainLength = 8

// resync finds where the record behind one begins of which not even the length is known.
func (v *View) resync(pos, off, length, head uint64) uint64 {
	for skip := uint64(HeaderSize); skip <= MaxRecord && skip < length-off; skip += Unit {
		at, good := skip, 0
		for good < chainLength && off+at < length && pos+at != head {
			units, state := v.header(pos+at, off+at, length, head)
			if state == recordNone {
				break
			}
			at += uint64(units)*Unit + v.stamp()
			good++
		}
		if good == chainLength || good > 0 && pos+at == head {
			return pos + skip
		}
	}
	return head
}
