package detour

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// ReturnTail is how many bytes a return probe's record has behind its argument
// data: the last eight of the record are the address returned to.
const ReturnTail = 8

// Return is the code of a return probe.
type Return struct {
	Detour
	landings uint64
	count    int
	pool     Pool
}

// Each instance's stub and landing, in stubSize bytes, 32-aligned, with the low
// 48 bits of the instance's address at the end:
//
//	lea rsp, [rsp+8]; call copy; landing: lea rsp, [rsp-8]; push number; jmp common
const (
	stubSize   = 32
	stubCall   = 5 // bytes before the call
	landingOff = 10
	stubAddr   = 6 // bytes of the instance's address

	stripeShift = 6 // log2 stripeSize
)

// Landing is the address that an instance puts in the place of the return
// address.
func (r *Return) Landing(number int) uint64 {
	return r.landings + uint64(number-1)*stubSize + landingOff
}

// Instance is the number of the instance whose stub or landing holds an
// address, or 0.
func (r *Return) Instance(ip uint64) int {
	if ip < r.landings || ip >= r.landings+uint64(r.count)*stubSize {
		return 0
	}
	return int((ip-r.landings)/stubSize) + 1
}

// BuildReturn makes the code of a return probe, to lie at base. The function's
// first instruction jumps to base; tail emits the displaced instructions and
// the jump back.
//
// At the entry an instance is taken from the pool; none is free: the call goes
// on unprobed and is counted in ring.CounterMissed. The return address is kept
// in the instance, and the function is called from the instance's own stub,
// so that it returns to the instance's landing: a real call and a real return,
// which the processor predicts and a shadow stack agrees with. The landing
// records the hit and returns to the caller.
//
// That needs a site that is entered by a call and left by a return: the start
// of a function that returns once. The bytes below the stack pointer are taken
// as free, as they are where a function starts.
//
// The stubs' indirect jump is notrack: they carry no endbr64.
func BuildReturn(base uint64, p *Params, probe Probe, pool Pool, tail func(c *asm.Code) error) (*Return, error) {
	b := newBuilder(base, p)
	exit := newBuilder(0, p) // the landings' frame; it emits into the same code
	exit.frame.cur.landing = true
	exit.Code = b.Code
	if pool.Count < 1 || pool.Count > MaxInstances || pool.Stripes < 1 || pool.Stripes > maxStripes ||
		pool.Stripes&(pool.Stripes-1) != 0 || pool.Shift < 6 || pool.Shift > 10 {
		return nil, fmt.Errorf("a return probe's pool %+v isn't NewPool's", pool)
	}
	if why := checkEntry(probe.Program, p); why != nil {
		return nil, why
	}
	if err := exit.plan([]Probe{probe}); err != nil {
		return nil, err
	}
	b.frame.skip = redZone // also where no red zone is: the stub's address goes there
	b.frame.regs = append(baseRegs(), asm.DI, asm.R11)
	b.frame.temps = 16 // the stripe to begin with
	body, stubs := b.NewLabel(), b.NewLabel()
	r := returning{b: b, pool: pool, body: body, stubs: stubs}
	r.entry(probe)
	copyAt := b.Here()
	b.frame.outside(b.Code)
	b.Bind(body)
	if err := tail(b.Code); err != nil {
		return nil, err
	}
	b.Int3()

	common := r.landing(exit, probe)
	b.Align(stubSize, 0xcc)
	b.Bind(stubs)
	landings := b.Here()
	for n := 1; n <= pool.Count; n++ {
		b.Lea(asm.SP, asm.At(asm.SP, 8))
		b.Call(body)
		b.Lea(asm.SP, asm.At(asm.SP, -8))
		b.Raw(0x68) // push imm32, always five bytes
		b.Data32(uint32(n))
		b.Raw(0xe9)
		b.Data32(uint32(int32(common - (b.Here() + 4))))
		for b.Here()-landings < uint64(n)*stubSize-stubAddr {
			b.Int3()
		}
		inst := pool.Addr + uint64(pool.offset(n))
		b.Data32(uint32(inst))
		b.Raw(byte(inst>>32), byte(inst>>40))
	}
	b.frame.outside(b.Code)
	d, err := b.finish(exit)
	if err != nil {
		return nil, err
	}
	d.Copy = copyAt
	return &Return{Detour: *d, landings: landings, count: pool.Count, pool: pool}, nil
}

