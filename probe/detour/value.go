package detour

import (
	"kprobe/fetch"
	"kprobe/probe/asm"
)

// origin says how to find the program's registers.
type origin struct {
	// ipAbove is the offset above the site's SP of the word with the instruction pointer to show, if
	// hasIP is set. Else the instruction pointer is the return address of the instance's call or,
	// without one, Probe.IP.
	ipAbove int64
	hasIP   bool
	// sp is the distance of the program's SP from the frame's top, in bytes.
	sp int64
	// entry is the offset of the temporary with the address of the call's entry values, if hasEntry. inDI
	// says that DI has the address instead, which the hit doesn't change.
	entry    int
	hasEntry bool
	inDI     bool
}

// entryAt returns the register with the address of the call's entry values: r, into which it is loaded, or DI.
func (b *builder) entryAt(r asm.Reg) asm.Reg {
	if b.where.inDI {
		return asm.DI
	}
	b.Load(asm.W64, r, b.frame.temp(b.where.entry))
	return r
}

// lowest is the lowest address that a process maps (vm.mmap_min_addr's default). Loads from lower addresses are
// faults without being executed.
const lowest = 1 << 16

// value sets AX to the value of a chain. If a load fails, the code continues at fault. Changes DX.
func (b *builder) value(c *fetch.Chain, fault asm.Label) {
	switch c.Source {
	case fetch.SourceReg:
		b.register(c.Reg)
	case fetch.SourceImm:
		b.MovImm(asm.AX, c.Imm)
	case fetch.SourceStack:
		b.mayRead(b.frame.above(b.where.sp+c.Off), 8, fault)
		b.Load(asm.W64, asm.AX, b.frame.above(b.where.sp+c.Off))
	case fetch.SourceXMM:
		b.MovFromXMM(asm.W64, asm.AX, uint8(c.Reg))
	case fetch.SourceVector:
		b.fail(unsupported("a number of more than 8 bytes in a register"))
	case fetch.SourceEntry:
		b.entryValue(c.N, fault)
	case fetch.SourcePID:
		b.MovImm(asm.AX, uint64(b.p.PID))
	case fetch.SourceTID:
		b.tid()
	case fetch.SourceCPU:
		b.cpu()
	case fetch.SourceTime:
		b.Load(asm.W64, asm.AX, b.frame.temp(b.layout.now))
	case fetch.SourceComputed:
		b.computed(c, fault)
	default:
		b.fail(unsupported("source %d", c.Source))
	}
	for i := range c.Loads {
		b.load(asm.W64, false, c.Loads[i].Off, fault)
	}
}

// load replaces AX by the value at address AX + off. Changes DX.
func (b *builder) load(w asm.Width, signed bool, off int64, fault asm.Label) {
	m := b.guard(off, fault)
	b.mayRead(m, int(w), fault)
	if signed {
		b.LoadSX(w, asm.AX, m)
	} else {
		b.LoadZX(w, asm.AX, m)
	}
}

// guard continues at fault if AX + off is below lowest or not an address of user space, because such a load would
// only cost a trap. It returns the operand for the load, which may use DX. Changes DX.
func (b *builder) guard(off int64, fault asm.Label) asm.Mem {
	b.mayFail++
	if fits(off-lowest) && fits(off) {
		b.Lea(asm.DX, asm.At(asm.AX, int32(off-lowest)))
		b.ShiftImm(asm.Shr, asm.W64, asm.DX, 47)
		b.Jcc(asm.NE, fault)
		return asm.At(asm.AX, int32(off))
	}
	b.MovImm(asm.DX, uint64(off))
	b.Op(asm.Add, asm.W64, asm.AX, asm.DX)
	b.Lea(asm.DX, asm.At(asm.AX, -lowest))
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 47)
	b.Jcc(asm.NE, fault)
	return asm.At(asm.AX, 0)
}

// register sets AX to the program's value of a register. Changes DX.
func (b *builder) register(r fetch.Reg) {
	switch {
	case r == fetch.SP:
		b.Lea(asm.AX, b.frame.above(b.where.sp))
	case r < 16:
		if m, ok := b.frame.slot(asm.Reg(r)); ok {
			b.Load(asm.W64, asm.AX, m)
		} else if r != fetch.AX {
			b.Mov(asm.W64, asm.AX, asm.Reg(r))
		}
	case r == fetch.RegIP:
		b.ip()
	case r == fetch.RegFlags:
		b.flags()
	case r == fetch.RegOrigAX:
		b.MovImm(asm.AX, ^uint64(0)) // in no system call
	case r == fetch.RegFSBase:
		b.Rdfsbase(asm.AX)
	case r == fetch.RegGSBase:
		b.Rdgsbase(asm.AX)
	default:
		b.segment(r)
	}
}

