package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// A new image, from exec to its first own instruction
//
// At the exec event only the program and its loader are mapped. A definition
// waits (pending) until its file is: kprobe stops the loader where it tells
// debuggers that the list of libraries is consistent (_dl_debug_state, the
// r_brk of System V's r_debug), before any library's constructor runs, and
// again at the program's entry point. What can't be armed there is an error:
// the program has not executed an instruction of its own.
//
// An IFUNC's implementation is chosen by its resolver, later than that. Then a
// breakpoint on the resolver tells when, and its return tells what.

// pendingDef is a definition that waits for its file.
type pendingDef struct {
	*defOf
	err  error // why it could not be armed when it was last tried
	said bool  // the user was told
	// more says that it is armed, and has places yet to come, in another copy of
	// its library.
	more bool
	// constructor is where it waits for the library's thread-local blocks.
	constructor symbols.Addr
}

// loading is the state of a target whose image is new.
type loading struct {
	state     symbols.Addr // of r_debug.r_state, 0: unknown
	entered   bool         // the program runs; nothing waits any more
	watching  bool         // the breakpoints below are planted
	replaced  bool         // the process ran another program before
	stops     []*hook      // at the loader and at the entry
	resolvers map[symbols.Addr]bool
}

// auxv reads what the kernel told the program at exec: AT_ENTRY and AT_BASE.
func auxv(pid int) (entry, base symbols.Addr, err error) {
	b, err := os.ReadFile(procfs.Image(pid).Path("auxv"))
	if err != nil {
		return 0, 0, err
	}
	const atBase, atEntry = 7, 9
	for ; len(b) >= 16; b = b[16:] {
		v := symbols.Addr(binary.LittleEndian.Uint64(b[8:]))
		switch binary.LittleEndian.Uint64(b) {
		case atBase:
			base = v
		case atEntry:
			entry = v
		}
	}
	return entry, base, nil
}

// armDefs arms definitions in the target, or has them wait for its loader: all
// or none.
func (tg *target) armDefs(ctx context.Context, defs []*defOf) error {
	if tg.loads() {
		for _, d := range defs {
			tg.pending = append(tg.pending, &pendingDef{defOf: d})
		}
		return tg.watchLoader(ctx)
	}
	ws, wait, err := tg.resolveAll(ctx, defs)
	if err != nil {
		return err
	}
	if tg.s.recordsStacks() {
		tg.space.Warm()
	}
	return tg.armFound(ctx, defs, ws, wait)
}

// elsewhere is how often places are looked for again that were there no longer
// when they were to be read or written.
const elsewhere = 10

// armFound arms the places that were found for definitions. Where the process has
// unloaded a library meanwhile they are looked for once more: they may have to
// wait for it.
func (tg *target) armFound(ctx context.Context, defs []*defOf, ws []patchRequest, wait []*pendingDef) error {
	for again := 0; ; again++ {
		err := tg.armResolved(ctx, ws, wait)
		if err == nil {
			return nil
		}
		if again == elsewhere || !tg.moved(ctx, err) {
			return &DefError{Def: defs[0].def, Err: err}
		}
		if ws, wait, err = tg.resolveAll(ctx, defs); err != nil {
			return err
		}
	}
}

// moved reports whether an error may come of a file that the process has unmapped
// since its places were looked for, and maybe mapped again at the same addresses.
// A program that was executed meanwhile is another matter.
func (tg *target) moved(ctx context.Context, err error) bool {
	moved := errors.Is(err, unix.EIO) || errors.Is(err, unix.EFAULT)
	if !moved {
		before := tg.space.Modules()
		moved = tg.refresh() == nil && !slices.Equal(before, tg.space.Modules())
	}
	return moved && !tg.proc.Executed(ctx)
}

