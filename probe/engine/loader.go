package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/probe/assess"
	"kprobe/probe/loader"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// A new image, from exec to its first own instruction
//
// At the exec event only the program and its loader are mapped. A definition waits (pending)
// until its file is mapped, too. kprobe stops the program twice. The first stop is where the loader
// tells debuggers that its list of libraries is consistent (_dl_debug_state, the r_brk of System V's
// r_debug), before any library's constructor runs. The second is the program's entry point. A
// definition that can't be armed there is an error: the program has not executed an instruction of
// its own yet.

// Loading is the state of a target with a new image.
type Loading struct {
	loader    loader.Loader
	entered   bool                  // the entry point was reached
	watching  bool                  // watchLoader was called
	Replaced  bool                  // the process ran another program before
	stops     []*hook               // breakpoints at the loader and at the entry point
	resolvers map[symbols.Addr]bool // IFUNC resolvers that have breakpoints
}

// loads reports whether the target's image is new and has not reached its entry point.
func (tg *Target) loads() bool { return tg.Load != nil && !tg.Load.entered }

// watchLoader arms kprobe's own breakpoints in a new image, at the loader and at the entry point.
func (tg *Target) watchLoader(ctx context.Context) error {
	if tg.Load.watching {
		return nil
	}
	tg.Load.watching = true
	start, err := loader.ReadStart(tg.Proc.PID())
	if err != nil {
		return err
	}
	h, err := tg.HookAt(ctx, start.Entry, func(*tracee.Thread) { tg.atEntry() })
	if err != nil {
		return fmt.Errorf("wait for the program's first instruction: %w", err)
	}
	tg.Load.stops = append(tg.Load.stops, h)
	if start.Base == 0 {
		// A static program is mapped completely.
		return tg.tryPending(ctx)
	}
	tg.Load.loader = loader.New(tg.Space.ModuleAt(start.Base))
	if at := tg.Load.loader.At; at != 0 {
		if h, err := tg.HookAt(ctx, at, func(*tracee.Thread) { tg.atLoader() }); err != nil {
			tg.Engine.Logf("the loader can't be watched: %v", err)
		} else {
			tg.Load.stops = append(tg.Load.stops, h)
		}
	}
	return nil
}

// HookAt arms a breakpoint of kprobe's own. run is called at each hit, with the thread stopped.
func (tg *Target) HookAt(ctx context.Context, at symbols.Addr, run func(*tracee.Thread)) (*hook, error) {
	places, err := tg.Space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(at)})
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

// atLoader runs when the loader calls r_brk, and arms waiting definitions if the list is consistent.
func (tg *Target) atLoader() {
	if tg.Load == nil || tg.Load.entered {
		return
	}
	if l := tg.Load.loader; l.State != 0 && !l.Whole(tg.Proc) {
		return
	}
	if err := tg.tryPending(tg.Engine.Run); err != nil {
		tg.Engine.Logf("at the loader: %v", err)
	}
}

// atEntry runs when the program is about to execute its first instruction.
func (tg *Target) atEntry() {
	if tg.Load == nil || tg.Load.entered {
		return
	}
	err := tg.tryPending(tg.Engine.Run)
	tg.Load.entered = true
	tg.unhookLoader()
	for _, p := range tg.awaited.take() {
		var unbound *symbols.UnboundIFuncError
		if errors.As(p.err, &unbound) && tg.Load.resolvers[unbound.Resolver] {
			// A static program calls its resolvers after this; a program that binds lazily does
			// at the function's first call.
			tg.awaited.add(p)
			tg.Engine.Logf("%s/%s waits until process %d chooses its implementation", p.Ev.Group, p.Ev.Name, tg.Proc.PID())
			continue
		}
		if tg.mayWait(p.Definition, p.err) {
			tg.awaited.add(p)
			tg.Engine.Logf("%s/%s waits until process %d loads %s", p.Ev.Group, p.Ev.Name, tg.Proc.PID(), p.Def.Place.Module)
			continue
		}
		tg.leaveOut(p.Def)
		if err == nil {
			err = &assess.DefError{Def: p.Def, Err: p.err}
		}
	}
	if err != nil && (tg.Load.Replaced || tg.Proc.PID() != tg.Engine.Started) {
		// The process isn't killed: the program that it ran before may depend on it.
		tg.Engine.Warnf("%v", err)
		err = nil
	}
	if err == nil {
		tg.watchLibraries(tg.Engine.Run)
		if tg.Engine.Opts.Armed != nil && !tg.Load.Replaced && tg.Proc.PID() == tg.Engine.Started {
			tg.Engine.Opts.Armed()
		}
		return
	}
	tg.Engine.Fatal = err
	tg.dying = true
	_ = unix.Kill(tg.Proc.PID(), unix.SIGKILL)
	tg.Engine.stop()
}

// unhookLoader removes the breakpoints at the loader and at the entry point. Those at resolvers stay
// until the resolvers have returned.
func (tg *Target) unhookLoader() {
	for _, h := range tg.Load.stops {
		tg.unhook(h)
	}
	tg.Load.stops = nil
}

// unhook removes a breakpoint of kprobe's own.
func (tg *Target) unhook(h *hook) {
	st := tg.Sites[h.at]
	if st == nil || !slices.Contains(st.hooks, h) {
		return
	}
	st.hooks = remove(st.hooks, h)
	if st.idle() {
		tg.discard(st)
		tg.Retired.add(&retired{sites: []*Site{st}})
	}
}
