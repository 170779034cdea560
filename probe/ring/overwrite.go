package ring

// Rings whose records are overwritten
//
// A session that nobody reads has rings in which the newest records overwrite the oldest.
// Records, words and the two ways to reserve room are those of other rings. The difference is
// who makes room, and that no room is ever cleared:
//
//	full     A writer that finds no room takes whole finished records at the tail, about
//	         ChunkSize bytes, counts them under their probes and at OverOff, moves the tail
//	         past them, and tries again. Nobody waits for a writer that was interrupted
//	         there: the next one completes what it has begun.
//	stamp    Room after the tail isn't zero, but has the contents of the lap before. So
//	         StampSize bytes before each record say its position. They are stored after its
//	         state word, and before anything else. A reader takes room with another stamp
//	         for room that is reserved and not written to yet. The first position is a
//	         random number, so that no data of a program looks like a stamp.
//	late     The tail isn't moved over an unfinished record: its writer may be asleep, and
//	         would write into the records of others. While one is at the tail, hits are
//	         lost. If hits are lost at one in StuckPeriods periods of 1<<StuckShift ticks of
//	         the time stamp counter, some ten seconds, its thread was killed or jumped out of
//	         it (siglongjmp). It is counted as lost (ReaderLost), and passed over. Periods
//	         are counted, instead of the time between two: a machine that stood still
//	         meanwhile, or counters that differ, add at most one.
//
// Records are taken in steps. Each is one instruction, and is done once, by whoever comes
// first:
//
//	claimed  ClaimOff becomes the position after the records that are taken, by lock
//	         cmpxchg. It lies beyond the tail from then until the tail is there, and
//	         everybody who finds it so continues with the remaining steps.
//	counted  Each probe's count of records that were overwritten in this ring, and the
//	         position up to which they were counted, change together (TakenOff,
//	         lock cmpxchg16b): whoever finds the position beyond the tail leaves the
//	         count as it is. Then the same for OverOff.
//	moved    The tail becomes what was claimed, by lock cmpxchg.
//
// A late thread finds the tail elsewhere, or a position beyond the one that it knows, and
// starts again. So a thread may end at any of these steps, or leave by siglongjmp, and no hit
// is lost or counted twice. At any moment each hit is in one place: a whole record after the
// position up to which its probe's were counted; that count; CounterHits, CounterLost or
// CounterFiltered; ReaderLost; or an unfinished record. Only a thread that gives up an
// unfinished record moves the tail first, and counts that one hit afterwards.
//
// A reader needs no part in this: it copies what lies between tail and head, reads the tail
// again, and drops what was overtaken. The tail is always the start of a record.
const (
	// StampSize is the size of the stamp before a record: u64, the position of the stamp.
	StampSize = 8
	// ChunkSize is how many bytes of records a writer removes at once to make room. A hit
	// takes a fraction of a microsecond longer for it.
	ChunkSize = 4096
	// StuckPeriods is in how many periods hits are lost before an unfinished record is
	// given up. StuckShift is the logarithm of the ticks of one.
	StuckPeriods = 1 << 10
	StuckShift   = 25

	// Words of a ring, in the line of TailOff.
	ClaimOff  = 72  // u64, up to where records are being taken
	OverOff   = 80  // u64, records that were overwritten
	OverTo    = 88  // u64, the position up to which they are counted there
	StuckOff  = 96  // u64, 1 + the tail at which an unfinished record was met
	StuckTry  = 104 // u64, in how many periods since
	StuckLast = 112 // u64, the last one

	// TakenSize is the distance between two probes' counts of overwritten records
	// (Layout.TakenOff). The counts for a CPU's second ring are TakenSeq after those for
	// its first.
	TakenSize = 32
	TakenSeq  = 16
)

// TakenOff is the offset, in a CPU's area, of the counts of overwritten records: {u64 count,
// u64 the position up to which they are counted} for each of the CPU's rings, TakenSize bytes a
// probe, by its number.
func (l *Layout) TakenOff() int64 { return (l.tallyEnd() + 63) &^ 63 }

// areaEnd is the size of a CPU's area.
func (l *Layout) areaEnd() int64 {
	if !l.Overwrite {
		return l.tallyEnd()
	}
	return l.TakenOff() + (int64(l.MaxProbes)+1)*TakenSize
}

// taken is the offset of a probe's count of records that were overwritten in a ring; the
// position follows it.
func (l *Layout) taken(ring int, id uint32) int64 {
	return l.Area(ring%l.Areas()) + l.TakenOff() + int64(id)*TakenSize + int64(ring/l.Areas())*TakenSeq
}

// FirstPosition is where the positions of rings that are overwritten begin, given a random
// number.
func (l *Layout) FirstPosition(random uint64) uint64 {
	return random >> 1 &^ uint64(l.RingSize-1)
}

// Rate is the ns per tick, in 1/2^32, between the moment when the reader was made and a
// later one.
func (r *Reader) Rate(now Sample) (rate uint64, ok bool) { return slope(r.first, now) }
