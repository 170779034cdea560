package detour

import (
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Build makes the detour of the probes of one address, to lie at base. tail
// emits the displaced instructions and the jump back. The site jumps to base.
//
// The probes take their hits in order. The code touches no register, flag or
// stack byte that the program can see, makes no call, uses no vector
// instruction but reads of xmm registers, and at most MaxStack bytes below the
// red zone. tail is called more than once: the last call is what is in the code.
//
// It fails with ErrUnsupported for what can't be done in the target.
func Build(base uint64, p *Params, probes []Probe, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return build(c, p, probes, nil, tail) })
}

// Sketch is what one build of a detour tells the next of the same one: which of its
// branches are short. The zero Sketch is of none.
type Sketch struct {
	near    asm.Near
	shorter int
}

// Shorter is by how many bytes the next build is shorter at least.
func (s *Sketch) Shorter() int { return s.shorter }

// tight has code emitted twice: where labels lie is known the second time, and
// most branches are short. With a sketch each of them is a build.
func tight[T any](base uint64, p *Params, emit func(c *asm.Code) (T, error)) (T, error) {
	sk := p.Sketch
	if sk != nil && sk.near != nil {
		if d, err := emit(asm.Like(base, sk.near)); !errors.Is(err, asm.ErrRange) {
			return d, err
		}
		sk = nil
	}
	c := asm.New(base)
	d, err := emit(c)
	if err != nil {
		return d, err
	}
	if sk != nil {
		sk.near, sk.shorter = c.Near(), c.Shorter()
		return d, nil
	}
	if d, err = emit(c.Again()); errors.Is(err, asm.ErrRange) {
		return emit(asm.New(base)) // what tail emits differs from time to time
	}
	return d, err
}

// BuildExit makes the detour of return probes at one place where a function is
// left. before emits the displaced instructions but the last; tail emits that,
// a return or a jump to another function. The hit is taken between them, where
// the return address is on top of the stack. Records are those of BuildReturn;
// values of the entry can't be had.
func BuildExit(base uint64, p *Params, probes []Probe, before, tail func(c *asm.Code) error) (*Detour, error) {
	if before == nil {
		before = func(*asm.Code) error { return nil }
	}
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return build(c, p, probes, before, tail) })
}

func build(c *asm.Code, p *Params, probes []Probe, before, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(c, p)
	if !p.NoRedZone {
		b.frame.skip = redZone
	}
	tallied := p.tallies(probes)
	if !tallied {
		if err := b.plan(probes); err != nil {
			return nil, err
		}
	}
	copyAt := b.Here()
	if before != nil {
		b.frame.outside(b.Code)
		if err := before(b.Code); err != nil {
			return nil, err
		}
		b.returnTail = true
		b.where = origin{hasIP: true, ipAbove: 0, sp: 8}
	}
	if tallied {
		if err := b.tally(probes); err != nil {
			return nil, err
		}
		if before == nil {
			copyAt = b.Here()
		}
		return b.leave(copyAt, tail)
	}
	noRoom := b.look()
	b.frame.save(b.Code)
	for i := range probes {
		b.hit(&probes[i], i == 0)
	}
	b.frame.restore()
	if before == nil {
		copyAt = b.Here()
	}
	d, err := b.leave(copyAt, tail)
	if err != nil {
		return nil, err
	}
	if noRoom != nil {
		off, _ := b.Offset(*noRoom)
		d.NoRoom = b.Base() + uint64(off)
	}
	return d, nil
}

// leave ends the detour with what tail emits, with the program's registers. The
// displaced instructions are at copyAt.
func (b *builder) leave(copyAt uint64, tail func(c *asm.Code) error) (*Detour, error) {
	b.frame.outside(b.Code)
	if err := tail(b.Code); err != nil {
		return nil, err
	}
	b.Int3() // nothing runs past the jump back
	d, err := b.finish()
	if err != nil {
		return nil, err
	}
	d.Copy = copyAt
	return d, nil
}

// MaxStack is the most stack that a detour uses below the red zone, in bytes.
// Programs that would need more are refused.
const MaxStack = 2048

// builder is the state of one detour in the making.
type builder struct {
	*asm.Code
	p       *Params
	frame   frame
	looks   looks
	faults  []pending
	asks    []asking
	mayFail int // ways to a fault so far
	// sharedFaults says that it goes through shared code that may fault.
	sharedFaults bool
	cold         []func() // code out of the way, emitted behind the rest
	consts       []constant

	prog   *fetch.Program
	probe  *Probe
	layout layout // temporaries of the current program
	where  origin // what the registers mean
	// ending, of a return probe, emits the way through shared code that ends the hit
	// and its call; done is where those go on that leave no record. ended says that
	// it was.
	ending func(done asm.Label)
	ended  bool
	// returnTail says that the address returned to goes behind the data.
	returnTail bool
	// shared says that it is the shared code that is emitted.
	shared bool
	// reading is the shared code of canRead, in the shared code.
	reading asm.Label
	// owns says that calls are noted in a table in common.
	owns bool
	// ownerBits stand beside the owner's number: joinedOwner where another probe's calls
	// are noted before, anywhere.
	ownerBits uint32
	// seq says that the probe takes its hits in sequences.
	seq bool
	// evicted is where the words of the ring are in which room is made, evictAt the
	// temporaries for that.
	evicted int32
	evictAt int
	// over is where a hit goes on behind which there are no more.
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
	data  func() []byte // all labels are bound
}

