package ring

// Rings whose records are overwritten
//
// A session that nobody reads has rings in which the newest records take the place of
// the oldest. Records, words and the two ways to take room are those of other rings; what
// differs is who makes room, and that no room is ever cleared:
//
//	full     A writer that finds no room moves the tail itself, over whole finished
//	         records at it, ChunkSize bytes or so, by lock cmpxchg, counts them under
//	         their probes (CounterHits) and at OverOff, and tries again. Nobody waits for
//	         a writer that was interrupted there, and nobody does twice what it has done.
//	stamp    What lies behind the tail isn't zero, but of the lap before. So StampSize
//	         bytes stand before each record, which say its position: they are stored
//	         behind its state word, and before anything else. A reader takes what has
//	         another stamp for room that is reserved and not written to yet. The first
//	         position is a random number, so that nothing that a program has looks like
//	         a stamp.
//	late     The tail isn't moved over an unfinished record: its writer may be asleep,
//	         and would write into those of others. While one is at the tail hits are
//	         lost. One at which hits are lost in StuckPeriods periods of 1<<StuckShift
//	         ticks of the time stamp counter, some ten seconds, is of a thread that was
//	         killed or jumped out of it (siglongjmp): it is counted as lost
//	         (ReaderLost), and passed over. Periods are counted, not the time between
//	         two: a machine that stood still meanwhile, or counters that differ, make
//	         one more of them at most.
//
// So each hit is at any moment in one place, but for the instructions between a word's
// change and its counters': a whole record between tail and head; CounterHits, once the
// tail was moved over it; CounterLost or CounterFiltered; ReaderLost; or an unfinished
// record. Each change of place is one instruction, which one thread does: lock cmpxchg
// of the head begins a record, the store of its state word ends it, lock cmpxchg of the
// tail, from where the records that are counted then were read, takes them. A thread that
// ends between that and its counters, or leaves there by siglongjmp, ten to forty instructions
// in about sixty hits, leaves what it took uncounted: the records of ChunkSize bytes, and of
// the one that goes beyond.
//
// A reader needs no part in this: it copies what lies between tail and head, reads the
// tail again, and drops what was overtaken. The tail always is where a record starts.
const (
	// StampSize is what stands before a record: u64, the position of the stamp.
	StampSize = 8
	// ChunkSize is how many bytes of records a writer makes room of at once. A hit
	// takes a fraction of a microsecond longer for it.
	ChunkSize = 4096
	// StuckPeriods is in how many periods hits are lost before an unfinished record is
	// given up, and StuckShift the logarithm of the ticks of one.
	StuckPeriods = 1 << 10
	StuckShift   = 25

	// Words of a ring, in the line of TailOff.
	OverOff   = 72 // u64, records that were overwritten
	StuckOff  = 80 // u64, 1 + the tail at which an unfinished record was met
	StuckTry  = 88 // u64, in how many periods since
	StuckLast = 96 // u64, the last one
)

// FirstPosition is where the positions of rings that are overwritten begin, of a random
// number.
func (l *Layout) FirstPosition(random uint64) uint64 {
	return random >> 1 &^ uint64(l.RingSize-1)
}

// Rate is the ns per tick, in 1/2^32, between the moment when the reader was made and a
// later one.
func (r *Reader) Rate(now Sample) (rate uint64, ok bool) { return slope(r.first, now) }
