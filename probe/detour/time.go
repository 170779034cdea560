package detour

import (
	"slices"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Time in records
//
// Program.Eval records nanoseconds. A detour records the time stamp counter, which the reader converts; TimeSlots
// says where. If a program uses the time itself (in a filter, as a number of fewer bits, or in
// arithmetic), its detour converts all times to nanoseconds, by the clock in the memory file.

// TimeSlots are the offsets, in a program's argument data, of values that a detour leaves as
// the time stamp counter and Eval gives in nanoseconds: $time, and an entry's time. The reader
// of the record converts them.
func TimeSlots(prog *fetch.Program) []int {
	if NeedsClock(prog) {
		return nil
	}
	var slots []int
	for i := range prog.Args {
		if a := &prog.Args[i]; usesTime(prog, &a.Chain) {
			slots = append(slots, a.Slot)
		}
	}
	return slots
}

// NeedsClock reports whether a program needs nanoseconds at the hit, so that the clock at
// Params.Clock must be written when its detour runs.
func NeedsClock(prog *fetch.Program) bool {
	for i := range prog.Args {
		a := &prog.Args[i]
		whole := a.Store == fetch.StoreValue && a.Type.Size == 8 && a.Type.BitWidth == 0 && len(a.Loads) == 0 && a.Source != fetch.SourceComputed
		if usesTime(prog, &a.Chain) && !whole || a.Len != nil && usesTime(prog, a.Len) ||
			slices.ContainsFunc(a.Parts, func(p fetch.Part) bool { return usesTime(prog, &p.Chain) }) {
			return true
		}
	}
	for q := range prog.Preds() {
		if q.Field == fetch.FieldDuration || q.Field == fetch.FieldArg && q.Arg >= 0 && q.Arg < len(prog.Args) && usesTime(prog, &prog.Args[q.Arg].Chain) {
			return true
		}
	}
	return false
}

// usesTime reports whether a value comes from the time, or the entry's.
func usesTime(prog *fetch.Program, c *fetch.Chain) bool {
	source := c.Source
	if source == fetch.SourceComputed {
		source = c.From
	}
	if source == fetch.SourceEntry && c.N >= 0 && c.N < len(prog.Entry) {
		source = prog.Entry[c.N].Source
	}
	return source == fetch.SourceTime
}

// nanoseconds sets AX to the time in nanoseconds, by the memory file's clock. word is the offset of a temporary.
// Changes DX and the register line.
func (b *builder) nanoseconds(line asm.Reg, word int) {
	early, on := b.NewLabel(), b.NewLabel()
	again := b.Mark()
	b.MovAbs(line, b.p.Clock)
	b.Load(asm.W64, asm.DX, asm.At(line, 0))
	b.Store(asm.W64, b.frame.temp(word), asm.DX)
	b.OpImm(asm.And, asm.W32, asm.DX, 1)
	b.ImulImm(asm.W32, asm.DX, asm.DX, ring.ClockLine)
	b.Lea(line, asm.Indexed(line, asm.DX, 1, ring.ClockLines))
	b.tsc()
	b.OpLoad(asm.Sub, asm.W64, asm.AX, asm.At(line, 0))
	b.Jcc(asm.B, early)
	b.MulMem(asm.W64, asm.At(line, 16))
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, 32)
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	b.Op(asm.Or, asm.W64, asm.AX, asm.DX)
	b.Bind(on)
	b.OpLoad(asm.Add, asm.W64, asm.AX, asm.At(line, 8))
	b.MovAbs(line, b.p.Clock)
	b.Load(asm.W64, asm.DX, asm.At(line, 0))
	b.OpLoad(asm.Cmp, asm.W64, asm.DX, b.frame.temp(word))
	b.Jcc(asm.NE, again)
	b.later(func() {
		// Negative: the time stamp counters of two CPUs may differ by a little.
		b.Bind(early)
		b.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
		b.Jmp(on)
	})
}
