package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/probe/gocode"
	"kprobe/probe/plan"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// How a batch is armed
//
// All that can fail without touching the process comes first: names are looked
// up, programs compiled, instruction boundaries proved. Then, in this order:
//
//  1. memory for the copies is mapped (injected system calls);
//  2. the copies are written there, where no thread is yet;
//  3. each site is entered in the journal, then in the fallback handler's table, so that
//     whoever finds an int3 from here on also finds how to go on;
//  4. the int3 is written over the instruction's first byte. A store of one
//     byte is seen whole: a thread executes the old instruction or the int3.
//     No thread is stopped for it; all are traced already, so none can meet
//     an int3 that nobody answers.
//
// If any step fails, what was done is undone in reverse and the batch is not
// armed. A site that is taken out goes the same way back: first byte, then the
// fallback handler's table keeps it as retired (a thread may have trapped and not been seen
// yet), then the journal. Its copy stays until no thread can be in it.

// patchRequest is one place of one definition that is to be armed.
type patchRequest struct {
	*assess.Place
	p           *placed
	conditional bool           // an exit by a conditional jump
	passing     detour.Passing // of an exit that takes a jump and isn't a return
	open        *fetch.Chain   // of one that passes on: where it leads, if only the program knows
	alone       bool           // an exit that is a hit by itself, of a probe of exits (alonereturns.go)
	joins       bool           // another probe's calls are noted before at the same entry, in the same table
	stack       gocode.Stack
	kind        wantKind
	pop         uint16       // of an exit that takes a jump: what it takes off the stack besides
	to          symbols.Addr // of a redirection: the detour
}

type wantKind uint8

const (
	requestEntry wantKind = iota
	requestReturn
	wantExit
	requestExit  // an exit that is a hit by itself
	wantRedirect // a breakpoint that only leads into a detour
	requestWatch // memory, by a debug register: nothing is written
)

// own is a breakpoint of kprobe's own that is to be written: for a hook, or, where
// that is nil, for calls that return there.
type own struct {
	assess.Place
	hook *hook
	// calls: calls are made there that return where another one lands. Without
	// a hook and this calls return there.
	calls bool
	// leaves is the return probe whose function is left there: outwards, by a jump
	// to another function, where the jump is conditional if it is taken.
	leaves                *placed
	outwards, conditional bool
}

// resolve finds the places of a definition in the target and proves them.
func (tg *target) resolve(d *fetch.Def, ev *event) ([]patchRequest, error) {
	if d.Kind == fetch.Watch {
		return tg.resolveWatch(d, ev)
	}
	places, known := tg.found.take(d, tg.space)
	var err error
	if !known {
		places, err = away(tg.s, func() ([]symbols.Site, error) { return tg.space.Resolve(d.Place) })
	}
	var unbound *symbols.UnboundIFuncError
	if errors.As(err, &unbound) {
		if impl, ok := tg.chosen[unbound.Resolver]; ok {
			var w symbols.Site
			if w, err = tg.space.IFuncSite(unbound, impl); err == nil && d.Place.Offset != 0 {
				places, err = tg.space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(impl) + uint64(d.Place.Offset)})
			} else {
				places = []symbols.Site{w}
			}
		}
	}
	if err != nil {
		return nil, err
	}
	glob := d.Place.IsGlob()
	defer litter(len(places))()
	letIn, letOut := func(symbols.Site) {}, func(symbols.Site) {}
	if d.Kind == fetch.Return && len(places) >= letGo {
		var stop func()
		letIn, stop = tg.leavingAhead(places)
		defer stop()
		letOut = func(w symbols.Site) { tg.funcs[survey.Start(w)].Release() }
	}
	var out []patchRequest
	var refused error
	left := map[string]int{} // places, by why they are left out
	var without assess.Partly
	for i, w := range places {
		if err := tg.answer(); err != nil {
			return nil, err
		}
		tg.s.progress("checking places", i, len(places))
		letIn(w)
		more, err := tg.place(d, ev, w)
		letOut(w)
		if err != nil {
			if len(places) > 1 && without.Skip(w, err) {
				continue
			}
			var r *RefusedError
			if glob && errors.As(err, &r) {
				refused = err
				if r.Many != "" {
					left[r.Many]++
				}
				tg.s.logf("%v", err)
				continue
			}
			if w.USDT != nil && len(places) > 1 && errors.As(err, &r) {
				refused = err
				tg.s.warnf("%s: one of %d places is not probed: %v", d.Place, len(places), err)
				continue
			}
			return nil, err
		}
		out = append(out, more...)
	}
	if len(out) == 0 && without.First != nil {
		return nil, without.First
	}
	if len(out) == 0 && refused != nil {
		return nil, refused
	}
	if without.First != nil {
		tg.s.warnf("%s", without.Warning(d, len(places)))
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		tg.s.warnf("%s: %d of %d places are not probed: %s", d.Place, left[why], len(places), why)
	}
	return append(out, tg.resolveInlined(d, ev, places)...), nil
}