// armResolved arms places, and has the definitions wait that have none yet.
func (tg *target) armResolved(ctx context.Context, ws []patchRequest, wait []*pendingDef) error {
	if err := tg.arm(ctx, ws); err != nil {
		return err
	}
	for _, p := range wait {
		tg.pending = append(tg.pending, p)
		tg.s.logf("%s/%s waits until process %d loads %s", p.ev.Group, p.ev.Name, tg.proc.PID(), p.def.Place.Module)
	}
	tg.watchLibraries(ctx)
	if len(wait) > 0 && tg.libs != nil {
		tg.atList(tg.libs) // it may have come meanwhile
	}
	return nil
}

// loads reports whether the target's image is new and its files are still
// being mapped.
func (tg *target) loads() bool { return tg.load != nil && !tg.load.entered }

// resolveAll finds and proves the places of definitions, and tells which have to
// wait for their library. One that goes while its code is read is looked for once
// more.
func (tg *target) resolveAll(ctx context.Context, defs []*defOf) (all []patchRequest, wait []*pendingDef, err error) {
	for again := 0; ; again++ {
		all, wait, err = tg.resolveEach(ctx, defs)
		if err == nil || again == elsewhere || !tg.moved(ctx, err) {
			return all, wait, err
		}
	}
}

func (tg *target) resolveEach(ctx context.Context, defs []*defOf) (all []patchRequest, wait []*pendingDef, err error) {
	if err := tg.refresh(); err != nil {
		return nil, nil, err
	}
	was := tg.s.answers.haste
	tg.s.answers.haste = ctx
	defer func() { tg.s.answers.haste = was }()
	for _, d := range defs {
		ws, err := tg.resolveNow(ctx, d)
		if err != nil && tg.mayWait(d, err) {
			wait = append(wait, &pendingDef{defOf: d, err: err})
			continue
		}
		if err != nil {
			return nil, nil, &DefError{Def: d.def, Err: err}
		}
		all = append(all, ws...)
	}
	return all, wait, nil
}

// mayWait reports whether a definition that has no place yet may wait for its
// library.
func (tg *target) mayWait(d *defOf, err error) bool {
	return errors.Is(err, symbols.ErrNotMapped) && d.def.Place.Module != "" &&
		(d.waits || tg.s.opts.Pending != nil && tg.s.opts.Pending(d.def))
}

// resolveNow resolves a definition, asking the resolvers of IFUNCs that the
// process has not used yet.
func (tg *target) resolveNow(ctx context.Context, d *defOf) ([]patchRequest, error) {
	for range 1024 {
		ws, err := tg.resolve(d.def, d.ev)
		var unbound *symbols.UnboundIFuncError
		if !errors.As(err, &unbound) {
			return ws, err
		}
		impl, cerr := tg.proc.Call(ctx, nil, unbound.Resolver)
		if cerr != nil {
			return nil, fmt.Errorf("%w (its resolver could not be asked: %v)", err, cerr)
		}
		tg.chosen[unbound.Resolver] = symbols.Addr(impl)
	}
	return nil, errors.New("too many functions whose implementation is not chosen yet")
}

// watchLoader plants kprobe's own breakpoints in a new image.
func (tg *target) watchLoader(ctx context.Context) error {
	if tg.load.watching {
		return nil
	}
	tg.load.watching = true
	entry, base, err := auxv(tg.proc.PID())
	if err != nil {
		return err
	}
	h, err := tg.hookAt(ctx, entry, func(*tracee.Thread) { tg.atEntry() })
	if err != nil {
		return fmt.Errorf("wait for the program's first instruction: %w", err)
	}
	tg.load.stops = append(tg.load.stops, h)
	if base == 0 {
		// A static program: all that it has is mapped.
		return tg.tryPending(ctx)
	}
	ld := tg.space.ModuleAt(base)
	if ld == nil || ld.File == nil {
		return nil
	}
	if syms := ld.File.Lookup("_r_debug"); len(syms) > 0 {
		tg.load.state = ld.Addr(syms[0].Vaddr) + debugState
	}
	if syms := ld.File.Lookup("_dl_debug_state"); len(syms) > 0 {
		at := ld.Addr(syms[0].Vaddr)
		if h, err := tg.hookAt(ctx, at, func(*tracee.Thread) { tg.atLoader() }); err != nil {
			tg.s.logf("the loader can't be watched: %v", err)
		} else {
			tg.load.stops = append(tg.load.stops, h)
		}
	}
	return nil
}

