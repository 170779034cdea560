package probe

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
// A program that runs loads libraries (dlopen) and unloads them (dlclose). Its
// loader tells debuggers: it calls a function that does nothing, r_brk of
// System V's r_debug, whenever its list of libraries begins to change and when
// it is whole again (<link.h>; glibc and musl), in whatever namespace of
// dlmopen(3). kprobe has a breakpoint there while something may depend on it: a
// definition that waits for its library, or a probe in a library. It costs the
// program nothing else. When the list is whole
//
//   - probes whose library is gone are [GONE]: their text went with it, nothing
//     is written, and their definitions wait again;
//   - definitions that wait are armed if their library is there. No constructor
//     of it has run, but with glibc the functions that choose an IFUNC's
//     implementation may have;
//   - definitions of a library of which another copy has come are armed in that,
//     too.
//
// What is mapped without the loader (by a static program, or with mmap) is looked
// for once a second, while a definition waits.

// libraries is the watch on a running target's loader.
type libraries struct {
	loader.Loader
	hook *hook // where it tells
}

// word reads eight bytes of the target.
func (tg *target) word(a symbols.Addr) (uint64, error) {
	var b [8]byte
	if _, err := tg.proc.ReadMemory(b[:], a); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// watchLibraries watches the loader if something depends on it, else no longer.
func (tg *target) watchLibraries(ctx context.Context) {
	defer tg.showWaiting()
	switch needed := !tg.loads() && tg.isMain() && tg.dependsOnLoader(); {
	case needed && tg.libs == nil:
		if err := tg.hookLoader(ctx); err != nil {
			tg.s.logf("process %d: what is loaded later is seen within a second only: %v", tg.proc.PID(), err)
			// Without a breakpoint there is no memory file yet, by which others see
			// what waits.
			if err := tg.ensureArea(ctx, tg.mayCome()); err != nil {
				tg.s.logf("process %d: what waits is not listed: %v", tg.proc.PID(), err)
			}
		}
	case !needed && tg.libs != nil:
		tg.unhook(tg.libs.hook)
		tg.libs = nil
	}
}

func (tg *target) hookLoader(ctx context.Context) error {
	l, err := loader.Running(tg.space, tg.proc)
	if err != nil {
		return err
	}
	libs := &libraries{Loader: l}
	if libs.hook, err = tg.hookAt(ctx, l.At, func(*tracee.Thread) { tg.atList(libs) }); err != nil {
		return err
	}
	tg.libs = libs
	return nil
}

// dependsOnLoader reports whether a definition waits, or a probe is in a library:
// it may be unloaded, or be loaded once more (dlmopen, or from another folder). Who is
// about to leave the probes alone can't watch.
func (tg *target) dependsOnLoader() bool {
	if tg.s.opts.Detach || tg.unattended.letGo {
		return false
	}
	if len(tg.pending) > 0 {
		return true
	}
	for p := range tg.placed {
		if m := p.where.Module; m != nil && !m.Main && m.Name != "[vdso]" {
			return true
		}
	}
	return false
}

// atList runs when the loader says that its list begins to change or has
// changed.
func (tg *target) atList(libs *libraries) {
	if libs.Whole(tg.proc) {
		tg.lookAround(tg.s.run)
	}
}

// lookAround looks what has been mapped and unmapped.
func (tg *target) lookAround(ctx context.Context) {
	before := tg.space.Modules()
	if err := tg.refresh(); err != nil {
		tg.s.logf("what process %d has loaded is not known: %v", tg.proc.PID(), err)
		return
	}
	if !slices.Equal(before, tg.space.Modules()) {
		tg.modulesMoved(ctx, before)
	}
}

// modulesMoved takes note of files that were mapped and unmapped. before are the modules
// that there were; nil: it isn't known which of them are still there.
func (tg *target) modulesMoved(ctx context.Context, before []*symbols.Module) {
	tg.text++
	tg.forgetBirths(ctx)
	tg.markGone(before)
	tg.forgetSemaphores(before)
	tg.expectCopies(before)
	tg.showWaiting()
	if err := tg.tryPending(ctx); err != nil {
		tg.s.logf("what waits in process %d: %v", tg.proc.PID(), err)
	}
}

// peek does, for definitions that wait, what the loader's breakpoint does: for
// programs without a loader, and files that are mapped by others than the loader.
func (tg *target) peek(ctx context.Context) {
	if tg.loads() || !tg.isMain() || len(tg.pending) == 0 || tg.libs != nil && !tg.libs.Whole(tg.proc) {
		return
	}
	tg.lookAround(ctx)
}

// markGone takes note of probes whose library was unloaded. Their text is not
// there any more: nothing is written, and no thread can be in it. before are
// the modules that there were.
func (tg *target) markGone(before []*symbols.Module) {
	was := map[*symbols.Module]bool{}
	for _, m := range before {
		was[m] = true
	}
	vanished := func(a symbols.Addr, b []byte) bool {
		m := tg.space.ModuleAt(a)
		return m == nil || !was[m] && !tg.holds(a, b)
	}
	gone := map[*placed]bool{}
	out := &retired{}
	for _, q := range tg.patches.list {
		w := q.plan.Writes
		if !q.armed || len(w) == 0 || !vanished(symbols.Addr(w[len(w)-1].At), w[len(w)-1].Bytes) {
			continue
		}
		for x := q; x != nil; x = x.island {
			tg.retirePatch(x)
		}
		for _, p := range q.probes() {
			gone[p] = true
		}
		out.patches = append(out.patches, q)
	}
	for _, st := range tg.sites {
		if !st.armed || !vanished(st.addr, []byte{breakpoint}) {
			continue
		}
		tg.disarmed(st)
		delete(tg.sites, st.addr)
		for _, list := range [][]*placed{st.probes, st.returns, st.exits} {
			for _, p := range list {
				gone[p] = true
			}
		}
		out.sites = append(out.sites, st)
	}
	if len(out.patches)+len(out.sites) > 0 {
		tg.retired = append(tg.retired, out)
	}
	tg.watchesGone(gone)
	for resolver, impl := range tg.chosen {
		if tg.space.ModuleAt(resolver) == nil || tg.space.ModuleAt(impl) == nil {
			delete(tg.chosen, resolver)
		}
	}
	for ra := range tg.unpatchable {
		if tg.space.ModuleAt(ra) == nil {
			delete(tg.unpatchable, ra)
		}
	}
	waits := tg.waiting()
	defs := map[defKey]*defOf{}
	if len(gone) > 0 {
		for _, x := range tg.s.definitions() {
			defs[x.key()] = x
		}
	}
	for p := range gone {
		delete(tg.placed, p)
		tg.gone[p] = true
		p.ev.places.Add(-1)
		p.feed.setFlags(p, ring.FlagGone, ring.FlagOptimized)
		p.optimized = false
		if x := defs[p.key()]; x != nil && !waits[x.key()] {
			waits[x.key()] = true
			tg.pending = append(tg.pending, &pendingDef{defOf: x, err: symbols.ErrNotMapped})
		}
		tg.s.logf("%s/%s: %s is unloaded from process %d", p.ev.Group, p.ev.Name, p.where.Module.Name, tg.proc.PID())
	}
}
