package engine

import (
	"context"
	"encoding/binary"
	"slices"

	"kprobe/probe/loader"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Libraries that come and go
//
// A running program loads libraries (dlopen) and unloads them (dlclose). Its loader tells
// debuggers: it calls a function that does nothing, r_brk of System V's r_debug, whenever its
// list of libraries begins to change and when it is complete again (<link.h>; glibc and musl),
// in any namespace of dlmopen(3). kprobe has a breakpoint there while something may depend on
// it: a definition that waits for its library, or a probe in a library. It costs the program
// nothing else. When the list is complete,
//
//   - probes whose library is gone are [GONE]: their text went with it, nothing is written, and
//     their definitions wait again;
//   - definitions that wait are armed if their library is there. None of its constructors has
//     run, but with glibc the functions that choose an IFUNC's implementation may have;
//   - definitions of a library of which another copy has come are armed in that copy, too.
//
// What is mapped without the loader (by a static program, or with mmap) is looked for once a
// second, while a definition waits.

// libraries is the watch on a running target's loader.
type libraries struct {
	loader.Loader
	hook *hook // where it tells
}

// word reads eight bytes of the target.
func (tg *Target) word(a symbols.Addr) (uint64, error) {
	var b [8]byte
	if _, err := tg.Proc.ReadMemory(b[:], a); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// watchLibraries watches the loader if something depends on it, else no longer.
func (tg *Target) watchLibraries(ctx context.Context) {
	defer tg.showWaiting()
	switch needed := !tg.loads() && tg.IsMain() && tg.dependsOnLoader(); {
	case needed && tg.awaited.libs == nil:
		if err := tg.hookLoader(ctx); err != nil {
			tg.Engine.Logf("process %d: what is loaded later is seen within a second only: %v", tg.Proc.PID(), err)
			// Without a breakpoint there is no memory file yet, by which others see
			// what waits.
			if err := tg.ensureArea(ctx, tg.mayCome()); err != nil {
				tg.Engine.Logf("process %d: what waits is not listed: %v", tg.Proc.PID(), err)
			}
		}
	case !needed && tg.awaited.libs != nil:
		tg.unhook(tg.awaited.libs.hook)
		tg.awaited.libs = nil
	}
}

func (tg *Target) hookLoader(ctx context.Context) error {
	l, err := loader.Running(tg.Space, tg.Proc)
	if err != nil {
		return err
	}
	libs := &libraries{Loader: l}
	if libs.hook, err = tg.HookAt(ctx, l.At, func(*tracee.Thread) { tg.atList(libs) }); err != nil {
		return err
	}
	tg.awaited.libs = libs
	return nil
}

// dependsOnLoader reports whether a definition waits, or a probe is in a library:
// it may be unloaded, or be loaded once more (dlmopen, or from another folder). Who is
// about to leave the probes alone can't watch.
func (tg *Target) dependsOnLoader() bool {
	if tg.Engine.Opts.Detach || tg.unattended.letGo {
		return false
	}
	if len(tg.awaited.defs) > 0 {
		return true
	}
	for p := range tg.Placed {
		if m := p.Where.Module; m != nil && !m.Main && m.Name != "[vdso]" {
			return true
		}
	}
	return false
}

// WatchesLoader reports whether there is a breakpoint at the loader.
func (tg *Target) WatchesLoader() bool { return tg.awaited.libs != nil }

// Waits reports whether a library that comes may bring places.
func (tg *Target) Waits() bool { return tg.awaited.any() }

// atList runs when the loader says that its list begins to change or has
// changed.
func (tg *Target) atList(libs *libraries) {
	if libs.Whole(tg.Proc) {
		tg.lookAround(tg.Engine.Run)
	}
}

// lookAround looks what has been mapped and unmapped.
func (tg *Target) lookAround(ctx context.Context) {
	before := tg.Space.Modules()
	if err := tg.refresh(); err != nil {
		tg.Engine.Logf("what process %d has loaded is not known: %v", tg.Proc.PID(), err)
		return
	}
	if !slices.Equal(before, tg.Space.Modules()) {
		tg.modulesMoved(ctx, before)
	}
}

// modulesMoved takes note of files that were mapped and unmapped. before are the modules
// that there were; nil: it isn't known which of them are still there.
func (tg *Target) modulesMoved(ctx context.Context, before []*symbols.Module) {
	tg.text++
	tg.forgetBirths(ctx)
	tg.markGone(before)
	tg.forgetSemaphores(before)
	tg.expectCopies(before)
	tg.showWaiting()
	if err := tg.tryPending(ctx); err != nil {
		tg.Engine.Logf("what waits in process %d: %v", tg.Proc.PID(), err)
	}
}

// peek does, for definitions that wait, what the loader's breakpoint does: for
// programs without a loader, and files that are mapped by others than the loader. Of a
// process that is let go of seeLibraries does it.
func (tg *Target) peek(ctx context.Context) {
	if tg.loads() || !tg.IsMain() || len(tg.awaited.defs) == 0 || tg.unattended.letGo || tg.awaited.libs != nil && !tg.awaited.libs.Whole(tg.Proc) {
		return
	}
	tg.lookAround(ctx)
}

// markGone takes note of probes whose library was unloaded. Their text is not
// there any more: nothing is written, and no thread can be in it. before are
// the modules that there were.
func (tg *Target) markGone(before []*symbols.Module) {
	was := map[*symbols.Module]bool{}
	for _, m := range before {
		was[m] = true
	}
	vanished := func(a symbols.Addr, b []byte) bool {
		m := tg.Space.ModuleAt(a)
		return m == nil || !was[m] && !tg.Holds(a, b)
	}
	gone := map[*Placed]bool{}
	out := &retired{}
	for _, q := range tg.Patches.List {
		w := q.Plan.Writes
		if !q.Armed || len(w) == 0 || !vanished(symbols.Addr(w[len(w)-1].At), w[len(w)-1].Bytes) {
			continue
		}
		for x := q; x != nil; x = x.island {
			tg.retirePatch(x)
		}
		for _, p := range q.Probes() {
			gone[p] = true
		}
		out.patches = append(out.patches, q)
	}
	for _, st := range tg.Sites {
		if !st.Armed || !vanished(st.Addr, []byte{breakpoint}) {
			continue
		}
		tg.disarmed(st)
		delete(tg.Sites, st.Addr)
		for _, list := range [][]*Placed{st.probes, st.returns, st.exits} {
			for _, p := range list {
				gone[p] = true
			}
		}
		out.sites = append(out.sites, st)
	}
	tg.Retired.add(out)
	tg.watchesGone(gone)
	for resolver, impl := range tg.chosen {
		if tg.Space.ModuleAt(resolver) == nil || tg.Space.ModuleAt(impl) == nil {
			delete(tg.chosen, resolver)
		}
	}
	for ra := range tg.unpatchable {
		if tg.Space.ModuleAt(ra) == nil {
			delete(tg.unpatchable, ra)
		}
	}
	waits := tg.awaited.keys()
	defs := map[defKey]*Definition{}
	if len(gone) > 0 {
		for _, x := range tg.Engine.Events.Definitions() {
			defs[x.key()] = x
		}
	}
	for p := range gone {
		delete(tg.Placed, p)
		tg.awaited.lost(p)
		p.Ev.places.Add(-1)
		p.feed.setFlags(p, ring.FlagGone, ring.FlagOptimized)
		p.Optimized = false
		if x := defs[p.key()]; x != nil && !waits[x.key()] {
			waits[x.key()] = true
			tg.awaited.add(&pendingDef{Definition: x, err: symbols.ErrNotMapped})
		}
		tg.Engine.Logf("%s/%s: %s is unloaded from process %d", p.Ev.Group, p.Ev.Name, p.Where.Module.Name, tg.Proc.PID())
	}
}