// place makes what is to be armed for a definition at one place.
func (tg *target) place(d *fetch.Def, ev *event, w symbols.Site) ([]patchRequest, error) {
	found, err := tg.assessor().Definition(d, w)
	if err != nil {
		return nil, err
	}
	if tg.s.inject != nil {
		if err := tg.mayInject(d, w); err != nil {
			return nil, err
		}
	}
	u := tg.s.user(d)
	env := &assess.Env{Space: tg.space, Text: tg.s.opts.MaxText, Site: w}
	form, err := u.form(d, env)
	if err != nil {
		return nil, err
	}
	prog, triggers, err := tg.s.compile(form, ev, env)
	if err != nil {
		return nil, err
	}
	p := &placed{ev: ev, def: d, user: u, prog: prog, target: tg, where: w, timeSlots: detour.TimeSlots(prog), triggers: triggers, breakpointOnly: needTracer(triggers)}
	if d.Kind != fetch.Return {
		return []patchRequest{{Place: &found, p: p, kind: requestEntry}}, nil
	}
	n := d.MaxActive
	if n == 0 {
		n = tg.s.maxActive()
	}
	p.pool, p.fn = newPool(n), w.Func.Symbol.Demangled()
	out := []patchRequest{{Place: &found, p: p, kind: requestReturn}}
	if w.Module.File.IsGo() {
		p.goABI = true
		f, err := tg.function(w)
		if err != nil {
			return nil, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: fmt.Sprintf("its exits can't be found: %v", err)}
		}
		exits, err := tg.ownExits(f, w, p)
		if err != nil {
			return nil, err
		}
		if p.alone = len(prog.Entry) == 0 && u == nil; p.alone {
			for i := range exits {
				exits[i].kind = requestExit
			}
			return exits, nil
		}
		return append(out, exits...), nil
	}
	if f, err := tg.leaving(w); err == nil {
		p.describeExits(f)
		p.never = !f.Leaving().Returns
	}
	return out, nil
}

// arm puts a batch in, or nothing of it.
func (tg *target) arm(ctx context.Context, ws []patchRequest) error {
	return tg.change(ctx, &changeset{add: ws})
}

// armOwn puts a breakpoint of kprobe's own in.
func (tg *target) armOwn(ctx context.Context, x own) error {
	return tg.change(ctx, &changeset{own: []own{x}})
}

