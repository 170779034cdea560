package recording

import (
	"encoding/binary"
	"time"

	"kprobe/probe/ring"
)

// The bytes before the parts of a block of records, and before each part.
const (
	rawHead  = 24
	partHead = 12
)

// mostRaw is at how many bytes a block of records is written.
const mostRaw = 512 << 10

// rawBlock is a block of records in the making, with those who give them. It is guarded
// by the Writer's mu.
type rawBlock struct {
	b     []byte // with room for both heads; nil: none was begun
	hits  uint64
	live  []*keeper // whose records may still come
	first ring.Sample
	count uint32 // of processes
}

// appendRaw appends records to the block in the making.
func (o *Writer) appendRaw(k *keeper, cpu int, b []byte) error {
	if err := o.out.failed(); err != nil || len(b) == 0 {
		return err
	}
	if len(o.block) > blockHead { // hits that came before
		if err := o.flushHits(); err != nil {
			return err
		}
	}
	for len(b) > 0 {
		if room := MaxBlock - (len(o.raw.b) - blockHead) - partHead; o.raw.b != nil && len(b) > room {
			if err := o.sealRaw(); err != nil {
				return err
			}
		}
		part := b
		if most := MaxBlock - rawHead - partHead; len(part) > most {
			part = upTo(b, most)
		}
		if o.raw.b == nil {
			o.raw.b = append(o.out.room(), make([]byte, rawHead)...)
		}
		le := binary.LittleEndian
		head := le.AppendUint32(le.AppendUint32(le.AppendUint32(o.raw.b, k.id), uint32(cpu)), uint32(len(part)))
		o.raw.b = append(head, part...)
		b = b[len(part):]
	}
	return nil
}

// upTo gives the records that fit into so many bytes, one at least.
func upTo(b []byte, most int) []byte {
	n := 0
	for n < len(b) {
		_, rest, ok := ring.Next(b[n:])
		if !ok || n > 0 && len(b)-len(rest) > most {
			break
		}
		n = len(b) - len(rest)
	}
	if n == 0 {
		return b
	}
	return b[:n]
}

// sealRaw writes the block of records that is in the making. mu is held.
func (o *Writer) sealRaw() error {
	if o.raw.b == nil {
		return nil
	}
	until := ^uint64(0)
	for _, k := range o.raw.live {
		until = min(until, k.until)
	}
	now := ring.TakeSample(ring.SystemClock{})
	for now.NS-o.raw.first.NS < ring.MinSpan {
		time.Sleep(ring.MinSpan)
		now = ring.TakeSample(ring.SystemClock{})
	}
	b, n := o.raw.b, o.raw.hits
	o.raw.b, o.raw.hits = nil, 0
	le := binary.LittleEndian
	le.PutUint64(b[blockHead:], now.TSC)
	le.PutUint64(b[blockHead+8:], uint64(now.NS))
	le.PutUint64(b[blockHead+16:], until)
	return o.out.put(blockRecords, b, n)
}
