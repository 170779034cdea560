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
// Probes that are left alone take their hits in restartable sequences (sequences.go), provided that
// births are watched without a tracer: beside each instruction that can make a task in the
// process's memory there must be a jump of kprobe's own, to a detour that does what a tracer would
// do (probe/detour, births.go). Files say where these instructions are (survey.Births). The jumps
// are probes of an event that is never shown. If there is code without a file, which may do
// anything, or if a place can't have a jump, hits use locked instructions, and the session's log
// says so.
//
//	looked   before the first detour is built: watching is found to be possible (mayWatchBirths)
//	laid     the jumps are in the text; everything else is as it will be left (watchBirths)
//	trusted  there was a moment in which it was known of each thread whether it waits for a task
//	         that shares its memory; from then on all such tasks are counted (trustBirths)
//	used     the last thread is let go, and hits are taken in sequences (ring.SeqCPUs)
//
// One case is not covered: code that is mapped later, makes such a task by a system call
// instruction of its own, and takes hits in that task before it executes a program.

// The offsets of Params.Births and Params.Calls in the gate's page, in bytes.
const (
	BirthsOff = 8
	CallsOff  = 16
)

// mayWatchBirths is the reason why hits can't be taken in sequences without a tracer that sees
// births; "" if they can.
func (tg *Target) mayWatchBirths() string {
	places, why, _ := tg.birthPlaces(tg.host != nil)
	if why == "" && tg.host != nil {
		why = tg.misses(places, watchTask)
	}
	return why
}

// watchBirths writes the jumps that watch births, so that hits are taken in sequences once the
// target is left. If that fails, hits will use locked instructions (bar).
// If hits ask the kernel, it also writes jumps before the instructions that set seccomp rules
// (probe/detour, asks.go), and before those that end mappings (leftknown.go).
func (tg *Target) watchBirths(ctx context.Context) {
	if tg.Params == nil {
		return
	}
	tg.layWatches(ctx)
	if tg.births.ruled && tg.reads() {
		if err := tg.trustMemory(ctx); err != nil {
			tg.unknown(err.Error())
		}
	}
}

func (tg *Target) layWatches(ctx context.Context) {
	tasks := tg.Params.Rseq != 0 && tg.barred == "" && !tg.births.trusted
	// Later commands can't lay jumps where this one has some (host.go).
	rules := tg.Params.Calls != 0 && !tg.births.ruled && (tg.asks() || tasks && tg.Engine.Opts.Detach)
	if !tasks && !rules {
		return
	}
	if tg.host != nil {
		tg.useHost(ctx, tasks, rules)
		return
	}
	places, why, unseen := tg.birthPlaces(rules)
	if rules && tg.reads() {
		tg.births.unmapping = nil
		if tg.births.unseen = ""; unseen != "" {
			tg.unknown(unseen)
		}
	}
	if tasks {
		var err error
		if why == "" {
			if why, err = tg.layBirths(ctx, places, rules); err != nil {
				why = err.Error()
			}
		}
		if why == "" {
			return
		}
		tg.bar(why)
	}
	if rules {
		if _, _, err := tg.layBeside(ctx, places, false, true); err != nil {
			tg.unruled(err.Error())
		}
	}
}

// asks reports whether hits of the target ask the kernel.
func (tg *Target) asks() bool {
	for p := range tg.Placed {
		if p.Rarely().Birth == nil && tg.Params.Asks(p.Program) {
			return true
		}
	}
	return false
}

// unruled notes a place at which rules may be set that hits don't survive.
func (tg *Target) unruled(why string) {
	if !tg.asks() {
		return
	}
	tg.Engine.Logf("process %d: should it set seccomp rules, hits that ask the kernel may break them: %s", tg.Proc.PID(), why)
}

func (tg *Target) layBirths(ctx context.Context, places []bornAt, rules bool) (why string, err error) {
	ruled := tg.births.ruled
	drop, why, err := tg.layBeside(ctx, places, true, rules)
	if err != nil {
		return "", err
	}
	if why == "" {
		if why, err = tg.trustBirths(ctx); why == "" && err == nil {
			return "", nil
		}
	}
	tg.births.ruled = ruled
	return why, errors.Join(err, tg.change(context.WithoutCancel(ctx), &changeset{drop: drop}))
}

