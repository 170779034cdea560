package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTooBig is wrapped by errors about records longer than MaxRecord.
var ErrTooBig = errors.New("record too big")

// Producer writes records the way detours do. The tracer records the hits of breakpoints with
// it, so that all hits are in one place in order of time. All methods may be called
// concurrently, also beside the target's detours.
type Producer struct {
	l *Layout
	m mem
}

// NewProducer writes into the file mapped at b, at least up to the Code
// section.
func NewProducer(b []byte, l *Layout) (*Producer, error) {
	m, err := newMem(b, l)
	if err != nil {
		return nil, err
	}
	return &Producer{l, m}, nil
}

// Count adds n to a counter (CounterHits …) of a probe. A cpu out of range is
// brought into it as in a detour.
func (p *Producer) Count(cpu int, id uint32, counter int, n uint64) {
	p.m.add64(p.l.Counter(p.cpu(cpu), p.id(id), counter), n)
}

// Record writes a hit's record. ok is false if the ring was full; the hit is then counted as
// lost. If the error is ErrTooBig, the hit is lost, too.
func (p *Producer) Record(cpu int, id, tid uint32, tsc uint64, data []byte) (ok bool, err error) {
	cpu, id = p.cpu(cpu), p.id(id)
	r, ok := p.Reserve(cpu, id, len(data))
	if !ok {
		p.Count(cpu, id, CounterLost, 1)
		if Units(len(data)) > MaxUnits {
			return false, fmt.Errorf("%w: %d bytes", ErrTooBig, len(data))
		}
		return false, nil
	}
	r.Fill(tid, tsc, data)
	r.Commit()
	return true, nil
}

// Reservation is a record being written.
type Reservation struct {
	m     mem
	at    int64
	id    uint32
	units int
}

// Reserve reserves room for a record with n bytes of data in a CPU's ring. ok is false if there
// is none. Nothing is counted.
func (p *Producer) Reserve(cpu int, id uint32, n int) (r Reservation, ok bool) {
	units := Units(n)
	if n < 0 || units > MaxUnits {
		return r, false
	}
	cpu = p.cpu(cpu)
	head, tail := p.l.Area(cpu)+HeadOff, p.l.Area(cpu)+TailOff
	for {
		h := p.m.load64(head)
		next := h + uint64(units)*Unit
		if next-p.m.load64(tail) > uint64(p.l.RingSize) {
			if p.m.load64(head) != h {
				continue // h is of long ago, the tail of now
			}
			return r, false
		}
		if p.m.cas64(head, h, next) {
			at := p.l.RingData(cpu) + int64(h&uint64(p.l.RingSize-1))&^(Unit-1)
			r = Reservation{p.m, at, p.id(id), units}
			p.m.store32(at+StateOff, StateWord(r.id, units))
			return r, true
		}
	}
}

// Taken is how far a CPU's ring has been read, in bytes since it was made.
func (p *Producer) Taken(cpu int) uint64 { return p.m.load64(p.l.Area(p.cpu(cpu)) + TailOff) }

// Fill writes everything but the commit. data beyond what was reserved is cut.
func (r Reservation) Fill(tid uint32, tsc uint64, data []byte) {
	r.m.store32(r.at+TIDOff, tid) // the reader looks at it before the commit
	b := r.m.b[r.at : r.at+int64(r.units)*Unit]
	binary.LittleEndian.PutUint64(b[TimeOff:], tsc)
	copy(b[DataOff:], data)
}

// Commit makes the record visible to the reader.
func (r Reservation) Commit() { r.m.store32(r.at+StateOff, CommitWord(r.id, r.units)) }

// CommitShort makes the record visible with only n bytes of data, and leaves the rest of its
// room as a skip record.
func (r Reservation) CommitShort(n int) {
	units := min(Units(max(n, 0)), r.units)
	rest := r.units - units
	if rest > exactUnits {
		rest -= rest % coarse // the record becomes longer
	}
	if units = r.units - rest; rest > 0 {
		clear(r.m.b[r.at+int64(units)*Unit : r.at+int64(r.units)*Unit])
		r.m.store32(r.at+int64(units)*Unit, SkipWord(rest))
	}
	r.m.store32(r.at+StateOff, CommitWord(r.id, units))
}

func (p *Producer) cpu(cpu int) int { return cpu & int(p.l.CPUMask) }

func (p *Producer) id(id uint32) uint32 {
	if int64(id) > int64(p.l.MaxProbes) {
		return 0
	}
	return id
}
