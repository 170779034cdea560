package ring

import "time"

// The clock in the header's page, for detours that need nanoseconds at the hit (a filter that
// compares the time). From ClockOff on:
//
//	+0   u64 how often it was written; 0: never
//	+32  two lines, ClockLine bytes apart: u64 counter, u64 ns, u64 ns per tick/2^32
//
// If n is the word at +0, the line in use is the one with the number n&1. The reader writes the
// other line and then n+1, at most a few times a second. A detour reads n, its line, and n
// again. If n is the same, nobody has begun to write that line.
const (
	ClockOff   = 2048
	ClockLines = 32
	ClockLine  = 32
)

// publish writes the line that is valid from now on.
func (r *Reader) publish() {
	at := r.l.Header.Off + ClockOff
	n := r.m.load64(at) + 1
	line := at + ClockLines + int64(n&1)*ClockLine
	r.m.store64(line, r.cal.cur.at.TSC)
	r.m.store64(line+8, uint64(r.cal.cur.at.NS))
	r.m.store64(line+16, r.cal.cur.mult)
	r.m.store64(at, n)
}

// Calibrate makes sure that the reader and detours can convert times. It sleeps for MinSpan if
// the reader is younger than that. The error is ErrClock.
func (r *Reader) Calibrate() error {
	for tries := 0; r.cal == nil; tries++ {
		// The first sample is too young to convert times by.
		if tries == 100 {
			return ErrClock
		}
		time.Sleep(MinSpan * time.Nanosecond)
		r.calibrate(r.opts.Clock.Mono())
	}
	return nil
}
