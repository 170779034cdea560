package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// What else is done at hits
//
// Probes of sessions with limits, an end, or triggers check more than a flag (probe/ring,
// control.go). Other probes have no byte of this code. For a hit that passes the filter, the
// order is:
//
//	traceon       the hit is recorded, too
//	gate          if it is closed, nothing is recorded, and the rest is done all the same
//	limit         if the event has had its hits in this second, the hit is counted
//	              (CounterLimited)
//	stacktrace    the record has the stack, if there is room for it
//	record        its time stamp says whether the end has passed: then its room is freed, and
//	              all probes are switched off
//	the others    traceoff, snapshot, enable_event, disable_event: the hit itself is
//	              recorded before
//
// A hit that is limited or lost fires triggers like any other.

// Control says what a probe's hits do besides being recorded.
type Control struct {
	// Most is how many hits of the event are recorded in a second; 0 is all. Bucket is
	// where they are counted (ring.Layout.Bucket).
	Most   uint32
	Bucket uint64
	// Ends says that no hit is taken from ring.ControlEnd on.
	Ends     bool
	Triggers []Trigger
}

// Trigger says what some hits of a probe do.
type Trigger struct {
	Action fetch.Action
	// Condition is the number of the program's condition.
	Condition int
	// Left is the address of the number of times that it may still act
	// (ring.Layout.Trigger); 0 is always.
	Left uint64
	// Kind, of EnableEvent and DisableEvent, says which probes are switched
	// (ring.Layout.Kind).
	Kind uint8
}

// CanTrigger reports whether a detour can do what a trigger says.
func CanTrigger(a fetch.Action) bool {
	switch a {
	case fetch.TraceOn, fetch.TraceOff, fetch.EnableEvent, fetch.DisableEvent, fetch.Stacktrace, fetch.Snapshot:
		return true
	}
	return false
}

// triggers reports whether the current probe has triggers.
func (b *builder) triggers() bool {
	return b.probe != nil && b.probe.Control != nil && len(b.probe.Control.Triggers) > 0
}

// controlled takes a hit that has passed the filter of a probe with a Control, and continues at done.
func (b *builder) controlled(pr *Probe, done asm.Label) {
	k := pr.Control
	after := b.NewLabel()
	b.over, b.ended = done, false
	if b.layout.where >= 0 {
		b.StoreImm(asm.W64, b.frame.temp(b.layout.where), 0)
	}
	for i := range k.Triggers {
		if k.Triggers[i].Action == fetch.TraceOn {
			b.trigger(&k.Triggers[i])
		}
	}
	b.gate(pr, after)
	if k.Most > 0 {
		b.limit(k, after)
	}
	if pr.CountOnly {
		b.ends(pr, done)
	}
	for i := range k.Triggers {
		if k.Triggers[i].Action == fetch.Stacktrace && sometimes(pr.Program) && !pr.CountOnly {
			b.trigger(&k.Triggers[i])
		}
	}
	lost := after
	if k.Ends {
		lost = b.NewLabel()
		b.later(func() { // perhaps nobody empties the ring any more, because the end has passed
			b.Bind(lost)
			b.ends(pr, done)
			b.Jmp(after)
		})
	}
	b.account(pr, lost)
	b.Bind(after)
	for i := range k.Triggers {
		if a := k.Triggers[i].Action; a != fetch.TraceOn && a != fetch.Stacktrace {
			b.trigger(&k.Triggers[i])
		}
	}
	b.Bind(done)
}

// mayCount is for probes whose hits are not recorded. It continues at done unless the hit is to be counted.
// Changes AX, CX and DX.
func (b *builder) mayCount(pr *Probe, done asm.Label) {
	if pr.Control == nil {
		return
	}
	b.gate(pr, done)
	b.ends(pr, done)
}