// hookAt plants a breakpoint of kprobe's own.
func (tg *target) hookAt(ctx context.Context, at symbols.Addr, run func(*tracee.Thread)) (*hook, error) {
	places, err := tg.space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(at)})
	if err != nil {
		return nil, err
	}
	w := places[0]
	code, inst, err := tg.proveStart(w)
	if err != nil {
		return nil, err
	}
	h := &hook{at, run}
	return h, tg.armOwn(ctx, own{probed: probed{w, code, inst}, hook: h})
}

// atLoader runs when the loader says that its list has changed.
func (tg *target) atLoader() {
	if tg.load == nil || tg.load.entered {
		return
	}
	if tg.load.state != 0 && !tg.listWhole(tg.load.state) {
		return
	}
	if err := tg.tryPending(tg.s.run); err != nil {
		tg.s.logf("at the loader: %v", err)
	}
}

// atEntry runs when the program is about to execute its first instruction.
func (tg *target) atEntry() {
	if tg.load == nil || tg.load.entered {
		return
	}
	err := tg.tryPending(tg.s.run)
	tg.load.entered = true
	tg.unhookLoader()
	pending := tg.pending
	tg.pending = nil
	for _, p := range pending {
		var unbound *symbols.UnboundIFuncError
		if errors.As(p.err, &unbound) && tg.load.resolvers[unbound.Resolver] {
			// A static program calls its resolvers now, one that binds lazily with the
			// first call.
			tg.pending = append(tg.pending, p)
			tg.s.logf("%s/%s waits until process %d chooses its implementation", p.ev.Group, p.ev.Name, tg.proc.PID())
			continue
		}
		if tg.mayWait(p.defOf, p.err) {
			tg.pending = append(tg.pending, p)
			tg.s.logf("%s/%s waits until process %d loads %s", p.ev.Group, p.ev.Name, tg.proc.PID(), p.def.Place.Module)
		} else if err == nil {
			err = &DefError{Def: p.def, Err: p.err}
		}
	}
	if err != nil && (tg.load.replaced || tg.proc.PID() != tg.s.started) {
		// What ran before may have done half of something: it isn't killed.
		tg.s.warnf("%v", err)
		err = nil
	}
	if err == nil {
		tg.watchLibraries(tg.s.run)
		if tg.s.opts.Armed != nil && !tg.load.replaced && tg.proc.PID() == tg.s.started {
			tg.s.opts.Armed()
		}
		return
	}
	tg.s.fatal = err
	tg.dying = true
	_ = unix.Kill(tg.proc.PID(), unix.SIGKILL)
	tg.s.stop()
}

// readyDef is a definition whose library has come, with its places.
type readyDef struct {
	*pendingDef
	ws []patchRequest
}

// stillWaits notes why a definition can't be armed. If its library is there,
// that it waits is no answer any more: the user is told, once.
func (tg *target) stillWaits(p *pendingDef, err error) {
	p.err = err
	var unbound *symbols.UnboundIFuncError
	if !tg.loads() && !p.said && p.def.Place.Module != "" && !errors.Is(err, symbols.ErrNotMapped) && !errors.As(err, &unbound) {
		p.said = true
		tg.s.warnf("%v", &DefError{Def: p.def, Err: err})
	}
}

