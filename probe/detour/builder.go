package detour

import (
	"fmt"
	"slices"
	"sync"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// MaxStack is the most stack that a detour uses below the red zone, in bytes. Programs that need more are
// refused (ErrUnsupported).
const MaxStack = 2048

// builder is the state of building one detour.
type builder struct {
	*asm.Code
	p       *Params
	frame   frame
	looks   looks
	faults  []pending
	asks    []asking
	mayFail int // number of branches to a fault so far
	// sharedFaults says that the detour calls shared code that may fault.
	sharedFaults bool
	cold         []func() // emit code out of the way, behind the rest
	consts       []constant

	prog   *fetch.Program
	probe  *Probe
	layout layout // temporaries of the current program
	where  origin // what the registers mean
	// ending, for a return probe, emits the call of the shared code that ends the hit and its
	// call. Hits without a record continue at done. ended says that it was called.
	ending func(done asm.Label)
	ended  bool
	// returnTail says that the return address follows the record's data.
	returnTail bool
	// shared says that shared code is emitted.
	shared bool
	// reading is the label of canRead's code, in shared code.
	reading asm.Label
	// table is the common table of a tally's pieces. pieceEnd is the end of the piece that is
	// emitted.
	table    *Calls
	pieceEnd asm.Label
	// owns says that calls are noted in a common table.
	owns bool
	// ownerBits are added to the owner's number: anywhere, and joinedOwner if another probe's
	// calls are noted before.
	ownerBits uint32
	// seq says that the probe takes its hits in sequences.
	seq bool
	// evicted is the offset of the words of the ring in which room is made; evictAt is the offset
	// of the temporaries for that.
	evicted int32
	evictAt int
	// over is where a thread continues if the end has passed and no hits are taken any more.
	over asm.Label
	err  error
}

// pending is an entry of the exception table whose target isn't known yet.
type pending struct {
	at uint64
	to asm.Label
}

// constant is data behind the code.
type constant struct {
	label asm.Label
	data  func() []byte // called when all labels are bound
}

// builders are those that are not in use: a plan of a large program makes hundreds of thousands of detours.
var builders = sync.Pool{New: func() any { return new(builder) }}

// newBuilder takes a builder out of builders. The caller may give it back by free.
func newBuilder(c *asm.Code, p *Params) *builder {
	b := builders.Get().(*builder)
	*b = builder{Code: c, p: p, frame: frame{scratch: p.Scratch}}
	return b
}

// free gives the builder back. What it has made doesn't refer to it.
func (b *builder) free() {
	*b = builder{}
	builders.Put(b)
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// plan determines what the frame must hold.
func (b *builder) plan(probes []Probe) error {
	regs := baseRegs()
	texts, syscall := false, false
	for i := range probes {
		pr := &probes[i]
		if pr.ID == 0 || pr.ID > ring.MaxID {
			return fmt.Errorf("probe id %d out of range", pr.ID)
		}
		l, err := planProgram(pr, b.p)
		if err != nil {
			return err
		}
		b.frame.temps = max(b.frame.temps, l.size)
		texts = texts || l.texts
		if pr.Program.Reads(fetch.RegFlags) {
			b.frame.under = max(b.frame.under, linkText)
		}
		syscall = syscall || l.tid && (b.p.TID.Seg == asm.DS || len(b.p.TID.Path) > 0)
	}
	if syscall && b.p.NoSyscall {
		return unsupported(NeedsNumber)
	}
	if texts {
		regs = append(regs, textRegs()...)
		b.frame.under = max(b.frame.under, linkText)
	} else if syscall {
		regs = append(regs, asm.R11)
	}
	b.frame.regs = regs
	for i := range probes {
		b.careful(probes[i].Program)
	}
	if err := b.planLook(probes); err != nil {
		return err
	}
	return b.stack()
}

// leaveFlags has the frame not save the flags if the program sets new ones before anything can look at them
// (Params.FlagsDead), and no probe of the site reads them.
func (b *builder) leaveFlags(probes ...Probe) {
	b.frame.flagsDead = b.p.FlagsDead && b.p.Look == nil &&
		!slices.ContainsFunc(probes, func(pr Probe) bool { return pr.Program.Reads(fetch.RegFlags) })
}

// stack returns an error if the frame is too large.
func (b *builder) stack() error {
	limit := MaxStack
	if b.p.MaxStack > 0 {
		limit = min(limit, b.p.MaxStack)
	}
	// Three words more: a register of return trampolines, and temporary pushes.
	if n := b.frame.temps + b.frame.under + 8*(len(b.frame.regs)+3); n > limit {
		return unsupported("the values take %d bytes of stack, more than %d", n, limit)
	}
	return nil
}

// finish emits the code out of the way, also that of other builders of the same code, and resolves all
// labels.
func (b *builder) finish(others ...*builder) (*Detour, error) {
	for _, x := range others {
		x.far()
		b.faults = append(b.faults, x.faults...)
		b.asks = append(b.asks, x.asks...)
		b.consts = append(b.consts, x.consts...)
		b.frame.marks = append(b.frame.marks, x.frame.marks...)
		b.frame.steps = append(b.frame.steps, x.frame.steps...)
		b.sharedFaults = b.sharedFaults || x.sharedFaults
		if x.err != nil {
			return nil, x.err
		}
	}
	b.far()
	b.frame.outside(b.Code)
	if len(b.consts) > 0 {
		b.Align(8, 0xcc)
	}
	for _, k := range b.consts {
		b.Bind(k.label)
		b.Raw(k.data()...)
	}
	if b.err != nil {
		return nil, b.err
	}
	code, err := b.Bytes()
	if err != nil {
		return nil, fmt.Errorf("assemble detour at %#x: %w", b.Base(), err)
	}
	d := &Detour{Base: b.Base(), Code: code, size: uint32(len(code)), Kept: Kept{undoing: b.frame.undoing()}}
	may := stops{shared: b.sharedFaults}
	for _, f := range b.faults {
		off, ok := b.Offset(f.to)
		if !ok {
			return nil, fmt.Errorf("assemble detour at %#x: %w", b.Base(), asm.ErrUnbound)
		}
		may.faults = append(may.faults, Fault{f.at, b.Base() + uint64(off)})
	}
	for _, a := range b.asks {
		off, ok := b.Offset(a.back)
		if !ok {
			return nil, fmt.Errorf("assemble detour at %#x: %w", b.Base(), asm.ErrUnbound)
		}
		may.asks = append(may.asks, Ask{a.at, b.Base() + uint64(off), a.what})
	}
	if may.faults != nil || may.asks != nil {
		kept := may // most detours have none
		d.stops = &kept
	} else if may.shared {
		d.stops = sharedOnly
	}
	return d, nil
}

// later arranges that emit is called when code out of the way is emitted.
func (b *builder) later(emit func()) {
	at, writing := b.frame.body.taken, b.frame.body.writing
	b.cold = append(b.cold, func() {
		f := &b.frame
		f.body.taken, f.body.writing = at, writing
		was := f.cur
		f.cur = f.body
		f.inside()
		emit()
		f.cur = was
	})
}

// far emits the code that lies out of the way. All of it runs in the frame.
func (b *builder) far() {
	for i := 0; i < len(b.cold); i++ {
		b.cold[i]()
	}
	b.cold = nil
}

// mayFault notes that the next instruction may fault, and that the thread then continues at to.
func (b *builder) mayFault(to asm.Label) {
	b.mayFail++
	b.faults = append(b.faults, pending{b.Here(), to})
}

// data puts bytes behind the code.
func (b *builder) data(d []byte) asm.Label {
	l := b.NewLabel()
	b.consts = append(b.consts, constant{l, func() []byte { return d }})
	return l
}
