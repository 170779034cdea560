package detour

import (
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// ReturnTail is how many bytes a return probe's record has after its argument data: the last
// eight of the record are the address returned to.
const ReturnTail = 8

// Return is the code of a return probe.
type Return struct {
	Detour
	trampolines uint64
	count       int
	pool        Pool
}

// Each instance has a stub and a return trampoline, in stubSize bytes, 32-aligned, with the low
// 48 bits of the instance's address at the end:
//
//	lea rsp, [rsp+8]; call copy; return trampoline: lea rsp, [rsp-8]; push number; jmp common
const (
	stubSize      = 32
	stubCall      = 5 // bytes before the call
	trampolineOff = 10
	stubAddr      = 6 // bytes of the instance's address
	stubPush      = trampolineOff + 5

	// trampolineSkip is the number of bytes that a return trampoline has pushed: the slot again,
	// and the instance's number.
	trampolineSkip = 16

	// leadsOn is where the address is, from the program's stack pointer, at which an entry continues.
	leadsOn = -16

	stripeShift = 6 // log2 stripeSize
)

// Trampoline returns the address of an instance's return trampoline, which replaces the return
// address.
func (r *Return) Trampoline(number int) uint64 {
	return r.trampolines + uint64(number-1)*stubSize + trampolineOff
}

// StubPush is the push of an instance's return trampoline.
func (r *Return) StubPush(number int) Push {
	return Push{At: r.Trampoline(number) + stubPush - trampolineOff, Depth: 8, Trampoline: true}
}

// Count is how many instances there are.
func (r *Return) Count() int { return r.count }

// Instance returns the number of the instance whose stub or return trampoline contains an
// address, or 0.
func (r *Return) Instance(ip uint64) int {
	if ip < r.trampolines || ip >= r.trampolines+uint64(r.count)*stubSize {
		return 0
	}
	return int((ip-r.trampolines)/stubSize) + 1
}

// BuildReturn makes the code of a return probe, to lie at base. The function's first
// instruction jumps to base. tail emits the displaced instructions and the jump back.
//
// At the entry an instance is taken from the pool. If none is free, the call continues unprobed
// and is counted in ring.CounterMissed. The return address is kept in the instance, and the
// function is called from the instance's own stub, so that it returns to the instance's return
// trampoline. That is a real call and a real return, which the processor predicts and a shadow
// stack agrees with. The return trampoline records the hit and returns to the caller.
//
// This needs a site that is entered by a call and left by a return: the start of a function
// that returns once. The bytes below the stack pointer are taken as free, as they are at the
// start of a function.
//
// The stubs' indirect jump is notrack: they have no endbr64.
func BuildReturn(base uint64, p *Params, probe Probe, pool Pool, tail func(c *asm.Code) error) (*Return, error) {
	return tight(base, p, func(c *asm.Code) (*Return, error) { return buildReturn(c, p, probe, pool, tail) })
}

func buildReturn(c *asm.Code, p *Params, probe Probe, pool Pool, tail func(c *asm.Code) error) (*Return, error) {
	b, exit := newBuilder(c, p), newBuilder(c, p) // exit has the return trampolines' frame
	defer b.free()
	defer exit.free()
	exit.frame.cur.trampoline = true
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
	b.frame.skip = redZone // needed even without a red zone: the stub's address is written there
	b.frame.regs = append(baseRegs(), asm.DI, asm.R11)
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

	at, ok := b.Offset(body)
	if !ok {
		return nil, asm.ErrUnbound
	}
	common := r.trampoline(exit, probe)
	b.Int3()
	b.far()
	exit.far()
	b.frame.outside(b.Code)
	b.Align(stubSize, 0xcc)
	b.Bind(stubs)
	trampolines := b.Here()
	r.emitStubs(b.Base()+uint64(at), common)
	b.frame.outside(b.Code)
	d, err := b.finish(exit)
	if err != nil {
		return nil, err
	}
	d.displaced = uint32(copyAt - d.Base)
	return &Return{Detour: *d, trampolines: trampolines, count: pool.Count, pool: pool}, nil
}

// checkEntry returns an error if a detour can't capture a value at the entry.
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

// entry takes an instance, fills it and jumps to its stub; or continues at the displaced
// instructions.
func (r *returning) entry(probe Probe) {
	b := r.b
	b.probe, b.prog = &probe, probe.Program
	b.frame.under, b.frame.temps = linkTake, captureTemps(b.prog)
	b.careful(b.prog)
	plain, leave, link := b.NewLabel(), b.NewLabel(), b.NewLabel()
	// At the start of a function the program has nothing below SP, and signal handlers don't
	// overwrite the red zone.
	const on = leadsOn
	b.leaveFlags(probe)
	b.frame.save(b.Code)
	b.unlessLeft(probe.ID, plain)
	b.Lea(asm.DI, b.frame.above(0))
	b.MovAbs(asm.R11, r.pool.Addr)
	b.lead(asm.At(asm.R11, poolTake), link, &probe)
	b.Jcc(asm.E, plain)
	b.frame.took()
	b.frame.writing(Entered)
	// CX is the instance; from here on DI becomes the offset of the stub.
	r.capture()
	if s := int(r.pool.Shift) - 5; s > 0 { // stubSize is 1 << 5
		b.ShiftImm(asm.Shr, asm.W32, asm.DI, uint8(s))
	}
	b.Lea(asm.AX, asm.Rel(r.stubs))
	b.Lea(asm.AX, asm.Indexed(asm.AX, asm.DI, 1, -stubSize))
	b.Bind(leave)
	b.frame.writing(NotWriting)
	b.Store(asm.W64, b.frame.above(on), asm.AX)
	b.frame.writing(Leading)
	b.frame.restore()
	b.Raw(0x3e) // notrack
	b.JmpMem(asm.At(asm.SP, on))
	b.later(func() {
		b.Bind(plain)
		b.frame.writing(NotWriting)
		b.Lea(asm.AX, asm.Rel(r.body))
		b.Jmp(leave)
	})
}

// captureTemps is how many bytes of temporaries capture takes.
func captureTemps(prog *fetch.Program) int {
	if NeedsClock(prog) {
		return 8
	}
	return 0
}

// capture keeps the entry's values in the instance at CX.
func (r *returning) capture() {
	b := r.b
	for i := range b.prog.Entry {
		if b.prog.Entry[i].MayFault(nil) { // otherwise no fault bit is ever set
			b.StoreImm(asm.W64, asm.At(asm.CX, instEntry), 0)
			break
		}
	}
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

// trampoline emits the code with which all return trampolines of the probe continue, and
// returns its address. There the stack has the instance's number, and above it room for the
// return address.
func (r *returning) trampoline(x *builder, probe Probe) uint64 {
	at := x.Here()
	const number, address = -16, -8 // above the program's SP
	f := &x.frame
	f.skip = trampolineSkip
	inst := f.temps
	f.temps += 8 // the entry's values
	f.regs = append(append([]asm.Reg(nil), f.regs...), missing(f.regs, asm.DI)...)
	f.save(x.Code)
	x.Load(asm.W32, asm.DX, f.above(number))
	x.ShiftImm(asm.Shl, asm.W32, asm.DX, r.pool.Shift)
	x.MovAbs(asm.CX, r.pool.Addr+uint64(r.pool.offset(0))+instEntry)
	x.Op(asm.Add, asm.W64, asm.CX, asm.DX)
	x.Load(asm.W64, asm.AX, asm.At(asm.CX, instReturn-instEntry))
	x.Store(asm.W64, f.above(address), asm.AX)
	x.Store(asm.W64, f.temp(inst), asm.CX)
	x.where = origin{entry: inst, hasEntry: true}
	x.returnTail = true
	of := func() {
		x.Load(asm.W64, asm.DI, f.temp(inst))
		x.Load(asm.W32, asm.R8, f.above(number))
		x.MovAbs(asm.SI, r.pool.Addr)
	}
	x.ending = func(done asm.Label) { x.endBy(done, of, func(s *Shared) uint64 { return s.endInstance }) }
	if x.hit(&probe, true); !x.ended {
		free := func() {
			x.Load(asm.W64, asm.CX, f.temp(inst))
			x.Load(asm.W32, asm.DX, f.above(number))
			x.MovAbs(asm.SI, r.pool.Addr)
			x.freeInstance(r.pool.Stripes)
		}
		if r.pool.Keeps && x.p.countsInSequences() {
			x.Load(asm.W64, asm.SI, f.temp(inst))
			x.OpImm(asm.Sub, asm.W64, asm.SI, instEntry)
			x.keepInstance(r.pool, free)
		} else {
			free()
		}
	}
	f.restore()
	x.Lea(asm.SP, asm.At(asm.SP, 8))
	f.cur.depth -= 8
	f.mark()
	x.Ret()
	f.outside(x.Code)
	return at
}

// missing returns the registers of want that have lacks.
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