// gate continues at shut if the gate is shut. Only a probe with triggers needs this: other probes have
// tested the gate before. Changes AX.
func (b *builder) gate(pr *Probe, shut asm.Label) {
	if b.p.Gate == 0 || len(pr.Control.Triggers) == 0 {
		return
	}
	b.MovAbs(asm.AX, b.p.Gate)
	b.OpMemImm(asm.Cmp, asm.W8, asm.At(asm.AX, 0), 0)
	b.Jcc(asm.E, shut)
}

// limit lets the hit pass if the event may record one more in this second. Else it counts the hit as limited
// and continues at after. Changes AX, CX and DX.
func (b *builder) limit(k *Control, after asm.Label) {
	fresh, swap, full := b.NewLabel(), b.NewLabel(), b.NewLabel()
	bucket := asm.At(asm.CX, int32(int64(k.Bucket)-int64(b.p.Control)))
	again := b.Mark()
	b.tsc()
	b.MovAbs(asm.CX, b.p.Control)
	b.MulMem(asm.W64, asm.At(asm.CX, ring.ControlRate))
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	b.Load(asm.W64, asm.AX, bucket)
	b.Op(asm.Cmp, asm.W64, asm.AX, asm.DX)
	b.Jcc(asm.B, fresh)
	b.OpImm(asm.Cmp, asm.W32, asm.AX, int32(k.Most))
	b.Jcc(asm.AE, full)
	b.Lea(asm.DX, asm.At(asm.AX, 1))
	b.Bind(swap)
	b.Lock()
	b.Cmpxchg(asm.W64, bucket, asm.DX)
	b.Jcc(asm.NE, again)
	id, seq := b.probe.ID, b.seq
	b.later(func() {
		b.Bind(fresh)
		b.OpImm(asm.Or, asm.W64, asm.DX, 1)
		b.Jmp(swap)
		b.Bind(full)
		if seq {
			b.area()
		}
		b.countLocked(id, ring.CounterLimited)
		b.Jmp(after)
	})
}

// ends continues at over if the probe has an end that has passed. Changes AX, CX and DX.
func (b *builder) ends(pr *Probe, over asm.Label) {
	if pr.Control.Ends {
		b.unlessOver(over)
	}
}

// unlessOver switches all probes off and continues at over if the end has passed. Changes AX, CX and DX.
func (b *builder) unlessOver(over asm.Label) {
	late := b.NewLabel()
	b.tsc()
	b.MovAbs(asm.CX, b.p.Control)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, ring.ControlEnd))
	b.Jcc(asm.AE, late)
	b.later(func() {
		b.Bind(late)
		b.switchAll(over)
	})
}

// endsAtStamp compares the time stamp of the record at CX with the end. If the end has passed, it marks the
// record as skipped, and continues at over. AX and DX are as stamp leaves them; halves says that
// they have the halves of the time stamp. Changes AX and DX.
func (b *builder) endsAtStamp(halves bool) {
	if b.probe.Control == nil || !b.probe.Control.Ends {
		return
	}
	if halves {
		b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
		b.Op(asm.Or, asm.W64, asm.AX, asm.DX)
	}
	late, over := b.NewLabel(), b.over
	b.MovAbs(asm.DX, b.p.Control)
	b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.DX, ring.ControlEnd))
	b.Jcc(asm.AE, late)
	texts, units := b.layout.texts, ring.Units(b.prog.Fixed+b.tailSize())
	b.later(func() {
		b.Bind(late)
		b.frame.writing(NotWriting)
		state := asm.At(asm.CX, ring.StateOff)
		if texts { // atomic: the reader may be reading it
			b.Load(asm.W32, asm.AX, state)
			b.OpImm(asm.And, asm.W32, asm.AX, ^ring.MaxID)
			b.OpImm(asm.Or, asm.W32, asm.AX, -1<<31)
			b.Store(asm.W32, state, asm.AX)
		} else {
			b.StoreImm(asm.W32, state, int32(ring.SkipWord(units)))
		}
		b.switchAll(over)
	})
}

