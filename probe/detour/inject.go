package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Injection is what a detour at a function's entry does to calls that pass the probe's filter,
// besides recording them: the function is not executed.
type Injection struct {
	// Counters is where ring.Layout.Injection's counters are mapped.
	Counters uint64
	// Every changes each Nth call; 0 and 1 change all. Limit is how many are changed in
	// total; 0 is no limit.
	Every, Limit uint64
	// Result is what a call returns, in rax.
	Result uint64
	// Errno, unless it is 0, is written to the thread's errno, ErrnoOff from fs.
	Errno    int32
	ErrnoOff int32
}

// inject takes the hit of a call that has passed the filter, and ends the call. If it is not
// this call's turn, the code continues at reject. Code for calls that are left alone follows.
func (b *builder) inject(x *Injection, reject asm.Label) {
	b.due(x, reject)
	if x.Errno != 0 {
		b.StoreImm(asm.W32, asm.SegAbs(asm.FS, x.ErrnoOff), x.Errno)
	}
	ends := b.NewLabel() // also for hits without a record, because the ring is full
	b.reserve(ends)
	b.late()
	b.copyOfStack()
	b.commit()
	b.Bind(ends)
	f := &b.frame
	was := f.cur
	f.cur.skips = true
	f.mark()
	if m, ok := f.slot(asm.AX); ok {
		b.MovImm(asm.AX, x.Result)
		b.Store(asm.W64, m, asm.AX)
	} else {
		b.fail(unsupported("a result where rax isn't saved"))
	}
	f.restore()
	b.Ret()
	f.cur = was
	f.mark()
}

// due continues at reject unless it is this call's turn to be changed. Changes AX, CX and DX.
func (b *builder) due(x *Injection, reject asm.Label) {
	count := func(off uint64, next func()) {
		b.MovAbs(asm.CX, x.Counters+off)
		b.Load(asm.W64, asm.AX, asm.At(asm.CX, 0))
		again := b.Mark()
		next()
		b.Lock()
		b.Cmpxchg(asm.W64, asm.At(asm.CX, 0), asm.DX)
		b.Jcc(asm.NE, again)
	}
	if x.Every > 1 {
		count(ring.InjectPassed, func() { // DX = AX+1, or 0 with the Nth
			whole := b.NewLabel()
			b.MovImm(asm.DX, x.Every-1)
			b.Op(asm.Sub, asm.W64, asm.DX, asm.AX)
			b.JccShort(asm.E, whole)
			b.Lea(asm.DX, asm.At(asm.AX, 1))
			b.Bind(whole)
		})
		b.Test(asm.W64, asm.DX, asm.DX)
		b.Jcc(asm.NE, reject)
	}
	if x.Limit > 0 {
		count(ring.InjectChanged, func() {
			b.MovImm(asm.DX, x.Limit)
			b.Op(asm.Cmp, asm.W64, asm.AX, asm.DX)
			b.Jcc(asm.AE, reject)
			b.Lea(asm.DX, asm.At(asm.AX, 1))
		})
	}
}

// Skips changes the registers of a thread that Unwind has restored, and that was at an address,
// to those after its call, if the call was being ended there. result is the call's.
func (d *Detour) Skips(at, result uint64, r *fetch.Regs, mem symbols.Memory) (ok bool, err error) {
	m := d.mark(at)
	if m == nil || !m.skips {
		return false, nil
	}
	to, err := word(mem, r.GPR[asm.SP])
	if err != nil {
		return false, err
	}
	r.IP, r.GPR[asm.AX] = to, result
	r.GPR[asm.SP] += 8
	return true, nil
}
