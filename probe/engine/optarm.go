package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/probe/ring"
	"kprobe/probe/survey"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// ownProc reports whether the process has kprobe's root directory and a /proc file system in it.
func ownProc(pid int) bool {
	root := procfs.Image(pid).Path("root")
	var fs unix.Statfs_t
	if unix.Statfs(root+"/proc", &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	at, err := os.Readlink(root)
	return err == nil && at == "/"
}

// readBefore returns the bytes that a jump replaces, one write after another, without those of
// displaced instructions and of its island. They are the file's, and equal to the memory's. The error
// says if a page is shared or memory and file differ.
func (tg *Target) readBefore(p *plan.Packed) (outside []byte, err error) {
	if err := tg.covered(p); err != nil {
		return nil, fmt.Errorf("%v: %w", symbols.Addr(p.At), err)
	}
	for _, w := range p.Writes() {
		m := tg.Space.ModuleAt(symbols.Addr(w.At))
		if m == nil || m.File == nil {
			return nil, errNoFile
		}
		if survey.Shared(m, symbols.Addr(w.At), len(w.Bytes)) {
			return nil, fmt.Errorf("%v: %s", symbols.Addr(w.At), survey.SharedRule)
		}
		if p.Displaces(w.Write) {
			continue // covered has compared it
		}
		b, err := m.File.Text(m.Vaddr(symbols.Addr(w.At)), len(w.Bytes))
		if err != nil {
			return nil, err
		}
		if err := tg.pristine(symbols.Addr(w.At), b); err != nil {
			return nil, fmt.Errorf("%v: %w", symbols.Addr(w.At), err)
		}
		outside = append(outside, b...)
	}
	return outside, nil
}

// Enter makes the journal entries for everything that a patch and its island will write.
func (tg *Target) Enter(p *Patch) error {
	if p.island != nil {
		if err := tg.Enter(p.island); err != nil {
			return err
		}
	}
	for _, w := range p.Plan.Writes() {
		n, err := tg.Area.Journal.Change(w.Write, w.Old, p.Plan.Detour, uint16(p.Plan.Tactic), p.Plan.Own())
		if err != nil {
			return err
		}
		p.enter(n)
	}
	return nil
}

// ArmStopped writes patches that have journal entries. All threads must be stopped. On an error the
// patches are removed again.
func (tg *Target) ArmStopped(list []*Patch, stopped []*tracee.Thread) error {
	err := tg.moveUnder(list, stopped)
	if err == nil {
		err = tg.writePatches(list)
	}
	if err != nil {
		return errors.Join(err, tg.RestorePatches(list, stopped))
	}
	for _, p := range list {
		p.arm()
	}
	return nil
}

// moveUnder moves threads that stand under jumps that are about to be written. They continue at the
// copies of the instructions that they were at. A thread that has just met a breakpoint that gives
// way stands behind the int3, and is not moved: handling its trap moves it back to the breakpoint.
// A thread that was single-stepped to the same address is moved.
func (tg *Target) moveUnder(list []*Patch, stopped []*tracee.Thread) error {
	type covered struct {
		plan.Range
		p *Patch
	}
	var all []covered
	for _, p := range list {
		for q := p; q != nil; q = q.island {
			all = append(all, covered{plan.Range{Lo: q.Plan.At, Hi: q.Plan.End()}, q})
		}
	}
	slices.SortFunc(all, func(a, b covered) int { return cmp.Compare(a.Lo, b.Lo) })
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			continue // gone
		}
		if t.AtTrap() {
			continue
		}
		pc := symbols.Addr(regs.Rip)
		i := sort.Search(len(all), func(i int) bool { return all[i].Hi > regs.Rip })
		for _, c := range all[i:] {
			if regs.Rip < c.Lo || regs.Rip == c.Lo && !c.p.Plan.GuardsStart() {
				break
			}
			if to, ok := c.p.Entry(pc); ok {
				regs.Rip = uint64(to)
				if err := t.SetRegs(regs); err != nil && !errors.Is(err, tracee.ErrGone) {
					return err
				}
				break
			}
		}
	}
	return nil
}

// arm notes in the session that a patch is in the text.
func (p *Patch) arm() {
	if p.island != nil {
		p.island.arm()
	}
	p.Armed = true
	for _, w := range p.Wants {
		if (w.Kind != planner.Exit || w.Alone || w.Notes) && !(w.Kind == planner.LoneExit && PlacedOf(w).leavesByTrap()) {
			PlacedOf(w).feed.setTactic(PlacedOf(w), p.Plan.Tactic)
		}
	}
	for _, x := range p.Probes() {
		if !x.leavesByTrap() {
			x.feed.setFlags(x, ring.FlagOptimized, 0)
			x.Optimized = true
		}
	}
}

// retirePatch notes in the session and the journal that a patch is no longer in the text.
func (tg *Target) retirePatch(p *Patch) {
	tg.forgetEntries(p)
	for _, x := range p.Probes() {
		x.feed.setFlags(x, 0, ring.FlagOptimized)
		x.Optimized = false
	}
}

// forgetEntries removes a patch that is no longer in the text from the journal, and its guards from the
// fallback handler's table.
func (tg *Target) forgetEntries(p *Patch) {
	for n := range p.entries {
		tg.Area.Journal.Remove(n)
	}
	p.entered, p.others = false, nil
	p.Armed = false
	tg.retireGuards(p)
}

