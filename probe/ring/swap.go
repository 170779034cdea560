package ring

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Snapshots
//
// A file with spare rings (Layout.Spare) has two areas for each CPU, with two rings and
// counters each: the lower half of all areas and the upper half. One half is written. A trigger
// takes a snapshot as the kernel does: from then on the other half is written. The first half
// stays as it is until the next snapshot, when its rings are used again. A hit looks once which
// half is in use, and a hit in progress finishes there. So a record may reach a half a moment
// after it was left.
//
//	ControlSwaps    u64: how many snapshots were taken, times Layout.CPUs. A CPU's number
//	                plus this, modulo Areas, is the number of the area that is written. It
//	                is changed by lock cmpxchg alone.
//	ControlSwapped  u64 for each half: the time stamp of a moment just before it was last
//	                left. It is stored after the change.
//
// As in the kernel, nothing clears a half that is written again: what it holds from before the
// snapshot is overwritten in time. Readers skip that (ReadSwaps), because a gap follows it: the
// hits of the snapshot.
const (
	ControlSwaps   = 32
	ControlSwapped = 40
)

// Swaps describes the snapshots that triggers have taken.
type Swaps struct {
	Taken uint64
	// Half is which half holds the last one: 0 or 1.
	Half int
	// At is the time stamp of the last snapshot and Since that of the one before. 0 means
	// that there is none, or that it isn't known yet.
	At, Since uint64
}

// ReadSwaps reads it from a file. It is zero for a file without spare rings.
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