func newBuilder(c *asm.Code, p *Params) *builder {
	return &builder{Code: c, p: p, frame: frame{scratch: p.Scratch}}
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// plan finds out what the frame must hold.
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
		if readBy(pr.Program)&(1<<fetch.RegFlags) != 0 {
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

// stack refuses a frame that is too large.
func (b *builder) stack() error {
	limit := MaxStack
	if b.p.MaxStack > 0 {
		limit = min(limit, b.p.MaxStack)
	}
	// A register for the return trampolines, and what is pushed for a moment.
	if n := b.frame.temps + b.frame.under + 8*(len(b.frame.regs)+3); n > limit {
		return unsupported("the values take %d bytes of stack, more than %d", n, limit)
	}
	return nil
}

// hit emits one probe's part; first says that it is the first of the site. SI becomes
// the CPU's area, and stays it where hits are not taken in sequences.
func (b *builder) hit(pr *Probe, first bool) {
	b.probe, b.prog = pr, pr.Program
	b.layout, _ = planProgram(pr, b.p)
	if pr.Birth != nil {
		b.birth(pr.Birth)
		return
	}
	if b.seq = b.sequences(); !b.seq && (first || b.p.Rseq != 0 || b.p.Spare) {
		b.area()
		first = true
	}
	done, reject := b.NewLabel(), b.NewLabel()
	b.unless(pr.ID, first && !b.seq, done)
	b.early()
	if seq := b.seq; b.prog.Filter != nil || pr.Inject != nil {
		if b.prog.Filter != nil {
			b.filter(b.prog.Filter, reject)
		}
		b.later(func() {
			b.Bind(reject)
			b.mayCount(pr, done)
			b.count(pr.ID, ring.CounterFiltered, seq, func() {})
			b.Jmp(done)
		})
	}
	switch {
	case pr.Inject != nil:
		b.inject(pr.Inject, reject)
	case pr.Control != nil:
		b.controlled(pr, done)
		return
	default:
		if b.account(pr, done); b.ended {
			return
		}
	}
	b.Bind(done)
}

// account emits what becomes of a hit that passed the filter, and goes on at done if it
// leaves no record. Where it ends in shared code (ended) that is bound there.
func (b *builder) account(pr *Probe, done asm.Label) {
	if pr.CountOnly && b.seq {
		b.countInSequence(pr.ID, ring.CounterHits, b.flagged(), b.frame.took)
	} else if pr.CountOnly {
		b.count(pr.ID, ring.CounterHits, false, b.frame.took)
	} else if pr.Bins != nil {
		b.ended = false
		b.bins(pr.Bins, done, b.recordLater(done))
	} else {
		if b.ended = b.ending != nil && b.layout.texts && len(b.layout.times) == 0 && !b.p.Overwrite && pr.Control == nil; b.ended {
			if b.seq {
				b.area()
			}
			b.reserveText(done)
		} else {
			b.reserve(done)
		}
		b.late()
		b.copyOfStack()
		if b.ended {
			b.ending(done)
			return
		}
		b.commit()
	}
}

// finish emits what lies out of the way, also of another builder with the same
// code, and resolves all.
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
	d := &Detour{Base: b.Base(), Code: code, size: len(code), SharedFaults: b.sharedFaults, undoing: b.frame.undoing()}
	for _, f := range b.faults {
		off, ok := b.Offset(f.to)
		if !ok {
			return nil, fmt.Errorf("assemble detour at %#x: %w", b.Base(), asm.ErrUnbound)
		}
		d.Faults = append(d.Faults, Fault{f.at, b.Base() + uint64(off)})
	}
	for _, a := range b.asks {
		off, ok := b.Offset(a.back)
		if !ok {
			return nil, fmt.Errorf("assemble detour at %#x: %w", b.Base(), asm.ErrUnbound)
		}
		d.Asks = append(d.Asks, Ask{a.at, b.Base() + uint64(off), a.what})
	}
	return d, nil
}

// later has code emitted out of the way.
func (b *builder) later(emit func()) {
	at := b.frame.body.taken
	b.cold = append(b.cold, func() {
		f := &b.frame
		f.body.taken = at
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

// mayFault notes that the next instruction may fault and go on at to.
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
