package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/probe/loader"
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

// loading is the state of a target whose image is new.
type loading struct {
	loader    loader.Loader
	entered   bool    // the program runs; nothing waits any more
	watching  bool    // the breakpoints below are planted
	replaced  bool    // the process ran another program before
	stops     []*hook // at the loader and at the entry
	resolvers map[symbols.Addr]bool
}

// loads reports whether the target's image is new and its files are still
// being mapped.
func (tg *target) loads() bool { return tg.load != nil && !tg.load.entered }

// watchLoader plants kprobe's own breakpoints in a new image.
func (tg *target) watchLoader(ctx context.Context) error {
	if tg.load.watching {
		return nil
	}
	tg.load.watching = true
	start, err := loader.ReadStart(tg.proc.PID())
	if err != nil {
		return err
	}
	h, err := tg.hookAt(ctx, start.Entry, func(*tracee.Thread) { tg.atEntry() })
	if err != nil {
		return fmt.Errorf("wait for the program's first instruction: %w", err)
	}
	tg.load.stops = append(tg.load.stops, h)
	if start.Base == 0 {
		// A static program: all that it has is mapped.
		return tg.tryPending(ctx)
	}
	tg.load.loader = loader.New(tg.space.ModuleAt(start.Base))
	if at := tg.load.loader.At; at != 0 {
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
	found, err := tg.proveStart(places[0])
	if err != nil {
		return nil, err
	}
	h := &hook{at, run}
	return h, tg.armOwn(ctx, own{Place: found, hook: h})
}

// atLoader runs when the loader says that its list has changed.
func (tg *target) atLoader() {
	if tg.load == nil || tg.load.entered {
		return
	}
	if l := tg.load.loader; l.State != 0 && !l.Whole(tg.proc) {
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
