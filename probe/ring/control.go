package ring

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
)

// What detours look at besides flags
//
// The section Control is shared by all detours of a session that do more than record. It says
// whether hits are taken, until when, how many of an event in a second, and how often triggers
// may still act. Detours and the tracer write it by the same rules: counts go down and buckets
// fill by locked instructions.
//
//	ControlOn     u8: if it is 0, no hit is taken (traceoff). Sessions whose probes are left
//	              alone have this byte elsewhere, where children of fork find it zeroed.
//	ControlEnd    u64: from this time stamp on no hit is taken. Whoever sees a later one
//	              clears FlagEnabled of all probes.
//	ControlOver   u64: 1 once somebody has done so
//	ControlRate   u64: 2^64 divided by the ticks of the time stamp counter in a second. A
//	              time stamp times that has the number of its second in the upper 64 bits
//	ControlSwaps  u64, and what follows: snapshots (swap.go)
//	ControlRules  u64: 1 once the process has set seccomp rules, and detours ask the kernel no more
//	Trigger(n)    u64: how often trigger n may still act
//	Kind(id)      u8: which of the events that triggers switch the probe belongs to; 0: none
//	Bucket(n)     u64: the number of the second (upper half) and of the hits that the event
//	              has had in it
const (
	ControlOn   = 0
	ControlEnd  = 8
	ControlRate = 16
	ControlOver = 24

	ControlRules = 56

	// MaxTriggers is how many triggers a session may have. MaxKinds is how many events they
	// may switch.
	MaxTriggers = 64
	MaxKinds    = 255

	controlTriggers = 64
	triggerSize     = 64 // a line for each: those of different events are no neighbours
)

// ControlState is what the section says about a session as a whole.
type ControlState struct {
	Off     bool // a trigger has switched recording off
	Expired bool // the end is over
	Rules   bool // the process has set seccomp rules, and detours ask the kernel no more
}

// ReadControl reads the section of a file. now is the present time stamp, or 0 for a file that
// nobody writes to any more.
func ReadControl(r io.ReaderAt, l *Layout, now uint64) (ControlState, error) {
	b := make([]byte, controlTriggers)
	if err := readFull(r, b, l.Control.Off); err != nil {
		return ControlState{}, fmt.Errorf("read what switches the probes: %w", err)
	}
	end := binary.LittleEndian.Uint64(b[ControlEnd:])
	return ControlState{Off: b[ControlOn] == 0, Expired: end != 0 && end <= now || b[ControlOver] != 0, Rules: b[ControlRules] != 0}, nil
}

func (l *Layout) controlSize() int64 { return l.buckets() + 8*(int64(l.MaxProbes)+1) }

func (l *Layout) buckets() int64 {
	return (controlTriggers + MaxTriggers*triggerSize + int64(l.MaxProbes) + 1 + 7) &^ 7
}

// Trigger is the offset of the number of times that a trigger may still act. n is from 0 to
// MaxTriggers-1.
func (l *Layout) Trigger(n int) int64 { return l.Control.Off + controlTriggers + int64(n)*triggerSize }

// Kind is the offset of the byte that says to which of the events that triggers switch a probe
// belongs.
func (l *Layout) Kind(id uint32) int64 {
	return l.Control.Off + controlTriggers + MaxTriggers*triggerSize + int64(id)
}

// Bucket is the offset of an event's bucket; there are as many as probes.
func (l *Layout) Bucket(n int) int64 { return l.Control.Off + l.buckets() + 8*int64(n) }

// secondOf is the number of the second that a time stamp is in, by ControlRate.
func secondOf(tsc, rate uint64) uint32 {
	hi, _ := bits.Mul64(tsc, rate)
	return uint32(hi)
}

// RateOf returns the value of ControlRate if a tick takes so many ns, in 1/2^32 (Header.Rate).
func RateOf(rate uint64) uint64 {
	// 2^64 / (10^9 * 2^32 / rate)
	hi, lo := bits.Mul64(rate, 1<<32)
	if hi >= 1e9 {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, 1e9)
	return q
}

// TicksIn returns how many ticks so many ns are, by a rate as RateOf takes it.
func TicksIn(ns, rate uint64) uint64 {
	hi, lo := bits.Mul64(ns, 1<<32)
	if hi >= rate {
		return 1 << 62
	}
	q, _ := bits.Div64(hi, lo, rate)
	return min(q, 1<<62)
}

// Take takes one of the hits that an event may have in the second of a time stamp, at most
// most. It returns false if the event has had them. off is the offset of its bucket. Detours do
// the same.
func (p *Producer) Take(off int64, tsc, rate uint64, most uint32) bool {
	now := uint64(secondOf(tsc, rate)) << 32
	for {
		was := p.m.load64(off)
		next := was + 1
		switch {
		case was < now:
			next = now | 1
		case uint32(was) >= most:
			return false
		}
		if p.m.cas64(off, was, next) {
			return true
		}
	}
}

// Spend uses up one of the times that a trigger may act. It returns false if none is left.
func (p *Producer) Spend(n int) bool {
	off := p.l.Trigger(n)
	for {
		left := p.m.load64(off)
		if left == 0 {
			return false
		}
		if p.m.cas64(off, left, left-1) {
			return true
		}
	}
}

// GiveBack undoes Spend, if the trigger's action turns out to be done already.
func (p *Producer) GiveBack(n int) { p.m.add64(p.l.Trigger(n), 1) }

// Gate reports whether hits are recorded, by ControlOn.
func (p *Producer) Gate() bool { return p.m.load64(p.l.Control.Off+ControlOn)&0xff != 0 }

// TurnGate opens or shuts the gate at ControlOn. It returns false if the gate was in that
// state.
func (p *Producer) TurnGate(on bool) bool {
	off, to := p.l.Control.Off+ControlOn, uint64(0)
	if on {
		to = 1
	}
	for {
		was := p.m.load64(off)
		if was&0xff == to {
			return false
		}
		if p.m.cas64(off, was, was&^0xff|to) {
			return true
		}
	}
}

// Turn switches a probe. It returns false if the probe was in that state.
func (p *Producer) Turn(id uint32, on bool) bool {
	off := p.l.Flag(p.id(id))
	if on {
		return p.m.or32(off, FlagEnabled)&FlagEnabled == 0
	}
	return p.m.and32(off, ^uint32(FlagEnabled))&FlagEnabled != 0
}