func (b *builder) segment(r fetch.Reg) {
	n, ok := map[fetch.Reg]uint8{
		fetch.RegES: 0, fetch.RegCS: 1, fetch.RegSS: 2, fetch.RegDS: 3, fetch.RegFS: 4, fetch.RegGS: 5,
	}[r]
	if !ok {
		b.fail(unsupported("register %d", r))
	}
	b.MovSeg(asm.AX, n)
}

func (b *builder) ip() {
	if b.where.hasIP {
		b.Load(asm.W64, asm.AX, b.frame.above(b.where.ipAbove))
		return
	}
	if b.where.hasEntry {
		b.Load(asm.W64, asm.AX, asm.At(b.entryAt(asm.AX), instReal-instEntry)) // callReal-callEntry too
		return
	}
	b.MovImm(asm.AX, b.probe.IP)
}

// arithFlags are CF, PF, AF, ZF, SF and OF, which detours change; the others still have the program's values.
// ahFlags are those of them that lahf saves.
const (
	arithFlags = 0x8d5
	ahFlags    = 0x0d5
)

// flags sets AX to the program's flags. Changes DX and the frame's lowest word, which is unused at that time. It
// doesn't use words below the frame, because the stack may have no room there.
func (b *builder) flags() {
	saved := asm.At(asm.SP, int32(b.frame.size)-b.frame.flags)
	b.frame.lower(-8)
	b.Pushf()
	b.frame.cur.depth += 8
	b.frame.mark()
	b.Pop(asm.AX)
	b.frame.cur.depth -= 8
	b.frame.mark()
	b.frame.lower(8)
	b.OpImm(asm.And, asm.W32, asm.AX, ^arithFlags)
	b.LoadZX(asm.W8, asm.DX, saved)
	b.ShiftImm(asm.Shl, asm.W32, asm.DX, 11)
	b.Op(asm.Or, asm.W32, asm.AX, asm.DX)
	b.LoadZX(asm.W8, asm.DX, saved.Plus(1))
	b.OpImm(asm.And, asm.W32, asm.DX, ahFlags)
	b.Op(asm.Or, asm.W32, asm.AX, asm.DX)
}

// cpu sets AX to the number of the CPU whose ring is used.
func (b *builder) cpu() {
	b.MovAbs(asm.DX, b.p.PerCPU)
	b.Mov(asm.W64, asm.AX, asm.SI)
	b.Op(asm.Sub, asm.W64, asm.AX, asm.DX)
	b.ShiftImm(asm.Shr, asm.W64, asm.AX, b.p.AreaShift)
	if b.p.Spare {
		b.OpImm(asm.And, asm.W32, asm.AX, int32(b.p.CPUMask))
	}
}

// entryValue sets AX to value n of the call's entry values. Their layout is that of fetch's EvalEntry: a word of fault
// bits, then the values. Changes DX.
func (b *builder) entryValue(n int, fault asm.Label) {
	if !b.where.hasEntry || n < 0 || n >= len(b.prog.Entry) {
		b.fail(unsupported("an entry's value where there is no entry"))
		return
	}
	at := b.entryAt(asm.DX)
	if b.prog.Entry[n].MayFault(nil) {
		b.mayFail++
		b.Load(asm.W64, asm.AX, asm.At(at, 0))
		b.BtImm(asm.W64, asm.AX, uint8(n))
		b.Jcc(asm.B, fault)
	}
	b.Load(asm.W64, asm.AX, asm.At(at, int32(8+8*n)))
}

// narrow converts AX to the form in which a slot holds a value of that type.
func (b *builder) narrow(t fetch.Type) {
	w := asm.Width(t.Size)
	if t.BitWidth != 0 {
		if up := 64 - t.BitOff - t.BitWidth; up != 0 {
			b.ShiftImm(asm.Shl, asm.W64, asm.AX, up)
		}
		shift := asm.Shr
		if t.Base == fetch.Signed {
			shift = asm.Sar
		}
		if down := 64 - t.BitWidth; down != 0 {
			b.ShiftImm(shift, asm.W64, asm.AX, down)
		}
		return
	}
	switch {
	case w == asm.W64:
	case t.Base == fetch.Signed:
		b.MovSX(w, asm.AX, asm.AX)
	default:
		b.MovZX(w, asm.AX, asm.AX)
	}
}

// scalar sets AX to the slot's value of an argument that is no text and no array.
func (b *builder) scalar(a *fetch.ArgProgram, fault asm.Label) {
	b.value(&a.Chain, fault)
	switch a.Store {
	case fetch.StoreSymbol:
	case fetch.StoreValue:
		b.narrow(a.Type)
	case fetch.StoreMem:
		b.load(asm.Width(a.Type.Size), a.Type.Base == fetch.Signed && a.Type.BitWidth == 0, a.StoreOff, fault)
		if a.Type.BitWidth != 0 {
			b.narrow(a.Type)
		}
	default:
		b.fail(unsupported("store %d", a.Store))
	}
}