// tryPending arms the waiting definitions whose files are mapped now.
func (tg *target) tryPending(ctx context.Context) error {
	if len(tg.pending) == 0 {
		return nil
	}
	if err := tg.space.Refresh(); err != nil {
		return err
	}
	rest := tg.pending[:0]
	armed, gone := placedByDef(tg.placed), placedByDef(tg.gone)
	var ready []readyDef
	var batch []patchRequest
	for _, p := range tg.pending {
		ws, err := tg.resolve(p.def, p.ev)
		var unbound *symbols.UnboundIFuncError
		if errors.As(err, &unbound) {
			if tg.load == nil {
				tg.load = &loading{entered: true}
			}
			if err = tg.watchResolver(ctx, unbound.Resolver); err == nil {
				err = unbound
			}
		}
		if err == nil {
			ws = unarmed(armed[p.key()], ws)
			ready = append(ready, readyDef{p, ws})
			batch = append(batch, ws...)
			continue
		}
		if tg.waitForBlock(ctx, p, err) {
			p.err = err
		} else {
			tg.stillWaits(p, err)
		}
		if !p.more || errors.As(err, &unbound) {
			rest = append(rest, p)
		}
	}
	// All at once: one change of the text, not one for each.
	together := tg.arm(ctx, batch)
	for _, r := range ready {
		p, ws, err := r.pendingDef, r.ws, together
		if err != nil {
			err = tg.arm(ctx, ws)
		}
		if err != nil {
			tg.stillWaits(p, err)
			if !p.more {
				rest = append(rest, p)
			}
			continue
		}
		tg.returned(ws, armed[p.key()], gone[p.key()])
		if !tg.loads() {
			tg.s.logf("%s/%s is armed: process %d has loaded its library", p.ev.Group, p.ev.Name, tg.proc.PID())
		}
	}
	tg.pending = rest
	tg.showWaiting()
	return nil
}

// watchResolver learns from an IFUNC's resolver, when the program calls it,
// what it chose, and arms what waits for it.
func (tg *target) watchResolver(ctx context.Context, resolver symbols.Addr) error {
	if tg.load.resolvers == nil {
		tg.load.resolvers = map[symbols.Addr]bool{}
	}
	if tg.load.resolvers[resolver] {
		return nil
	}
	tg.load.resolvers[resolver] = true
	var asked *hook
	asked, err := tg.hookAt(ctx, resolver, func(t *tracee.Thread) {
		regs, err := t.Regs()
		if err != nil {
			return
		}
		var b [8]byte
		if _, err := tg.proc.ReadMemory(b[:], symbols.Addr(regs.Rsp)); err != nil {
			return
		}
		sp := regs.Rsp + 8
		back := symbols.Addr(binary.LittleEndian.Uint64(b[:]))
		var answered *hook
		answered, err = tg.hookAt(tg.s.run, back, func(t *tracee.Thread) {
			regs, err := t.Regs()
			if err != nil || regs.Rsp != sp {
				return
			}
			tg.chosen[resolver] = symbols.Addr(regs.Rax)
			tg.unhook(asked)
			tg.unhook(answered)
			if err := tg.tryPending(tg.s.run); err != nil {
				tg.s.logf("after a resolver: %v", err)
			}
		})
		if err != nil {
			tg.s.logf("the resolver at %v can't be followed: %v", resolver, err)
		}
	})
	return err
}

// unhookLoader takes the breakpoints at the loader and at the entry out. Those at
// resolvers stay until they have answered.
func (tg *target) unhookLoader() {
	for _, h := range tg.load.stops {
		tg.unhook(h)
	}
	tg.load.stops = nil
}

// unhook takes a breakpoint of kprobe's own out.
func (tg *target) unhook(h *hook) {
	st := tg.sites[h.at]
	if st == nil || !slices.Contains(st.hooks, h) {
		return
	}
	st.hooks = remove(st.hooks, h)
	if st.idle() {
		tg.discard(st)
		tg.retired = append(tg.retired, &retired{sites: []*site{st}})
	}
}
