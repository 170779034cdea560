package ring

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Snapshots
//
// A file with spare rings (Layout.Spare) has two areas for each CPU, with two rings and
// counters each: the lower half of all areas and the upper one. One half is written. A
// trigger takes a snapshot as the kernel does: it has the other half be written from then
// on. What the first holds stays as it is until the next snapshot is taken, whose rings
// these then become again. A hit looks once which half it is, and whoever was in the midst
// of one finishes there: so a record may come to a half a moment after it was left.
//
//	ControlSwaps    u64: how many snapshots were taken, times Layout.CPUs: a CPU's number
//	                and this, modulo Areas, is the number of the area that is written. It
//	                is changed by lock cmpxchg alone.
//	ControlSwapped  u64 for each half: the time stamp of a moment just before it was left
//	                last. It is stored behind the change.
//
// As in the kernel nothing clears a half that is written again: what it holds of before
// the snapshot is overwritten in time. Readers pass over that (ReadSwaps), as there is a
// gap behind it: the hits of the snapshot.
const (
	ControlSwaps   = 32
	ControlSwapped = 40
)

// Swaps tells of the snapshots that triggers have taken.
type Swaps struct {
	Taken uint64
	// Half is which half holds the last one: 0 or 1.
	Half int
	// At is the time stamp of the last one and Since that of the one before; 0: there is
	// none, or it isn't known yet.
	At, Since uint64
}

// ReadSwaps reads it of a file; of one without spare rings it is zero.
func ReadSwaps(r io.ReaderAt, l *Layout) (s Swaps, err error) {
	if !l.Spare {
		return s, nil
	}
	var b [24]byte
	if err := readFull(r, b[:], l.Control.Off+ControlSwaps); err != nil {
		return s, fmt.Errorf("read what triggers have taken: %w", err)
	}
	le := binary.LittleEndian
	if s.Taken = le.Uint64(b[:]) / uint64(l.CPUs); s.Taken == 0 {
		return s, nil
	}
	s.Half = int(s.Taken-1) & 1
	s.At, s.Since = le.Uint64(b[8+8*s.Half:]), le.Uint64(b[8+8*(1-s.Half):])
	if s.At <= s.Since {
		s.At = 0 // it is just being taken, or who took it was killed
	}
	return s, nil
}

// half is which half a ring is of.
func (l *Layout) half(ring int) int { return ring % l.Areas() / l.CPUs }
