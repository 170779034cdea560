package probe

import (
	"context"
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/gocode"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// How a batch is armed
//
// All that can fail without touching the process comes first: names are looked
// up, programs compiled, instruction boundaries proved. Then, in this order:
//
//  1. memory for the copies is mapped (injected system calls);
//  2. the copies are written there, where no thread is yet;
//  3. each site is entered in the journal, then in the net's table, so that
//     whoever finds an int3 from here on also finds how to go on;
//  4. the int3 is written over the instruction's first byte. A store of one
//     byte is seen whole: a thread executes the old instruction or the int3.
//     No thread is stopped for it; all are traced already, so none can meet
//     an int3 that nobody answers.
//
// If any step fails, what was done is undone in reverse and the batch is not
// armed. A site that is taken out goes the same way back: first byte, then the
// net's table keeps it as retired (a thread may have trapped and not been seen
// yet), then the journal. Its copy stays until no thread can be in it.

// want is one place of one definition that is to be armed.
type want struct {
	p           *placed // nil for kprobe's own breakpoints
	at          symbols.Site
	code        []byte
	inst        insn.Inst
	counted     bool // it was armed before: only how it is armed changes
	conditional bool // an exit by a conditional jump
	stack       gocode.Stack
	kind        wantKind
	hook        hook
	pop         uint16       // of an exit that takes a jump: what it takes off the stack besides
	to          symbols.Addr // of a redirection: the detour
}

type wantKind uint8

const (
	wantEntry wantKind = iota
	wantReturn
	wantExit
	wantLeave // an exit that is a hit by itself
	wantHook
	wantLanding
	wantRedirect // a breakpoint that only leads into a detour
)

// resolve finds the places of a definition in the target and proves them.
func (tg *target) resolve(d *fetch.Def, ev *event) ([]want, error) {
	places, err := tg.space.Resolve(d.Place)
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
	var out []want
	var refused error
	var without partly
	for _, w := range places {
		more, err := tg.place(d, ev, w)
		if err != nil {
			if len(places) > 1 && without.skip(w, err) {
				continue
			}
			var r *RefusedError
			if glob && errors.As(err, &r) {
				refused = err
				tg.s.logf("%v", err)
				continue
			}
			return nil, err
		}
		out = append(out, more...)
	}
	if len(out) == 0 && without.first != nil {
		return nil, without.first
	}
	if len(out) == 0 && refused != nil {
		return nil, refused
	}
	if without.first != nil {
		tg.s.warnf("%s", without.warning(d, len(places)))
	}
	return append(out, tg.resolveInlined(d, ev, places)...), nil
}

// place makes what is to be armed for a definition at one place.
func (tg *target) place(d *fetch.Def, ev *event, w symbols.Site) ([]want, error) {
	isReturn := d.Kind == fetch.Return
	if isReturn && w.Offset != 0 {
		return nil, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: "a return probe needs a function's entry"}
	}
	if err := called(d, w); err != nil {
		return nil, err
	}
	at, err := tg.behindCheck(w)
	if err != nil {
		return nil, err
	}
	code, inst, err := tg.prove(at)
	if err != nil {
		return nil, err
	}
	if _, err := planCopy(at, code, at.Addr+trialSlot, tg.shadowStack); err != nil {
		return nil, err
	}
	u := tg.s.user(d)
	env := &env{tg: tg, site: w}
	form, err := u.form(d, env)
	if err != nil {
		return nil, err
	}
	prog, err := form.Compile(env)
	if err != nil {
		return nil, err
	}
	p := &placed{ev: ev, def: d, user: u, prog: prog, target: tg, where: w, timeSlots: detour.TimeSlots(prog)}
	if !isReturn {
		return []want{{p: p, at: at, code: code, inst: inst, kind: wantEntry}}, nil
	}
	n := d.MaxActive
	if n == 0 {
		n = tg.s.maxActive()
	}
	p.pool, p.fn = newPool(n), w.Func.Symbol.Demangled()
	out := []want{{p: p, at: at, code: code, inst: inst, kind: wantReturn}}
	f, err := tg.function(w)
	if w.Module.File.IsGo() {
		p.goABI = true
		if err != nil {
			return nil, &RefusedError{Addr: w.Addr, Place: w.Name, Rule: fmt.Sprintf("its exits can't be found: %v", err)}
		}
		exits, err := tg.exits(f, w, p)
		if err != nil {
			return nil, err
		}
		if p.alone = len(prog.Entry) == 0 && u == nil; p.alone {
			for i := range exits {
				exits[i].kind = wantLeave
			}
			return exits, nil
		}
		return append(out, exits...), nil
	}
	if err == nil {
		p.describeExits(f)
	}
	return out, nil
}

// called refuses a return probe where no return address is to be had: the probe
// would overwrite something else.
func called(d *fetch.Def, w symbols.Site) error {
	if d.Kind != fetch.Return || w.Module.File.IsGo() || w.Module.File.Called(w.Vaddr) {
		return nil
	}
	return &RefusedError{Addr: w.Addr, Place: w.Name, Rule: "a return probe needs a function that is called: nothing shows that a return address is on the stack where this starts"}
}

// arm puts a batch in, or nothing of it.
func (tg *target) arm(ctx context.Context, ws []want) error { return tg.change(ctx, ws, nil) }

