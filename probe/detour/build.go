package detour

import (
	"errors"
	"slices"

	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Build makes the detour of the probes of one address, to lie at base. tail emits the displaced
// instructions and the jump back. The site jumps to base.
//
// The probes take their hits in order. The code changes no register, flag or stack byte that
// the program can see, makes no call, uses no vector instruction except reads of xmm registers,
// and uses at most MaxStack bytes below the red zone. tail is called more than once; the last
// call produces the final code.
//
// The error is ErrUnsupported for what can't be done in the target.
func Build(base uint64, p *Params, probes []Probe, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return build(c, p, probes, nil, tail) })
}

// Sketch is what one build of a detour leaves for the next build of the same detour: which of its branches
// are short. The zero Sketch is empty.
type Sketch struct {
	near    asm.Near
	shorter int
}

// Shorter returns the number of bytes by which the next build will be shorter, at least.
func (s *Sketch) Shorter() int { return s.shorter }

// tight emits code twice. The second time the positions of labels are known, so most branches are short.
// With a sketch, each call emits once: the first build fills the sketch, the second uses it.
func tight[T any](base uint64, p *Params, emit func(c *asm.Code) (T, error)) (T, error) {
	sk := p.Sketch
	if sk != nil && sk.near != nil {
		if d, err := emit(p.Scratch.like(base, sk.near)); !errors.Is(err, asm.ErrRange) {
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
		return emit(asm.New(base)) // tail may emit other code than in the first build
	}
	return d, err
}

// BuildExit makes the detour of return probes at one place where a function is left. before
// emits the displaced instructions except the last; tail emits that one, a return or a jump to
// another function. The hit is taken between them, when the return address is on top of the
// stack. Records are those of BuildReturn. Values of the entry can't be had.
func BuildExit(base uint64, p *Params, probes []Probe, before, tail func(c *asm.Code) error) (*Detour, error) {
	if before == nil {
		before = func(*asm.Code) error { return nil }
	}
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return build(c, p, probes, before, tail) })
}

func build(c *asm.Code, p *Params, probes []Probe, before, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(c, p)
	defer b.free()
	if !p.NoRedZone {
		b.frame.skip = redZone
	}
	if i := slices.IndexFunc(probes, func(x Probe) bool { return x.Landing != nil }); i >= 0 {
		if err := checkLanding(probes); err != nil {
			return nil, err
		}
		return b.buildLanding(probes[i].Landing, tail)
	}
	counted := (p.OwnCounts || p.Tally == nil) && p.countsHere(probes)
	tallied := !counted && p.tallies(probes)
	if !tallied && !counted {
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
	if counted {
		if err := b.countHere(probes); err != nil {
			return nil, err
		}
		if before == nil {
			copyAt = b.Here()
		}
		return b.leave(copyAt, tail)
	}
	noRoom := b.look()
	b.leaveFlags(probes...)
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
		d.noRoomAt(b.Base() + uint64(off))
	}
	return d, nil
}

// leave ends the detour with what tail emits, with the program's registers. The displaced
// instructions are at copyAt.
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
	d.displaced = uint32(copyAt - d.Base)
	return d, nil
}

// hit emits the code of one probe. first says that it is the first of the site. SI becomes the CPU's area,
// and stays it unless hits are taken in sequences.
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

// account emits the counting or recording of a hit that passed the filter. It continues at done if the hit
// leaves no record. If the code ends in shared code (ended), done is bound there.
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
				b.likelyCPU()
				b.areaOf()
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