// layBeside lays jumps beside places, for tasks, for rules, or for both. why is what keeps tasks from
// being seen.
func (tg *Target) layBeside(ctx context.Context, places []bornAt, tasks, rules bool) (laid map[*Placed]bool, why string, err error) {
	var ws []planner.Request
	maps := rules && tg.reads() && tg.births.unseen == ""
	if maps {
		tg.births.unmapping = nil
	}
	if tasks {
		tg.births.places = nil
	}
	for _, b := range places {
		b.Task, b.Rules, b.Unmaps = b.Task && tasks, b.Rules && rules, b.Unmaps && (maps || tasks && b.Task && tg.Engine.Opts.Detach)
		if b.Task {
			tg.births.places = append(tg.births.places, b)
		}
		if b.Unmaps {
			tg.births.unmapping = append(tg.births.unmapping, b)
		}
		if b.Before == 0 && b.Rules {
			tg.unruled(fmt.Sprintf("no jump can be placed before the system call at %s", symbols.OffsetName(b.Func.Symbol.Name, uint64(b.At-b.Func.Start))))
			continue
		}
		var sides []bool
		if b.Task || b.Rules || b.Unmaps {
			sides = append(sides, false)
		}
		if b.Task && b.counted() {
			sides = append(sides, true)
		}
		for _, behind := range sides {
			w, err := tg.birthRequest(b, behind)
			if err != nil && b.Task {
				return nil, "", err
			} else if err != nil {
				tg.unlaid(b.Rules, b.Unmaps, err.Error())
				continue
			}
			ws = append(ws, w)
		}
	}
	if err := tg.change(context.WithoutCancel(ctx), &changeset{add: ws}); err != nil {
		return nil, "", err
	}
	laid = map[*Placed]bool{}
	traps := map[*Placed]bool{}
	for _, w := range ws {
		p := PlacedOf(w)
		p.feed.leave(p, true) // it is never shown
		laid[p] = true
		switch {
		case p.Optimized && w.P.Tactic.Jump():
		case p.Rarely().Birth.NoTask:
			tg.unlaid(p.Rarely().Birth.Rules, p.Rarely().Birth.Unmaps, fmt.Sprintf("no jump can be placed at %s: %s", w.Site.Name(), w.P.Why))
			traps[p] = true
			delete(laid, p)
		default:
			why = fmt.Sprintf("no jump can be placed at %s, which may make tasks: %s", w.Site.Name(), w.P.Why)
		}
	}
	if len(traps) > 0 {
		if err := tg.change(context.WithoutCancel(ctx), &changeset{drop: traps}); err != nil {
			return nil, "", err
		}
	}
	tg.births.ruled = tg.births.ruled || rules
	return laid, why, nil
}

// unlaid notes a place that can have no jump.
func (tg *Target) unlaid(rules, unmaps bool, why string) {
	if rules {
		tg.unruled(why)
	}
	if unmaps {
		tg.unknown(why)
	}
}

// birthRequest makes the request for the probe before or behind such an instruction.
func (tg *Target) birthRequest(b bornAt, behind bool) (w planner.Request, err error) {
	v := b.Before
	if behind {
		v = b.Behind
	}
	at := symbols.Site{
		Addr: b.module.Addr(v), Module: b.module, Vaddr: v, Func: &b.Func, Offset: uint64(v - b.Func.Start),
		Named: symbols.OffsetName(b.Func.Symbol.Name, uint64(v-b.Func.Start)),
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
	birth := &detour.Birth{Behind: behind, Args: b.args(), Rules: b.Rules && !behind, NoTask: !b.Task, Unmaps: b.Unmaps && !behind}
	if birth.Number = b.Number; b.Number == survey.AnyNumber {
		birth.Number, birth.From = 0, numberOf(b.From)
	}
	p := newPlaced(tg, ev, def, planner.Probe{Program: prog, Where: &at, Rare: &planner.RareProbe{Birth: birth}})
	return planner.Request{Place: &place, P: &p.Probe, Kind: planner.Entry}, nil
}

// numberOf is the fetch.Chain that reads a survey.Number. Both number registers as their encoding
// does.
func numberOf(n survey.Number) fetch.Chain {
	c := fetch.Chain{Source: fetch.SourceReg, Reg: fetch.Reg(n.Reg)}
	if n.Memory {
		c.Loads = []fetch.Load{{Off: n.Off}}
	}
	return c
}

// unseenBirths is how many attempts are made to find a moment in which it is known of each thread
// whether it is making a task.
const unseenBirths = 50

// betweenLooks is the time between two attempts.
const betweenLooks = time.Millisecond

// trustBirths waits for such a moment, and switches on the counting of tasks in it. If there is
// none, why says so.
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
		if err := tg.pauseLooking(); err != nil {
			return "", err
		}
	}
	return "there was no moment in which it was known of each thread whether it makes a task", nil
}

// pauseLooking waits until the next attempt.
func (tg *Target) pauseLooking() error {
	if _, err := away(tg.Engine, func() (struct{}, error) { time.Sleep(betweenLooks); return struct{}{}, nil }); err != nil {
		return err
	}
	return tg.goneError()
}

// standApart is the reason why a stopped thread of the target could be mistaken for another task by
// its rseq area; "" if none can.
func (tg *Target) standApart(stopped []*tracee.Thread) string {
	own := slices.DeleteFunc(slices.Clone(stopped), func(t *tracee.Thread) bool { return t.Process() != tg.Proc })
	_, why := tg.findSequences(own, tg.Params.TID)
	return why
}

// makers counts the threads that have passed the place before an instruction that makes tasks
// without being counted, and that will be counted off at the place behind it. Each of them waits
// for a task that shares its memory, or is about to make one. ok is false if this isn't known of
// some thread.
func (tg *Target) makers(stopped []*tracee.Thread) (n int, ok bool) {
	for _, t := range tg.Proc.AllLate() {
		pc, known := t.WaitsAt()
		if !known || tg.inUprobes(pc) {
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
		if st := tg.Patches.StageAt(pc); !st.None() && slices.ContainsFunc(st.Wants(), func(w planner.Request) bool { return w.P.Rarely().Birth != nil }) {
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

// useSequences decides how hits are taken once the threads, which are stopped, are let go: in
// sequences if births are trusted, else by locked instructions.
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