// makeWay takes jumps out that cover kprobe's own breakpoints. A return address
// under a jump gets a return trampoline instead, unless something may unwind the stack: it
// would find no way past one.
func (tg *target) makeWay(ctx context.Context, list []own) error {
	for _, w := range list {
		p := tg.patches.covering(w.Site.Addr, int(w.Inst.Len))
		if p == nil {
			continue
		}
		if w.hook == nil && !w.calls && w.leaves == nil && tg.s.unwinds.In(tg.space) == "" {
			return errors.New("a probe's jump is there")
		}
		if err := tg.unoptimize(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// writeAll writes the breakpoints of sites that are laid.
func (tg *target) writeAll(fresh []*site) error {
	for _, st := range fresh {
		if err := tg.write(st); err != nil {
			return err
		}
	}
	return nil
}

// reserve maps memory for the copies of a batch, near each of its places.
func (tg *target) reserve(ctx context.Context, list []*assess.Place) error {
	type need struct {
		at symbols.Addr
		n  int
	}
	byModule := map[*symbols.Module]*need{}
	for _, w := range list {
		a := w.Site.Addr
		if tg.sites[a] != nil {
			continue
		}
		m := w.Site.Module
		if byModule[m] == nil {
			byModule[m] = &need{at: a}
		}
		byModule[m].n++
	}
	for _, n := range byModule {
		if err := tg.area.Code.Reserve(ctx, n.at, n.n); err != nil {
			return err
		}
	}
	return nil
}

// lay makes a site and writes its copy; the text is not touched.
func (tg *target) lay(ctx context.Context, wt *assess.Place) (*site, error) {
	w, code := wt.Site, wt.Code
	slot, err := tg.area.Code.Slot(ctx, w.Addr)
	if err != nil {
		return nil, err
	}
	m, err := assess.Copy(w, code, slot, tg.shadowStack)
	if err != nil {
		tg.area.Code.GiveBack(slot)
		return nil, err
	}
	if err := tg.proc.WriteMemory(m.Code, slot); err != nil {
		tg.area.Code.GiveBack(slot)
		return nil, fmt.Errorf("write the copy of %s: %w", w.Name, err)
	}
	st := &site{addr: w.Addr, name: w.Name, code: code, length: int(wt.Inst.Len), moved: m, slot: slot, entry: -1}
	tg.sites[w.Addr] = st
	tg.bySlot[slot] = st
	return st, nil
}

// write arms a site: journal, table, int3.
func (tg *target) write(st *site) error {
	var err error
	if st.entry, err = tg.area.Journal.Add(st.addr, st.slot, st.code); err != nil {
		return err
	}
	if err := tg.area.Table.Insert(uint64(st.addr), uint64(st.next())); err != nil {
		tg.area.Journal.Remove(st.entry)
		st.entry = -1
		return fmt.Errorf("too many probes: %w", err)
	}
	st.armed, st.met = true, true
	for _, list := range [][]*placed{st.probes, st.returns, st.exits} {
		for _, p := range list {
			p.feed.setTactic(p, plan.Breakpoint)
		}
	}
	if err := tg.proc.WriteMemory([]byte{breakpoint}, st.addr); err != nil {
		return errors.Join(fmt.Errorf("write the breakpoint at %s: %w", st.name, err), tg.restore(st))
	}
	return nil
}

// restore takes the int3 of a site out. The copy stays.
func (tg *target) restore(st *site) error {
	if !st.armed {
		return nil
	}
	var now [1]byte
	_, err := tg.proc.ReadMemory(now[:], st.addr)
	if err != nil && !errors.Is(err, unix.EFAULT) && !errors.Is(err, unix.EIO) {
		return fmt.Errorf("restore %s: %w", st.name, err)
	}
	if err == nil && now[0] == breakpoint {
		if err := tg.proc.WriteMemory(st.code[:1], st.addr); err != nil {
			return fmt.Errorf("restore %s: %w", st.name, err)
		}
	}
	tg.disarmed(st)
	return nil
}

// disarmed notes that the site's int3 is out, or gone with its text.
func (tg *target) disarmed(st *site) {
	st.armed = false
	tg.area.Table.Retire(uint64(st.addr))
	tg.area.Journal.Remove(st.entry)
	st.entry = -1
}

// discard takes a site out and forgets it. Its slot is given back only by
// those who know that no thread is in it. A site whose int3 stays in the text stays,
// without a use, until the next change tries again.
func (tg *target) discard(st *site) {
	if err := tg.restore(st); err != nil {
		tg.s.warnf("%v", err)
		tg.sites[st.addr] = st
		tg.stuck = append(tg.stuck, st)
		return
	}
	if tg.sites[st.addr] == st {
		delete(tg.sites, st.addr)
	}
}

// discardUnused discards a site of a change that has failed, and gives its copy's
// memory back: at once if no thread can have met it.
func (tg *target) discardUnused(st *site) {
	if tg.discard(st); st.armed {
		return
	}
	if st.met {
		tg.retired = append(tg.retired, &retired{sites: []*site{st}})
		return
	}
	delete(tg.bySlot, st.slot)
	tg.leaveCopy(st.moved, st.slot)
	tg.area.Code.GiveBack(st.slot)
}

// discardStuck tries again to take out the int3s that could not be taken out.
func (tg *target) discardStuck() {
	list := tg.stuck
	tg.stuck = nil
	for _, st := range list {
		switch {
		case !st.armed || tg.sites[st.addr] != st:
		case !st.idle(): // it has a use again
		default:
			if tg.discard(st); !st.armed {
				tg.retired = append(tg.retired, &retired{sites: []*site{st}})
			}
		}
	}
}

// serve has a site serve kprobe itself.
func (st *site) serve(x own) {
	switch {
	case x.hook != nil:
		st.hooks = append(st.hooks, x.hook)
	case x.calls:
		st.calls = true
	case x.leaves != nil:
		st.leaves = append(st.leaves, x.leaves)
		if st.outwards = x.outwards; x.conditional {
			st.jcc = x.Inst.Opcode | 0x80
		}
	default:
		st.lands = true
	}
}

func hang(st *site, w patchRequest) {
	switch w.kind {
	case requestEntry:
		st.probes = append(st.probes, w.p)
	case requestReturn:
		st.returns = append(st.returns, w.p)
	case wantExit, requestExit:
		st.exits = append(st.exits, w.p)
		if w.conditional {
			st.jcc = w.Inst.Opcode | 0x80 // never 0
		}
	case wantRedirect:
		st.redirect = w.to
	}
}