// checkEntry says why an entry's value can't be had in the target.
func checkEntry(prog *fetch.Program, p *Params) error {
	for i := range prog.Entry {
		c := &prog.Entry[i].Chain
		a := fetch.ArgProgram{Chain: *c, Store: fetch.StoreValue, Type: fetch.DefaultType()}
		if c.Source == fetch.SourceTime && len(c.Loads) == 0 {
			continue
		}
		if err := checkArg(&a, p); err != nil {
			return err
		}
	}
	if len(prog.Entry) > 64 {
		return unsupported("more than 64 values of the entry")
	}
	return nil
}

// returning emits the two sides of a return probe.
type returning struct {
	b           *builder
	pool        Pool
	body, stubs asm.Label
}

// entry takes an instance, fills it and jumps to its stub; or goes on at the
// code that follows, which is the displaced instructions.
func (r *returning) entry(probe Probe) {
	b := r.b
	b.probe, b.prog = &probe, probe.Program
	plain, missed, taken := b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.frame.save(b.Code)
	b.MovAbs(asm.AX, b.p.Flags+4*uint64(probe.ID))
	b.TestMemImm(asm.W8, asm.At(asm.AX, 0), ring.FlagEnabled)
	b.Jcc(asm.E, plain)

	r.take(missed)
	b.Bind(taken)
	// From here on the offset becomes that of the stub.
	b.Mov(asm.W64, asm.DI, asm.DX)

	b.tid()
	b.Store(asm.W32, asm.At(asm.CX, instTID), asm.AX)
	b.Load(asm.W64, asm.AX, b.frame.above(0))
	b.Store(asm.W64, asm.At(asm.CX, instReturn), asm.AX)
	r.behind()
	b.Store(asm.W64, asm.At(asm.CX, instReal), asm.AX)
	b.Lea(asm.AX, b.frame.above(0))
	b.Store(asm.W64, asm.At(asm.CX, instSlot), asm.AX)
	r.capture()
	if s := int(r.pool.Shift) - 5; s > 0 { // stubSize is 1 << 5
		b.ShiftImm(asm.Shr, asm.W64, asm.DI, uint8(s))
	}
	b.Lea(asm.AX, asm.Rel(r.stubs))
	b.Lea(asm.AX, asm.Indexed(asm.AX, asm.DI, 1, -stubSize))
	// Where a function starts nothing of the program's is below SP, and a
	// signal leaves the red zone alone.
	b.Store(asm.W64, b.frame.above(-16), asm.AX)
	cur := b.frame.cur
	b.frame.restore()
	b.Raw(0x3e) // notrack
	b.JmpMem(asm.At(asm.SP, -16))

	b.Bind(missed)
	b.frame.cur = cur
	b.frame.mark()
	r.again(taken)
	b.area()
	b.count(ring.CounterMissed)
	b.Bind(plain)
	b.frame.restore()
}

// behind makes AX, an address returned to, the one behind it if it is a
// landing: that of a function which jumped to this one. Changes DX.
func (r *returning) behind() {
	b := r.b
	found, done := b.NewLabel(), b.NewLabel()
	r.ifLanding(found, done)
	b.cold = append(b.cold, func() {
		b.Bind(found)
		// Instances have addresses of 48 bits, at the end of their stubs.
		b.Load(asm.W64, asm.DX, asm.At(asm.AX, stubSize-landingOff-8))
		b.ShiftImm(asm.Shr, asm.W64, asm.DX, 16)
		b.Load(asm.W64, asm.AX, asm.At(asm.DX, instReal))
		b.Jmp(done)
	})
}

// ifLanding goes on at found if AX is the address of a landing, of whatever
// probe, else at done, which is bound behind it. Changes DX.
//
// The last five bits of the address tell most others without a look at what
// lies there. The bytes that are looked at are in the page of the call before
// them.
func (r *returning) ifLanding(found, done asm.Label) {
	b := r.b
	look := b.NewLabel()
	b.Mov(asm.W32, asm.DX, asm.AX)
	b.OpImm(asm.And, asm.W32, asm.DX, stubSize-1)
	b.OpImm(asm.Cmp, asm.W32, asm.DX, landingOff)
	b.Jcc(asm.E, look)
	b.Bind(done)
	b.cold = append(b.cold, func() {
		b.Bind(look)
		b.Lea(asm.DX, asm.At(asm.AX, -lowest))
		b.ShiftImm(asm.Shr, asm.W64, asm.DX, 47)
		b.Jcc(asm.NE, done)
		// lea rsp, [rsp-8] with its push and jump, as no compiler writes it.
		b.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.AX, 0), 0x24648d48)
		b.Jcc(asm.NE, done)
		b.LoadZX(asm.W16, asm.DX, asm.At(asm.AX, 4))
		b.OpImm(asm.Cmp, asm.W32, asm.DX, 0x68f8)
		b.Jcc(asm.NE, done)
		b.LoadZX(asm.W16, asm.DX, asm.At(asm.AX, 14))
		b.ShiftImm(asm.Shr, asm.W32, asm.DX, 8)
		b.OpImm(asm.Cmp, asm.W32, asm.DX, 0xcc)
		b.Jcc(asm.NE, done)
		b.Jmp(found)
	})
}