// switchAll switches all probes off and continues at over. Changes AX and CX.
func (b *builder) switchAll(over asm.Label) {
	b.MovAbs(asm.AX, b.p.Control)
	b.StoreImm(asm.W8, asm.At(asm.AX, ring.ControlOver), 1)
	b.MovAbs(asm.AX, b.p.Probes)
	b.Load(asm.W32, asm.CX, asm.At(asm.AX, 0))
	b.MovAbs(asm.AX, b.p.Flags)
	loop := b.Mark()
	b.Test(asm.W32, asm.CX, asm.CX)
	b.Jcc(asm.E, over)
	b.StoreImm(asm.W8, asm.Indexed(asm.AX, asm.CX, 4, 0), 0)
	b.OpImm(asm.Sub, asm.W32, asm.CX, 1)
	b.Jmp(loop)
}

// trigger carries out a trigger if its condition holds. Changes AX, CX and DX, and the registers that
// conditions change.
func (b *builder) trigger(t *Trigger) {
	no, act := b.NewLabel(), b.NewLabel()
	if f := b.prog.Conditions[t.Condition]; f != nil {
		b.filter(f, no)
	}
	b.Jmp(act)
	b.Bind(no)
	ends, over, work, layout, stack := b.probe.Control.Ends, b.over, b.frame.temp(b.layout.work), b.layout, b.prog.Stack
	b.later(func() {
		b.Bind(act)
		switch t.Action {
		case fetch.TraceOn, fetch.TraceOff:
			b.turnGate(t, ends, over, no)
		case fetch.Stacktrace:
			b.wantStack(t, &layout, stack, no)
		case fetch.Snapshot:
			b.swap(t, b.frame.temp(layout.where), work, ends, over, no)
		default:
			b.turnEvent(t, work, no)
		}
	})
}

// wantStack notes that the record gets the stack, and continues at no.
func (b *builder) wantStack(t *Trigger, l *layout, s *fetch.StackCopy, no asm.Label) {
	want, total := b.frame.temp(l.want), b.frame.temp(l.total)
	b.OpMemImm(asm.Cmp, asm.W64, want, 0)
	b.Jcc(asm.NE, no)
	b.OpMemImm(asm.Cmp, asm.W64, total, int32(fetch.MaxData-s.Size()))
	b.Jcc(asm.A, no)
	b.spend(t, no)
	b.StoreImm(asm.W64, want, int32(s.Size()))
	b.OpMemImm(asm.Add, asm.W64, total, int32(s.Size()))
	b.Jmp(no)
}

// sometimes reports whether only some records of a program have the stack.
func sometimes(prog *fetch.Program) bool { return prog.Stack != nil && prog.Stack.Mark > 0 }

// copyOfStack copies the stack into the record, if the record gets it.
func (b *builder) copyOfStack() {
	s := b.prog.Stack
	if s == nil {
		return
	}
	if !sometimes(b.prog) {
		b.stackCopy(s)
		return
	}
	none := b.NewLabel()
	b.Load(asm.W64, asm.AX, b.frame.temp(b.layout.want))
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Store(asm.W64, data(s.Mark), asm.AX)
	b.Jcc(asm.E, none)
	b.StoreImm(asm.W64, data(s.Mark), int32(s.Slot))
	b.stackCopy(s)
	b.Bind(none)
}

// turnGate opens or shuts the gate and continues at no. If the gate is so already, the trigger's count stays;
// if another thread was faster, the count is restored.
func (b *builder) turnGate(t *Trigger, ends bool, over, no asm.Label) {
	to, is := int32(1), asm.NE
	if t.Action == fetch.TraceOff {
		to, is = 0, asm.E
	}
	b.MovAbs(asm.AX, b.p.Gate)
	b.OpMemImm(asm.Cmp, asm.W8, asm.At(asm.AX, 0), 0)
	b.Jcc(is, no)
	if ends && to == 1 {
		b.unlessOver(over)
	}
	b.spend(t, no)
	b.MovAbs(asm.CX, b.p.Gate)
	b.MovImm(asm.AX, uint64(to))
	b.Xchg(asm.W8, asm.At(asm.CX, 0), asm.AX)               // locked
	if on := b.p.Control + ring.ControlOn; on != b.p.Gate { // for readers of the file
		b.MovAbs(asm.CX, on)
		b.StoreImm(asm.W8, asm.At(asm.CX, 0), to)
	}
	if t.Left != 0 {
		b.OpImm(asm.Cmp, asm.W8, asm.AX, to)
		b.Jcc(asm.NE, no)
		b.giveBack(t)
	}
	b.Jmp(no)
}