// Unoptimize replaces a jump by breakpoints for its probes. It is one stop of all threads, so no hit
// is missed.
//
// All jumps of a Go function's return probe are replaced together, because breakpoints at exits know
// only calls that a breakpoint at the entry has noted.
func (tg *Target) Unoptimize(ctx context.Context, p *Patch) error {
	tg = tg.main
	list, goes := tg.withGo(p)
	b := &batch{out: newOutgoing(), Plan: &planner.Plan{Courses: map[*planner.Probe]*planner.Course{}, Text: tg.text}}
	for _, p := range list {
		b.out.addPatch(p)
		for _, w := range p.Wants {
			found, err := tg.prove(w.Site)
			if err != nil {
				return err
			}
			w.Place = &found
			c := b.Courses[w.P]
			if c == nil {
				now := w.P.Course
				c = &now
				b.Courses[w.P] = c
			}
			if w.Kind != planner.Exit {
				c.Tactic = plan.Breakpoint
			} else if !w.P.GoABI {
				w.Redirect(p.leavesAt(w.Site.Addr))
			}
			b.Traps = append(b.Traps, w)
		}
	}
	for _, x := range goes {
		b.Courses[&x.Probe].GiveUpExits(true)
	}
	for _, c := range b.Courses {
		c.Why = "another probe is under where its jump would be"
	}
	built, err := tg.build(ctx, b)
	if err != nil {
		return err
	}
	return tg.commit(ctx, built)
}

// overlay replaces kprobe's changes by the original bytes in b, which was read from address a.
func (tg *Target) overlay(b []byte, a symbols.Addr) {
	put := func(at uint64, orig []byte) {
		for i, c := range orig {
			if k := int64(at) + int64(i) - int64(a); k >= 0 && k < int64(len(b)) {
				b[k] = c
			}
		}
	}
	for _, p := range tg.Patches.pages.Near(uint64(a), uint64(a)+uint64(len(b))) {
		for q := p; q != nil; q = q.island {
			for w := range q.written {
				put(w.At, w.Old)
			}
		}
	}
	for i := range b {
		if b[i] == breakpoint {
			if st := tg.Sites[a+symbols.Addr(i)]; st != nil && st.Armed {
				b[i] = st.code[0]
			}
		}
	}
}

// inDetour decides about a signal of a thread that is in a detour, at a guard, or in shared code.
// done is false if the thread is in none of them. A fault of kprobe's code is resolved, and the
// thread continues without the signal. A fault of a displaced instruction is delivered, at the
// original instruction. Before any other signal the thread is led out; if that takes steps, the signal is held.
func (tg *Target) inDetour(t *tracee.Thread, si *tracee.Siginfo) (v tracee.Verdict, done bool) {
	regs, err := t.Regs()
	if err != nil {
		return tracee.Deliver, false
	}
	pc := symbols.Addr(regs.Rip)
	if to, ok := tg.Patches.Guards[pc]; ok && si.Synchronous() {
		regs.Rip = uint64(to)
		return tg.resumed(t, regs), true
	}
	if to, ok := tg.Patches.faults[pc]; ok && si.Synchronous() && !misaligned(si) {
		regs.Rip = uint64(to)
		tg.faulted(t, si)
		return tg.resumed(t, regs), true
	}
	if caused(si) {
		if v, done := tg.answered(t, si, regs); done {
			return v, true
		}
		if v, done := tg.rolledBack(t, si, regs); done {
			return v, true
		}
	}
	st := tg.Patches.StageAt(pc)
	if !si.Synchronous() {
		if st.None() && !tg.InShared(pc) && tg.Patches.LongJump(pc) == nil {
			return tracee.Deliver, false
		}
		return tg.leadOut(t, regs), true
	}
	if st.None() {
		return tracee.Deliver, false
	}
	out, state, ok := st.InCopy(regs, tg.Proc)
	if !ok || state == insn.After {
		return tracee.Deliver, true
	}
	if si.Addr() == pc {
		si.SetAddr(symbols.Addr(out.Rip))
		if err := t.SetSiginfo(si); err != nil {
			return tracee.Deliver, true // gone
		}
	}
	if err := t.SetRegs(out); err != nil {
		return tracee.Deliver, true // gone
	}
	tg.stepBack(t, st, out)
	return tracee.Deliver, true
}

// stepBack replaces the jump of a probe whose instruction has faulted by a breakpoint. The program
// may repair the cause and execute the instruction again. This is still the same hit, and only a
// breakpoint can recognise it.
func (tg *Target) stepBack(t *tracee.Thread, st stage, regs *unix.PtraceRegs) {
	p := st.patch
	if !p.Armed || !st.Probed() {
		return
	}
	if err := tg.Unoptimize(tg.Engine.Run, p); err != nil {
		tg.Engine.Logf("a probe whose instruction faults stays a jump: %v", err)
		return
	}
	for _, x := range p.Probes() {
		x.Why = "its instruction has faulted: only a breakpoint can tell a repaired fault from another hit"
		rare := x.Rarely()
		rare.BreakpointOnly = x.Why
		x.SetRare(rare)
	}
	if site := tg.Sites[symbols.Addr(regs.Rip)]; site != nil {
		tg.thread(t).fault(site, regs, true)
	}
}

// resumed sets a thread's registers and lets it continue: by single steps if it was stepping
// before.
func (tg *Target) resumed(t *tracee.Thread, regs *unix.PtraceRegs) tracee.Verdict {
	stepping := t.Stepping()
	_ = t.SetRegs(regs) // fails only if the thread is gone
	if stepping {
		return tracee.Step
	}
	return tracee.Resume
}