// again takes an instance whose call was left by longjmp, an exception or the
// like: the thread's own, with the slot that the program has now used anew. It
// goes on at taken, as take does; or behind. Changes all that take changes.
//
// An instance that another thread is just taking has that thread's number, or
// none, before its slot is told.
func (r *returning) again(taken asm.Label) {
	b := r.b
	scan, next, none, chained := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	b.Load(asm.W64, asm.AX, b.frame.above(0))
	r.ifLanding(chained, b.NewLabel())
	b.tid()
	b.Lea(asm.DI, b.frame.above(0))
	b.MovAbs(asm.CX, r.pool.Addr+uint64(r.pool.first()))
	b.MovImm(asm.DX, 1<<r.pool.Shift)
	b.Bind(scan)
	b.OpLoad(asm.Cmp, asm.W64, asm.DI, asm.At(asm.CX, instSlot))
	b.Jcc(asm.NE, next)
	b.OpLoad(asm.Cmp, asm.W32, asm.AX, asm.At(asm.CX, instTID))
	b.Jcc(asm.E, taken)
	b.Bind(next)
	b.OpImm(asm.Add, asm.W64, asm.CX, 1<<r.pool.Shift)
	b.OpImm(asm.Add, asm.W32, asm.DX, 1<<r.pool.Shift)
	b.OpImm(asm.Cmp, asm.W32, asm.DX, int32((r.pool.Count+1)<<r.pool.Shift))
	b.Jcc(asm.NE, scan)
	b.Bind(none)
	// Functions that jump to each other are in the calls of their instances.
	b.Bind(chained)
}

// take makes CX the address of an instance that was free, and DX its number,
// from 1, shifted to the distance from the one before the first; with none
// free it goes on at none. Changes AX, SI, DI, R11.
func (r *returning) take(none asm.Label) {
	b := r.b
	stripe, next, got := b.NewLabel(), b.NewLabel(), b.NewLabel()
	before := int32(r.pool.first() - 1<<r.pool.Shift)
	b.MovAbs(asm.R11, r.pool.Addr)
	if r.pool.Stripes > 1 {
		b.cpuNumber()
		b.OpImm(asm.And, asm.W32, asm.SI, int32(r.pool.Stripes-1))
		b.ShiftImm(asm.Shl, asm.W32, asm.SI, stripeShift)
		b.Store(asm.W64, b.frame.temp(0), asm.SI)
		b.Op(asm.Add, asm.W64, asm.SI, asm.R11)
	} else {
		b.Mov(asm.W64, asm.SI, asm.R11)
	}
	// SI = the stripe's head, R11 = the pool.
	b.Bind(stripe)
	b.Load(asm.W64, asm.AX, asm.At(asm.SI, 0))
	retry := b.Mark()
	b.Mov(asm.W64, asm.DX, asm.AX)
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 32)
	b.Jcc(asm.E, next)
	b.ShiftImm(asm.Shl, asm.W64, asm.DX, r.pool.Shift)
	b.Load(asm.W32, asm.DI, asm.Indexed(asm.R11, asm.DX, 1, before+instNext))
	b.ShiftImm(asm.Shl, asm.W64, asm.DI, 32)
	b.Lea(asm.CX, asm.At(asm.AX, 1))
	b.Mov(asm.W32, asm.CX, asm.CX) // the changes wrap at 32 bits
	b.Op(asm.Or, asm.W64, asm.DI, asm.CX)
	b.Lock()
	b.Cmpxchg(asm.W64, asm.At(asm.SI, 0), asm.DI)
	b.Jcc(asm.NE, retry)
	b.Bind(got)
	b.Lea(asm.CX, asm.Indexed(asm.R11, asm.DX, 1, before))
	b.cold = append(b.cold, func() {
		b.Bind(next)
		if r.pool.Stripes == 1 {
			b.Jmp(none)
			return
		}
		b.Op(asm.Sub, asm.W64, asm.SI, asm.R11)
		b.OpImm(asm.Add, asm.W32, asm.SI, stripeSize)
		b.OpImm(asm.And, asm.W32, asm.SI, int32(stripeSize*r.pool.Stripes-1))
		b.OpLoad(asm.Cmp, asm.W64, asm.SI, b.frame.temp(0))
		b.Jcc(asm.E, none) // all round
		b.Op(asm.Add, asm.W64, asm.SI, asm.R11)
		b.Jmp(stripe)
	})
}

