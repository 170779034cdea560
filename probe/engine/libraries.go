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
// A running program loads libraries (dlopen) and unloads them (dlclose). Its dynamic loader notifies
// debuggers. It calls an empty function, r_brk of System V's r_debug, when its list of libraries
// begins to change and when the list is complete again (<link.h>; glibc and musl). It does so for
// all namespaces of dlmopen(3). kprobe has a breakpoint on that function while a definition waits for
// its library or a probe is in a library. When the list is complete:
//
//   - Probes whose library was unloaded are [GONE]. Their text is gone, too, so nothing is written.
//     Their definitions wait again.
//   - Waiting definitions are armed if their library is mapped. None of its constructors has run
//     yet; with glibc, the resolvers of its IFUNCs may have.
//   - If another copy of a library was loaded, the library's definitions are armed in that copy, too.
//
// Files that are mapped without the loader (by a static program, or by mmap) are looked for once a
// second while a definition waits.

// libraries is the watch on a running target's loader.
type libraries struct {
	loader.Loader
	hook *hook // the breakpoint on Loader.At
}

// word reads a word of eight bytes from the target.
func (tg *Target) word(a symbols.Addr) (uint64, error) {
	var b [8]byte
	if _, err := tg.Proc.ReadMemory(b[:], a); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// watchLibraries writes the breakpoint on the loader if something depends on it, and else removes it.
func (tg *Target) watchLibraries(ctx context.Context) {
	defer tg.showWaiting()
	switch needed := !tg.loads() && tg.IsMain() && tg.dependsOnLoader(); {
	case needed && tg.awaited.libs == nil:
		if err := tg.hookLoader(ctx); err != nil {
			tg.Engine.Logf("process %d: libraries that are loaded later are noticed only within a second: %v", tg.Proc.PID(), err)
			// Without a breakpoint there may be no memory file yet. Other kprobes list waiting
			// definitions from it.
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

// dependsOnLoader reports whether the loader must be watched: a definition waits, or a probe is in a
// library, which may be unloaded or loaded once more (dlmopen, or from another folder). It is false
// if the probes are going to be left alone or the process is let go of.
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

// Waits reports whether a library that is loaded may bring places.
func (tg *Target) Waits() bool { return tg.awaited.any() }

// atList runs when the loader calls r_brk: its list begins to change, or is complete.
func (tg *Target) atList(libs *libraries) {
	if libs.Whole(tg.Proc) {
		tg.lookAround(tg.Engine.Run)
	}
}

// lookAround reads the mappings, and reacts to modules that were mapped or unmapped.
func (tg *Target) lookAround(ctx context.Context) {
	before := tg.Space.Modules()
	if err := tg.refresh(); err != nil {
		tg.Engine.Logf("it is not known what process %d has loaded: %v", tg.Proc.PID(), err)
		return
	}
	if !slices.Equal(before, tg.Space.Modules()) {
		tg.modulesMoved(ctx, before)
	}
}

// modulesMoved reacts to files that were mapped or unmapped. before are the modules before that; nil:
// it isn't known which of them remain.
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

// peek does what the loader's breakpoint does while definitions wait. It is for programs without a
// loader, and for files that the loader doesn't map. For a process that is let go of, seeLibraries
// does this.
func (tg *Target) peek(ctx context.Context) {
	if tg.loads() || !tg.IsMain() || len(tg.awaited.defs) == 0 || tg.unattended.letGo || tg.awaited.libs != nil && !tg.awaited.libs.Whole(tg.Proc) {
		return
	}
	tg.lookAround(ctx)
}

// markGone retires the probes whose library was unloaded. Their text is gone, so nothing is written
// and no thread can be in it. before are the modules before the change.
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
		w, ok := q.Plan.LastWrite()
		if !q.Armed || !ok || !vanished(symbols.Addr(w.At), w.Bytes) {
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
		tg.disarm(p)
		if p.Rarely().Landing != nil {
			tg.landingUnloaded(p)
			continue
		}
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
