package detour

import (
	"fmt"

	"kprobe/probe/asm"
)

// Where calls return to that were last seen at a jump to unknown code
//
// A function may end in a jump to code that nothing is known of (onward.go): code made at run
// time, or a function that isn't probed. Its call is seen again where it returns to, by two
// jumps there, whose detours look for it in the common table:
//
//	over   at the call instruction: the calls that were noted in its slot before are over
//	       without a return (longjmp, an exception), and are forgotten
//	land   at the address behind it: the calls that return there are counted, and forgotten
//
// A call that has jumped is marked as passing on (Passing). One without the mark was left by an exception or longjmp while
// nothing was laid yet, and is forgotten without a hit: if its function were under way, its own return would have ended it.
//
// The stack is neither written nor read for it, but for one comparison: if the word below the
// stack pointer isn't the return address, the thread has come there by a jump.
//
// Some code takes its arguments off the stack when it returns, or moves its return address
// beforehand, by a number of words that only it knows (V8's). Then all slots are looked at that
// the call may have had: with a Landing that is Wide, lands look at wideSlots words below the
// stack pointer. What is noted there has returned, because no call is under way below the stack
// pointer, and nothing that calls at this instruction has so small a frame that another call of
// it could be noted there. A call that has moved its return address before its jump has no mark.

// wideSlots is how many words below the stack pointer a Wide Landing looks at.
const wideSlots = 16

// Landing is what a detour does at a return address, or at the call instruction before it.
type Landing struct {
	Tally  *Tally // with the table in common
	Return uint64 // the address
	Over   bool   // at the call instruction
	Wide   bool   // the call's slot may be any of wideSlots
}

// Lands reports whether the tally has what a Landing needs, for a table in common.
func (t *Tally) Lands(k *Calls) bool { return t.lands[0][0] != 0 && t.Serves(k) }

// Slots is how many words are looked at, from below the stack pointer down.
func (l *Landing) Slots() int {
	if l.Wide {
		return wideSlots
	}
	return 1
}

// buildLanding is build for a Landing.
func (b *builder) buildLanding(l *Landing, tail func(c *asm.Code) error) (*Detour, error) {
	wide, over := 0, 0
	if l.Wide {
		wide = 1
	}
	if l.Over {
		over = 1
	}
	piece := l.Tally.lands[over][wide]
	if piece == 0 || b.p.NoRedZone || b.p.Gate != 0 {
		return nil, unsupported("returns that are seen where they lead to, without a tally")
	}
	b.beforeTally(0, true)
	b.callTallyWith(func(link uint64) uint32 { return uint32(l.Return - link) }, piece)
	return b.leave(b.Here(), tail)
}

// landPieces emits the pieces for Landings.
func (e *calling) landPieces(t *Tally, piece func(emit func(), regs ...asm.Reg) uint64) {
	for over := range t.lands {
		for wide := range t.lands[over] {
			slots := 1
			if wide == 1 {
				slots = wideSlots
			}
			t.lands[over][wide] = piece(func() { e.land(slots, over == 1) }, asm.CX, asm.DX, asm.SI, asm.DI, asm.R11)
		}
	}
}

// land counts the calls that return to where the frame's number says, from the tally's link,
// and frees their rows; over only frees them, and so does land with one slot if they don't pass on.
// Until a call is counted the frame's marks say that none was: which are left the table tells.
func (e *calling) land(slots int, over bool) {
	b, f := e.b, &e.b.frame
	row, deep := f.temp(0), int64(-8*slots)
	again, search, left := b.Mark(), b.NewLabel(), b.NewLabel()
	b.LoadSX(asm.W32, asm.R11, asm.At(asm.SP, tallyID))
	b.OpLoad(asm.Add, asm.W64, asm.R11, asm.At(asm.SP, tallyLink))
	b.MovAbs(asm.SI, e.k.Addr)
	b.Lea(asm.DI, f.above(-8))
	b.Bind(search)
	b.hashCommon()
	b.eachRow(func(other asm.Label) {
		b.OpLoad(asm.Cmp, asm.W64, asm.R11, asm.At(asm.CX, callReturn))
		b.Jcc(asm.NE, other)
		if over {
			b.freeRow()
			return
		}
		if slots == 1 {
			b.ifElsewhere(other) // a jump has come here
		}
		b.Load(asm.W32, asm.AX, b.ownerOfRow())
		b.OpImm(asm.Cmp, asm.W32, asm.AX, anywhere)
		b.Jcc(asm.B, other)
		if slots == 1 {
			b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.CX, callTID), 0)
			b.Jcc(asm.GE, left)
		}
		b.Store(asm.W64, row, asm.CX)
		e.countRow(row)
		b.Jmp(again)
		if slots == 1 {
			b.Bind(left)
			b.freeRow()
		}
	})
	if slots > 1 {
		b.OpImm(asm.Sub, asm.W64, asm.DI, 8)
		b.Lea(asm.AX, f.above(deep))
		b.Op(asm.Cmp, asm.W64, asm.DI, asm.AX)
		b.Jcc(asm.AE, search)
	}
}

// checkLanding says why a detour's probes can't be those of a Landing.
func checkLanding(probes []Probe) error {
	if len(probes) != 1 {
		return fmt.Errorf("a landing has a detour with %d other probes", len(probes)-1)
	}
	return nil
}