// turnEvent switches the probes of a kind on or off and continues at no. If all are so already, the trigger's
// count stays. work is a temporary.
func (b *builder) turnEvent(t *Trigger, work asm.Mem, no asm.Label) {
	to := int32(0)
	if t.Action == fetch.EnableEvent {
		to = ring.FlagEnabled
	}
	turn, none := b.NewLabel(), b.NewLabel()
	b.eachOfKind(t.Kind, no, func(flag asm.Mem) {
		b.OpMemImm(asm.Cmp, asm.W8, flag, to)
		b.Jcc(asm.NE, turn)
	})
	b.Bind(turn)
	b.spend(t, no)
	b.StoreImm(asm.W64, work, 0)
	b.eachOfKind(t.Kind, none, func(flag asm.Mem) {
		b.MovImm(asm.DX, uint64(to))
		b.Xchg(asm.W8, flag, asm.DX)
		b.OpImm(asm.Xor, asm.W32, asm.DX, to)
		b.OpStore(asm.Or, asm.W64, work, asm.DX)
	})
	b.Bind(none)
	if t.Left != 0 {
		b.OpMemImm(asm.Cmp, asm.W64, work, 0)
		b.Jcc(asm.NE, no)
		b.giveBack(t)
	}
	b.Jmp(no)
}

// eachOfKind emits a loop over the flags of the probes of a kind, which continues at end. visit emits the
// loop's body, which must not change CX or AX. Changes AX and CX.
func (b *builder) eachOfKind(kind uint8, end asm.Label, visit func(flag asm.Mem)) {
	next := b.NewLabel()
	b.MovAbs(asm.AX, b.p.Probes)
	b.Load(asm.W32, asm.CX, asm.At(asm.AX, 0))
	loop := b.Mark()
	b.Test(asm.W32, asm.CX, asm.CX)
	b.Jcc(asm.E, end)
	b.MovAbs(asm.AX, b.p.Kinds)
	b.OpMemImm(asm.Cmp, asm.W8, asm.Indexed(asm.AX, asm.CX, 1, 0), int32(int8(kind)))
	b.Jcc(asm.NE, next)
	b.MovAbs(asm.AX, b.p.Flags)
	visit(asm.Indexed(asm.AX, asm.CX, 4, 0))
	b.Bind(next)
	b.OpImm(asm.Sub, asm.W32, asm.CX, 1)
	b.Jmp(loop)
}

// spend counts a trigger down by one, or continues at none if it may not act any more. Changes AX, CX and DX.
func (b *builder) spend(t *Trigger, none asm.Label) {
	if t.Left == 0 {
		return
	}
	b.MovAbs(asm.DX, t.Left)
	again := b.Mark()
	b.Load(asm.W64, asm.AX, asm.At(asm.DX, 0))
	b.Test(asm.W64, asm.AX, asm.AX)
	b.Jcc(asm.E, none)
	b.Lea(asm.CX, asm.At(asm.AX, -1))
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.DX, 0), asm.CX)
	b.Jcc(asm.NE, again)
}

// giveBack undoes spend. Changes DX.
func (b *builder) giveBack(t *Trigger) {
	b.MovAbs(asm.DX, t.Left)
	b.Lock()
	b.IncMem(asm.W64, asm.At(asm.DX, 0))
}
