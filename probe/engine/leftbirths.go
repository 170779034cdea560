package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/probe/survey"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Births that nobody sees
//
// Probes that are left alone take their hits in sequences (sequences.go) if everything that can
// make a task in the process's memory has a jump of kprobe's own beside it, to a detour that
// does what a tracer would (probe/detour, births.go). Files tell where that is (survey.Births).
// These jumps are probes of an event that is shown to nobody. If there is code without a file,
// which may do anything, or if one of the places takes no jump, hits take locked instructions,
// and the session's log says so.
//
//	looked   before the first detour is built: is it possible? (mayWatchBirths)
//	laid     the jumps, when everything else is as it will be left (watchBirths)
//	trusted  from a moment on in which it is known of each thread whether it waits for a task
//	         that shares its memory: those are counted, and all that come
//	used     when the last thread is let go: ring.SeqCPUs
//
// One case is not covered: code that comes later, makes such a task by a system call
// instruction of its own, and takes hits in that task before exec.

// BirthsOff is where Params.Births lies in the page of the gate.
const BirthsOff = 8

// mayWatchBirths says why hits can't be taken in sequences where nobody sees births; "":
// they may be.
func (tg *Target) mayWatchBirths() string {
	_, why := tg.birthPlaces()
	return why
}

// watchBirths lays the jumps, and has hits be taken in sequences once the target is left.
// Where it can't be they take locked instructions.
func (tg *Target) watchBirths(ctx context.Context) {
	if tg.Params == nil || tg.Params.Rseq == 0 || tg.barred != "" {
		return
	}
	why, err := tg.layBirths(ctx)
	if err != nil {
		why = err.Error()
	}
	if why != "" {
		tg.bar(why)
	}
}

func (tg *Target) layBirths(ctx context.Context) (why string, err error) {
	places, why := tg.birthPlaces()
	if why != "" {
		return why, nil
	}
	var ws []planner.Request
	for _, b := range places {
		sides := []bool{false}
		if b.counted() {
			sides = append(sides, true)
		}
		for _, behind := range sides {
			w, err := tg.birthRequest(b, behind)
			if err != nil {
				return "", err
			}
			ws = append(ws, w)
		}
	}
	tg.births.places = places
	if err := tg.change(context.WithoutCancel(ctx), &changeset{add: ws}); err != nil {
		return "", err
	}
	drop := map[*Placed]bool{}
	for _, w := range ws {
		PlacedOf(w).feed.leave(PlacedOf(w), true) // nobody is shown it
		drop[PlacedOf(w)] = true
		if !PlacedOf(w).Optimized || !w.P.Tactic.Jump() {
			why = fmt.Sprintf("no jump can be laid at %s, which may make tasks: %s", w.Site.Name, w.P.Why)
		}
	}
	if why == "" {
		if why, err = tg.trustBirths(ctx); why == "" && err == nil {
			return "", nil
		}
	}
	return why, errors.Join(err, tg.change(context.WithoutCancel(ctx), &changeset{drop: drop}))
}

// birthRequest makes the probe of one side of a place.
func (tg *Target) birthRequest(b bornAt, behind bool) (w planner.Request, err error) {
	v := b.Before
	if behind {
		v = b.Behind
	}
	at := symbols.Site{
		Addr: b.module.Addr(v), Module: b.module, Vaddr: v, Func: b.Func, Offset: uint64(v - b.Func.Start),
		Name: symbols.OffsetName(b.Func.Symbol.Name, uint64(v-b.Func.Start)),
	}
	place, err := tg.proveStart(at)
	if err != nil {
		return w, err
	}
	def, err := fetch.Parse(fmt.Sprintf("p:kprobe/births %#x", uint64(at.Addr)))
	if err != nil {
		return w, err
	}
	prog, err := def.Compile(&assess.Env{Space: tg.Space, Text: tg.Engine.Opts.MaxText, Site: at})
	if err != nil {
		return w, err
	}
	ev := &Event{Event: results.Event{Def: def, Group: "kprobe", Name: "births"}, count: true}
	birth := &detour.Birth{Behind: behind, Args: b.args()}
	if birth.Number = b.Number; b.Number == survey.AnyNumber {
		birth.Number, birth.From = 0, numberOf(b.From)
	}
	p := newPlaced(tg, ev, def, planner.Probe{Program: prog, Where: &at, Birth: birth})
	return planner.Request{Place: &place, P: &p.Probe, Kind: planner.Entry}, nil
}