// makeWay takes jumps out that cover kprobe's own breakpoints. A return address
// under a jump gets a landing instead, unless something may unwind the stack: it
// would find no way past one.
func (tg *target) makeWay(ctx context.Context, ws []want) error {
	for _, w := range ws {
		if w.kind != wantHook && w.kind != wantLanding {
			continue
		}
		p := tg.patches.covering(w.at.Addr, int(w.inst.Len))
		if p == nil {
			continue
		}
		if w.kind == wantLanding && tg.unwinder() == "" {
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

// layTraps makes the sites of breakpoints, all or none. put writes them.
func (tg *target) layTraps(ctx context.Context, ws []want, put func([]*site) error) (err error) {
	if len(ws) == 0 {
		return nil
	}
	if err := tg.reserve(ctx, ws); err != nil {
		return err
	}
	var fresh []*site
	defer func() {
		if err != nil {
			for i := len(fresh) - 1; i >= 0; i-- {
				tg.discard(fresh[i])
			}
			for _, w := range ws {
				tg.unhang(w)
			}
		}
	}()
	for _, w := range ws {
		st := tg.sites[w.at.Addr]
		if st == nil {
			if st, err = tg.lay(ctx, w); err != nil {
				return err
			}
			fresh = append(fresh, st)
		}
		hang(st, w)
	}
	if err := tg.catchSites(ctx, fresh); err != nil {
		return err
	}
	if !tg.openTraps && !tg.borrowed {
		if err := tg.proc.OpenTraps(ctx); err != nil {
			return err
		}
		tg.openTraps = true
	}
	return put(fresh)
}

// reserve maps memory for the copies of a batch, near each of its places.
func (tg *target) reserve(ctx context.Context, ws []want) error {
	type need struct {
		at symbols.Addr
		n  int
	}
	byModule := map[*symbols.Module]*need{}
	for _, w := range ws {
		a := w.at.Addr
		if tg.sites[a] != nil {
			continue
		}
		m := w.at.Module
		if byModule[m] == nil {
			byModule[m] = &need{at: a}
		}
		byModule[m].n++
	}
	for _, n := range byModule {
		if err := tg.area.code.reserve(ctx, n.at, n.n); err != nil {
			return err
		}
	}
	return nil
}

// lay makes a site and writes its copy; the text is not touched.
func (tg *target) lay(ctx context.Context, wt want) (*site, error) {
	w, code := wt.at, wt.code
	slot, err := tg.area.code.slot(ctx, w.Addr)
	if err != nil {
		return nil, err
	}
	m, err := planCopy(w, code, slot, tg.shadowStack)
	if err != nil {
		tg.area.code.giveBack(slot)
		return nil, err
	}
	if err := tg.proc.WriteMemory(m.Code, slot); err != nil {
		tg.area.code.giveBack(slot)
		return nil, fmt.Errorf("write the copy of %s: %w", w.Name, err)
	}
	st := &site{addr: w.Addr, name: w.Name, code: code, length: int(wt.inst.Len), moved: m, slot: slot, entry: -1}
	tg.sites[w.Addr] = st
	tg.bySlot[slot] = st
	return st, nil
}

// write arms a site: journal, table, int3.
func (tg *target) write(st *site) error {
	var err error
	if st.entry, err = tg.area.journal.add(st.addr, st.slot, st.code); err != nil {
		return err
	}
	if err := tg.area.table.Insert(uint64(st.addr), uint64(st.next())); err != nil {
		return fmt.Errorf("too many probes: %w", err)
	}
	st.armed = true
	for _, list := range [][]*placed{st.probes, st.returns, st.exits} {
		for _, p := range list {
			p.tap.setTactic(p, plan.Breakpoint)
		}
	}
	if err := tg.proc.WriteMemory([]byte{breakpoint}, st.addr); err != nil {
		st.armed = false
		return fmt.Errorf("write the breakpoint at %s: %w", st.name, err)
	}
	return nil
}

// restore takes the int3 of a site out. The copy stays.
func (tg *target) restore(st *site) error {
	if !st.armed {
		return nil
	}
	var now [1]byte
	if _, err := tg.proc.ReadMemory(now[:], st.addr); err == nil && now[0] == breakpoint {
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
	tg.area.table.Retire(uint64(st.addr))
	tg.area.journal.remove(st.entry)
	st.entry = -1
}

// discard takes a site out and forgets it. Its slot is given back only by
// those who know that no thread is in it.
func (tg *target) discard(st *site) {
	if err := tg.restore(st); err != nil {
		tg.s.warnf("%v", err)
	}
	if tg.sites[st.addr] == st {
		delete(tg.sites, st.addr)
	}
}

func hang(st *site, w want) {
	switch w.kind {
	case wantEntry:
		st.probes = append(st.probes, w.p)
	case wantReturn:
		st.returns = append(st.returns, w.p)
	case wantExit, wantLeave:
		st.exits = append(st.exits, w.p)
		if w.conditional {
			st.jcc = w.inst.Opcode | 0x80 // never 0
		}
	case wantHook:
		st.hooks = append(st.hooks, w.hook)
	case wantLanding:
		st.lands = true
	case wantRedirect:
		st.redirect = w.to
	}
}

// unhang is the inverse of hang for a batch that failed.
func (tg *target) unhang(w want) {
	st := tg.sites[w.at.Addr]
	if st == nil {
		return
	}
	drop := func(list []*placed) []*placed {
		out := list[:0]
		for _, p := range list {
			if p != w.p {
				out = append(out, p)
			}
		}
		return out
	}
	st.probes, st.returns, st.exits = drop(st.probes), drop(st.returns), drop(st.exits)
}