// capture keeps the entry's values in the instance at CX.
func (r *returning) capture() {
	b := r.b
	if len(b.prog.Entry) == 0 {
		return
	}
	b.StoreImm(asm.W64, asm.At(asm.CX, instEntry), 0)
	for i := range b.prog.Entry {
		c := &b.prog.Entry[i].Chain
		to := asm.At(asm.CX, int32(instEntry+8+8*i))
		b.withFault(asm.At(asm.CX, instEntry), i, func(fault asm.Label) {
			switch c.Source {
			case fetch.SourceTime:
				if NeedsClock(b.prog) {
					b.nanoseconds(asm.R11, 0)
				} else {
					b.tsc()
				}
			case fetch.SourceCPU:
				b.area()
				b.cpu()
			default:
				b.value(c, fault)
			}
			b.Store(asm.W64, to, asm.AX)
		})
	}
}

// landing emits what all landings of the probe go on with, and returns its
// address. There the stack has the instance's number, and above it room for
// the return address.
func (r *returning) landing(x *builder, probe Probe) uint64 {
	x.Align(16, 0xcc)
	at := x.Here()
	const number, address = -16, -8 // above the program's SP
	f := &x.frame
	f.skip = 16
	inst := f.temps
	f.temps += 16 // the entry's values, and the address to show
	f.regs = append(append([]asm.Reg(nil), f.regs...), missing(f.regs, asm.DI)...)
	f.save(x.Code)
	x.Load(asm.W32, asm.DX, f.above(number))
	x.ShiftImm(asm.Shl, asm.W64, asm.DX, r.pool.Shift)
	x.MovAbs(asm.CX, r.pool.Addr+uint64(r.pool.first())-1<<r.pool.Shift)
	x.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	x.Load(asm.W64, asm.AX, asm.At(asm.CX, instReturn))
	x.Store(asm.W64, f.above(address), asm.AX)
	x.Load(asm.W64, asm.AX, asm.At(asm.CX, instReal))
	x.Store(asm.W64, f.temp(inst+8), asm.AX)
	x.OpImm(asm.Add, asm.W64, asm.CX, instEntry)
	x.Store(asm.W64, f.temp(inst), asm.CX)
	x.where = origin{ipAbove: int64(inst + 8 - f.size), hasIP: true, entry: inst, hasEntry: true}
	x.returnTail = true
	x.area()
	x.hit(&probe)

	// Free the instance: DX = its number in the upper half, CX = the instance.
	x.Load(asm.W64, asm.CX, f.temp(inst))
	x.Load(asm.W32, asm.DX, f.above(number))
	x.MovAbs(asm.SI, r.pool.Addr)
	if r.pool.Stripes > 1 {
		x.Lea(asm.AX, asm.At(asm.DX, -1))
		x.OpImm(asm.And, asm.W32, asm.AX, int32(r.pool.Stripes-1))
		x.ShiftImm(asm.Shl, asm.W32, asm.AX, stripeShift)
		x.Op(asm.Add, asm.W64, asm.SI, asm.AX)
	}
	x.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	x.StoreImm(asm.W32, asm.At(asm.CX, instTID-instEntry), 0)
	x.Load(asm.W64, asm.AX, asm.At(asm.SI, 0))
	retry := x.Mark()
	x.Mov(asm.W64, asm.DI, asm.AX)
	x.ShiftImm(asm.Shr, asm.W64, asm.DI, 32)
	x.Store(asm.W32, asm.At(asm.CX, instNext-instEntry), asm.DI)
	x.Mov(asm.W32, asm.DI, asm.AX)
	x.Op(asm.Or, asm.W64, asm.DI, asm.DX)
	x.Lock()
	x.Cmpxchg(asm.W64, asm.At(asm.SI, 0), asm.DI)
	x.Jcc(asm.NE, retry)
	f.restore()
	x.Lea(asm.SP, asm.At(asm.SP, 8))
	f.cur.depth -= 8
	f.mark()
	x.Ret()
	f.outside(x.Code)
	return at
}

// missing gives the registers of want that have lacks.
func missing(have []asm.Reg, want ...asm.Reg) []asm.Reg {
	var out []asm.Reg
	for _, w := range want {
		found := false
		for _, h := range have {
			found = found || h == w
		}
		if !found {
			out = append(out, w)
		}
	}
	return out
}
