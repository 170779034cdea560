package ring

// The record. It starts 8-byte aligned:
//
//	+0  u32 state word: probe id (bits 0-19), length (bits 20-30), commit (bit 31)
//	+4  u32 thread id
//	+8  u64 rdtsc
//	+16     argument data, as fetch encodes it, padded to 8 bytes
//
// The length is that of the whole record, header included. Up to ExactSize it counts units of 8
// bytes; beyond, pieces of CoarseUnit bytes: a long record is padded.
//
// # How a record is written
//
// Free space of a ring is zero. A writer, on whatever CPU's ring it picked:
//
//  1. h = [HeadOff]; n = h + 8*units; if n - [TailOff] > ring size (unsigned):
//     again if [HeadOff] isn't h any more (a writer that slept in between may
//     find the tail beyond h), else lock inc the counter CounterLost and leave.
//  2. lock cmpxchg [HeadOff], h → n; on failure again from 1. (Of a CPU's second
//     ring: both steps in one restartable sequence, whose last instruction is a
//     plain store.)
//     The record is at data + (h & (size-1)). It may reach past the ring's end
//     into the slack (Slack bytes), never around; the bytes at the ring's start
//     that it would have covered stay unused that lap.
//  3. u32 [+0] = StateWord(id, units): before anything else in the record. It
//     lets a reader step over a record that is never finished.
//  4. the thread id at +4, rdtsc (after the cmpxchg, so that a record that is
//     not yet seen as reserved is younger than whoever looked) at +8, the data.
//  5. u32 [+0] = CommitWord(id, units): after everything else.
//
// A writer that reserved more than it needed commits the first part with its
// true length, after having stored SkipWord(rest) at the rest's start.
// x86 stores in program order; no fence is needed.
const (
	HeaderSize = 16 // bytes before the argument data
	Unit       = 8  // bytes per unit of length

	StateOff = 0
	TIDOff   = 4
	TimeOff  = 8
	DataOff  = 16

	idBits    = 20
	unitBits  = 11
	commitBit = 1 << 31

	// LengthShift is where the length is in a state word, LengthMask its bits once they are
	// there no more.
	LengthShift = idBits
	LengthMask  = 1<<unitBits - 1
	// ExactSize is the size in bytes from which on a record's is a multiple of CoarseUnit.
	ExactSize  = exactUnits * Unit
	CoarseUnit = coarse * Unit
	exactUnits = 1536
	coarse     = 8

	// MaxID is the highest probe id. Ids count from 1; 0 marks a skip record.
	MaxID = 1<<idBits - 1
	// MaxUnits and MaxRecord bound one record, header included.
	MaxUnits  = 4096
	MaxRecord = MaxUnits * Unit
	// Slack is mapped after every ring's data.
	Slack = MaxRecord
)

// StateWord is the state word of a record that is reserved and being written.
// units is the record's length in 8-byte units, header included, as FitUnits gives it.
func StateWord(id uint32, units int) uint32 {
	if units > exactUnits {
		units = exactUnits + (units-exactUnits)/coarse
	}
	return id&MaxID | uint32(units&LengthMask)<<LengthShift
}

// CommitWord is the state word of a finished record.
func CommitWord(id uint32, units int) uint32 { return StateWord(id, units) | commitBit }

// SkipWord is the state word of units of room that hold no record.
func SkipWord(units int) uint32 { return CommitWord(0, units) }

// SplitState takes a state word apart. Both id and units are 0 for room that
// is reserved and not yet written to. units is 0 for a length that no record has.
func SplitState(w uint32) (id uint32, units int, committed bool) {
	units = int(w >> LengthShift & LengthMask)
	if units > exactUnits {
		if units = exactUnits + (units-exactUnits)*coarse; units > MaxUnits {
			units = 0
		}
	}
	return w & MaxID, units, w&commitBit != 0
}

// Units is the number of 8-byte units of a record with n bytes of data.
func Units(n int) int { return FitUnits((HeaderSize + n + Unit - 1) / Unit) }

// FitUnits is the least length in units, from units on, that a record may have.
func FitUnits(units int) int {
	if units <= exactUnits {
		return units
	}
	return (units + coarse - 1) / coarse * coarse
}

// Padded is the number of bytes of data in a record that has room for n.
func Padded(n int) int { return Units(n)*Unit - HeaderSize }
