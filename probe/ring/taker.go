package ring

import "encoding/binary"

// Taker takes many records at a time, as they lie in rings. This costs a fraction of passing on
// each by itself, in order.
type Taker interface {
	// Take takes records of a CPU, which lie one after another. b is valid until it
	// returns. Records of one ring are nearly in order of time. Their contents are the
	// program's: Next decodes them.
	Take(cpu int, b []byte) error
	// Until says that no record with an older time stamp will be taken any more, except
	// those that are written too late (Options.Lateness).
	Until(tsc uint64) error
}

// taker returns who takes the records of the look that begins. Records that already wait for
// their turn on the other path go first.
func (r *Reader) taker(emit func(*Record) error) (Taker, error) {
	var t Taker
	if r.opts.Taker != nil {
		t = r.opts.Taker()
	}
	r.whole = false
	if t == nil {
		return nil, nil
	}
	for i := range r.lanes {
		if ln := &r.lanes[i]; ln.qh < len(ln.q) && r.cal == nil {
			return nil, nil // their times aren't known yet
		}
	}
	if _, err := r.merge(^uint64(0), emit); err != nil {
		return nil, err
	}
	r.whole = true
	return t, nil
}

// mostParts is how many parts of the rings a Taker gets before Until is called.
const mostParts = 64

// hand gives a Taker what the look has copied out.
func (r *Reader) hand(t Taker) (err error) {
	for i := range r.lanes {
		ln := &r.lanes[i]
		if len(ln.buf) == 0 {
			continue
		}
		terr := t.Take(i%r.l.CPUs, ln.buf)
		ln.buf = ln.buf[:0]
		if err == nil {
			err = terr
		}
	}
	r.tally.publishGiven()
	return err
}

// Raw is a record as it lies in a ring.
type Raw struct {
	ID, TID uint32
	TSC     uint64
	Data    []byte // argument data, padded to 8 bytes
}

// Next decodes the first of records that lie one after another, and returns those after it. ok
// is false if there is none, or the bytes are not a record. Room that holds no record has ID 0.
func Next(b []byte) (r Raw, rest []byte, ok bool) { return next(b, SplitState) }

// NextShort is Next for records of memory files of versions up to 8: of their state words' 31
// bits, 19 are the probe and 12 the length, always in units of 8 bytes.
func NextShort(b []byte) (r Raw, rest []byte, ok bool) {
	return next(b, func(w uint32) (id uint32, units int, committed bool) {
		const idBits, unitBits = 19, 12
		return w & (1<<idBits - 1), int(w >> idBits & (1<<unitBits - 1)), w&commitBit != 0
	})
}

func next(b []byte, split func(w uint32) (id uint32, units int, committed bool)) (r Raw, rest []byte, ok bool) {
	if len(b) < Unit {
		return r, nil, false
	}
	id, units, committed := split(binary.LittleEndian.Uint32(b))
	n := units * Unit
	if !committed || n == 0 || n > len(b) || id != 0 && n < HeaderSize {
		return r, nil, false
	}
	if r.ID = id; id != 0 {
		r.TID = binary.LittleEndian.Uint32(b[TIDOff:])
		r.TSC = binary.LittleEndian.Uint64(b[TimeOff:])
		r.Data = b[DataOff:n:n]
	}
	return r, b[n:], true
}