// numberOf is the chain of a number. The registers of both have the numbers of their
// encoding.
func numberOf(n survey.Number) fetch.Chain {
	c := fetch.Chain{Source: fetch.SourceReg, Reg: fetch.Reg(n.Reg)}
	if n.Memory {
		c.Loads = []fetch.Load{{Off: n.Off}}
	}
	return c
}

// unseenBirths is how often a moment is looked for in which no thread makes a task.
const unseenBirths = 50

// betweenLooks is how long it is waited for another moment.
const betweenLooks = time.Millisecond

// trustBirths waits for a moment from which on all tasks are counted, and has that begin.
func (tg *Target) trustBirths(ctx context.Context) (why string, err error) {
	for range unseenBirths {
		err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			n, ok := tg.makers(stopped)
			if !ok || len(stopped) == 0 || len(tg.Proc.StillSharers()) > n {
				return nil
			}
			if why = tg.standApart(stopped); why != "" {
				return nil
			}
			words := binary.LittleEndian.AppendUint32(nil, uint32(n))
			words = binary.LittleEndian.AppendUint32(words, 1)
			tg.births.trusted = true
			return tg.Proc.WriteMemory(words, tg.Area.Gate+BirthsOff)
		})
		if err := tracee.IgnoreLate(err); err != nil || why != "" || tg.births.trusted {
			return why, err
		}
		if _, err := away(tg.Engine, func() (struct{}, error) { time.Sleep(betweenLooks); return struct{}{}, nil }); err != nil {
			return "", err
		}
		if err := tg.goneError(); err != nil {
			return "", err
		}
	}
	return "there was no moment in which it was known of each thread whether it makes a task", nil
}

// standApart says why threads that are stopped could be mistaken; "": none could.
func (tg *Target) standApart(stopped []*tracee.Thread) string {
	own := slices.DeleteFunc(slices.Clone(stopped), func(t *tracee.Thread) bool { return t.Process() != tg.Proc })
	_, why := tg.findSequences(own, tg.Params.TID)
	return why
}

// makers gives how many threads have passed before one of the places, uncounted, and
// will be counted off behind it: each waits for a task that shares its memory, or is about
// to make it. ok is false where that can't be told.
func (tg *Target) makers(stopped []*tracee.Thread) (n int, ok bool) {
	for _, t := range tg.Proc.AllLate() {
		pc, known := t.WaitsAt()
		if !known {
			return 0, false
		}
		if b := tg.births.at(pc); b != nil {
			if !t.AwaitsChild() || !b.counted() {
				return 0, false
			}
			n++
		}
	}
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			return 0, false // gone
		}
		pc := symbols.Addr(regs.Rip)
		if st := tg.Patches.StageAt(pc); st != nil && slices.ContainsFunc(st.Wants, func(w planner.Request) bool { return w.P.Birth != nil }) {
			return 0, false
		}
		b := tg.births.at(pc)
		if b == nil || pc == b.module.Addr(b.Behind) && regs.Rax == 0 { // the task itself
			continue
		}
		flags, known := tg.birthFlags(b, regs)
		switch {
		case !known:
			return 0, false
		case flags&unix.CLONE_VM == 0:
		case flags&unix.CLONE_SETTLS != 0 || flags&unix.CLONE_VFORK == 0:
			return 0, false
		default:
			n++
		}
	}
	return n, true
}

// useSequences has hits be taken in sequences as the threads, which are stopped, are let
// go.
func (tg *Target) useSequences(stopped []*tracee.Thread) {
	l, n := tg.Area.File.Layout, 0
	if tg.births.trusted && tg.barred == "" {
		if why := tg.standApart(stopped); why != "" {
			tg.bar(why)
			if err := tg.writeBook(); err != nil {
				tg.Engine.Warnf("process %d: %v", tg.Proc.PID(), err)
			}
		} else {
			n = l.CPUs
		}
	}
	tg.births.used = true
	tg.Area.File.Store32(l.Flags.Off+ring.SeqCPUs, uint32(n))
	if n > 0 {
		tg.Engine.Logf("process %d: hits are taken in restartable sequences from here on, too", tg.Proc.PID())
	}
}
