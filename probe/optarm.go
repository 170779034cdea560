package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// optimizer makes the target's optimizer, once.
func (tg *target) optimizer() (*optimizer, error) {
	if tg.opt != nil {
		return tg.opt, nil
	}
	l := tg.area.file.layout
	o := &optimizer{tg: tg}
	o.params = detour.Params{
		PerCPU: uint64(tg.area.file.addr(l.PerCPU.Off)), AreaShift: l.AreaShift, CPUMask: l.CPUMask,
		RingSize: l.RingSize, Flags: uint64(tg.area.file.addr(l.Flags.Off)),
		Clock: uint64(tg.area.file.addr(l.Header.Off + ring.ClockOff)),
		PID:   tg.proc.PID(), Rdpid: cpuHas("rdpid"), FSGSBase: cpuHas("fsgsbase"),
		Nested: tg.tap.numbers != nil, NoSyscall: seccomp(tg.proc.PID()), NoProc: !ownProc(tg.proc.PID()), StackEnd: stackEndOf(tg.space.Mappings()),
	}
	err := tg.proc.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
		o.params.TID = findTID(tg.proc, stopped, tg.tap.numbers)
		return nil
	})
	if err := ignoreLate(err); err != nil {
		return nil, err
	}
	tg.opt = o
	return o, nil
}

// setClock sees that detours which look at the time find it.
func (tg *target) setClock(groups map[*function][]want) error {
	for _, ws := range groups {
		for _, w := range ws {
			if w.p != nil && detour.NeedsClock(w.p.prog) {
				return tg.tap.calibrate()
			}
		}
	}
	return nil
}

// setShared sees that detours with texts find the code that they share.
func (tg *target) setShared(ctx context.Context, groups map[*function][]want) error {
	if tg.opt.params.Shared != nil {
		return nil
	}
	for _, ws := range groups {
		for _, w := range ws {
			if w.p != nil && detour.HasTexts(w.p.prog) {
				s, err := tg.share(ctx)
				if err == nil {
					tg.opt.params.Shared = s
				}
				return err
			}
		}
	}
	return nil
}

// tidOffsets are where thread control blocks keep the thread's number: glibc's
// struct pthread (nptl/descr.h) and musl's (src/internal/pthread_impl.h).
var tidOffsets = []int32{0x2d0, 0x30}

// findTID finds where detours can read their thread's number. Every stopped
// thread must have its own there; else detours ask the kernel.
func findTID(p *tracee.Process, stopped []*tracee.Thread, n *numbers) detour.TID {
	for _, off := range tidOffsets {
		fits := 0
		for _, t := range stopped {
			regs, err := t.Regs()
			if err != nil {
				continue // gone
			}
			var b [4]byte
			if regs.Fs_base == 0 {
				fits = -1
				break
			}
			if _, err := p.ReadMemory(b[:], symbols.Addr(regs.Fs_base)+symbols.Addr(off)); err != nil ||
				binary.LittleEndian.Uint32(b[:]) != n.inside(t.TID()) {
				fits = -1
				break
			}
			fits++
		}
		if fits > 0 {
			return detour.TID{Seg: asm.FS, Off: off}
		}
	}
	return findGoTID(p, stopped, n)
}

// Where Go keeps a thread's number: in the m (runtime/runtime2.go, procid) of
// the g that is in the thread's local storage. procid moves from release to
// release, within goMSize bytes.
const (
	goTLS   = -8
	goM     = 48
	goMSize = 512
)

// findGoTID is findTID for programs of Go that don't use C's library. Threads
// that are no m of Go's have no number there, and detours ask the kernel.
func findGoTID(p *tracee.Process, stopped []*tracee.Thread, n *numbers) detour.TID {
	var fits [goMSize / 8]int
	asked := 0
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			continue // gone
		}
		var word [8]byte
		m := make([]byte, goMSize)
		if _, err := p.ReadMemory(word[:], symbols.Addr(regs.Fs_base-8)); err != nil || le64(word[:]) == 0 {
			return detour.TID{}
		}
		if _, err := p.ReadMemory(word[:], symbols.Addr(le64(word[:])+goM)); err != nil {
			return detour.TID{}
		}
		if _, err := p.ReadMemory(m, symbols.Addr(le64(word[:]))); err != nil {
			return detour.TID{}
		}
		asked++
		for i := range fits {
			if le64(m[8*i:]) == uint64(n.inside(t.TID())) {
				fits[i]++
			}
		}
	}
	for i, n := range fits {
		if n > 0 && n == asked {
			return detour.TID{Seg: asm.FS, Off: goTLS, Path: []int32{goM, int32(8 * i)}}
		}
	}
	return detour.TID{}
}

// cpuHas reports whether the processor and the kernel have a feature, by its
// name in /proc/cpuinfo.
func cpuHas(flag string) bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if list, ok := strings.CutPrefix(line, "flags"); ok {
			return strings.Contains(strings.TrimRight(list, "\n")+" ", " "+flag+" ")
		}
	}
	return false
}

// ownProc reports whether the process sees files by the names that kprobe sees,
// and has a /proc to ask for them.
func ownProc(pid int) bool {
	root := fmt.Sprintf("/proc/%d/root", pid)
	var fs unix.Statfs_t
	if unix.Statfs(root+"/proc", &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	at, err := os.Readlink(root)
	return err == nil && at == "/"
}

// seccomp reports whether the process filters its system calls.
func seccomp(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || !strings.Contains(string(b), "\nSeccomp:\t0\n")
}

// armPatches puts jumps into the text, in one stop of the target.
func (tg *target) armPatches(ctx context.Context, list []*patch) error {
	if len(list) == 0 {
		return nil
	}
	if err := tg.catchFor(ctx, list); err != nil {
		return err
	}
	tg.patches.add(list)
	for _, p := range list {
		if err := tg.enter(p); err != nil {
			return errors.Join(err, tg.restorePatches(list))
		}
	}
	err := tg.withStopped(ctx, func(stopped []*tracee.Thread) error {
		if err := tg.lateUnder(list); err != nil {
			return errors.Join(err, tg.restorePatches(list))
		}
		return tg.armStopped(list, stopped)
	})
	return tg.ignoreLate(err)
}

// readBefore notes the bytes that a patch replaces: the file's, which prove
// compared with the memory.
func (tg *target) readBefore(p *patch) error {
	if p.hole != nil {
		if err := tg.readBefore(p.hole); err != nil {
			return err
		}
	}
	if err := tg.covered(p); err != nil {
		return fmt.Errorf("%v: %w", symbols.Addr(p.plan.At), err)
	}
	for _, w := range p.plan.Writes {
		m := tg.space.ModuleAt(symbols.Addr(w.At))
		if m == nil || m.File == nil {
			return errNoFile
		}
		b, err := m.File.Text(m.Vaddr(symbols.Addr(w.At)), len(w.Bytes))
		if err != nil {
			return err
		}
		if err := tg.pristine(symbols.Addr(w.At), b); err != nil {
			return fmt.Errorf("%v: %w", symbols.Addr(w.At), err)
		}
		p.before = append(p.before, plan.Write{At: w.At, Bytes: b})
	}
	return nil
}

// enter notes in the journal what a patch is about to write.
func (tg *target) enter(p *patch) error {
	if p.hole != nil {
		if err := tg.enter(p.hole); err != nil {
			return err
		}
	}
	for i, w := range p.plan.Writes {
		n, err := tg.area.journal.change(w, p.before[i].Bytes, p.plan.Detour, uint16(p.plan.Tactic))
		if err != nil {
			return err
		}
		p.entries = append(p.entries, n)
	}
	return nil
}

// armStopped writes patches that are in the journal; all threads are stopped.
// On an error they are taken out again.
func (tg *target) armStopped(list []*patch, stopped []*tracee.Thread) error {
	err := tg.moveUnder(list, stopped)
	if err == nil {
		err = tg.writePatches(list)
	}
	if err != nil {
		return errors.Join(err, tg.restorePatches(list))
	}
	for _, p := range list {
		p.arm()
	}
	return nil
}

// moveUnder moves threads that stand under jumps that are about to be written
// to the copies of what they are at. One that has met a breakpoint that makes
// way is behind its first byte only by that: when its trap is handled it goes
// back. One that was stepped there is moved as any other.
func (tg *target) moveUnder(list []*patch, stopped []*tracee.Thread) error {
	type covered struct {
		plan.Range
		p *patch
	}
	var all []covered
	for _, p := range list {
		for q := p; q != nil; q = q.hole {
			all = append(all, covered{plan.Range{Lo: q.plan.At, Hi: q.plan.End()}, q})
		}
	}
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			continue // gone
		}
		if t.AtTrap() {
			continue
		}
		pc := symbols.Addr(regs.Rip)
		for _, c := range all {
			if regs.Rip <= c.Lo || regs.Rip >= c.Hi {
				continue
			}
			if to, ok := c.p.entry(pc); ok {
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

// arm notes that a patch is in the text.
func (p *patch) arm() {
	if p.hole != nil {
		p.hole.arm()
	}
	p.armed = true
	for _, w := range p.wants {
		if w.kind != wantExit && !(w.kind == wantLeave && w.p.leavesByTrap()) {
			w.p.tap.setTactic(w.p, p.plan.Tactic)
		}
	}
	for _, x := range p.probes() {
		if !x.leavesByTrap() {
			x.tap.setFlags(x, ring.FlagOptimized, 0)
			x.optimized = true
		}
	}
}

// restorePatch gives the text its bytes back; all threads are stopped.
func (tg *target) restorePatch(p *patch) error { return tg.restorePatches([]*patch{p}) }

// retirePatch notes that a patch is not in the text any more. One whose bytes
// could not be restored stays in the journal.
func (tg *target) retirePatch(p *patch, failed bool) {
	if !failed {
		for _, n := range p.entries {
			tg.area.journal.remove(n)
		}
	}
	p.entries = nil
	p.armed = false
	tg.retireGuards(p)
	for _, x := range p.probes() {
		x.tap.setFlags(x, 0, ring.FlagOptimized)
		x.optimized = false
	}
}

// unoptimize takes a jump out and makes its probes breakpoints. The target is
// stopped between the two, so that no hit is missed.
//
// All jumps of a Go function's return probe go together: breakpoints at its exits
// know only calls that a breakpoint at its entry has seen.
func (tg *target) unoptimize(ctx context.Context, p *patch) error {
	list, goes := tg.withGo(p)
	var ws []want
	for _, p := range list {
		for _, w := range p.wants {
			code, inst, err := tg.prove(w.at)
			if err != nil {
				return err
			}
			w.code, w.inst, w.counted = code, inst, true
			if w.kind == wantExit && !w.p.goABI {
				w.kind, w.to = wantRedirect, p.leavesAt(w.at.Addr)
			}
			ws = append(ws, w)
		}
	}
	err := tg.layTraps(ctx, ws, func(fresh []*site) error {
		return tg.stoppedBetweenCalls(ctx, goes, func() error {
			if err := tg.restorePatches(list); err != nil {
				return err
			}
			if err := tg.writeAll(fresh); err != nil {
				return err
			}
			for _, x := range goes {
				tg.adoptCalls(x, x.byExits)
				x.giveUpExits()
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	r := &retired{}
	for _, p := range list {
		redirected := false
		for _, w := range p.wants {
			w.p.why = "another probe is under where its jump would be"
			if w.kind != wantExit {
				w.p.tactic = plan.Breakpoint
			}
			redirected = redirected || w.kind == wantExit && !w.p.goABI
		}
		if !redirected {
			r.patches = append(r.patches, p)
		}
	}
	tg.retired = append(tg.retired, r)
	return nil
}

// overlay puts the original bytes where kprobe's own changes lie within b, the
// memory at a.
func (tg *target) overlay(b []byte, a symbols.Addr) {
	put := func(at uint64, orig []byte) {
		for i, c := range orig {
			if k := int64(at) + int64(i) - int64(a); k >= 0 && k < int64(len(b)) {
				b[k] = c
			}
		}
	}
	for _, p := range tg.patches.pages.near(uint64(a), uint64(a)+uint64(len(b))) {
		for q := p; q != nil; q = q.hole {
			for i := range q.entries {
				put(q.before[i].At, q.before[i].Bytes)
			}
		}
	}
	for i := range b {
		if b[i] == breakpoint {
			if st := tg.sites[a+symbols.Addr(i)]; st != nil && st.armed {
				b[i] = st.code[0]
			}
		}
	}
}

// inDetour answers a signal of a thread in a detour; done is false if it is
// in none.
func (tg *target) inDetour(t *tracee.Thread, si *tracee.Siginfo) (v tracee.Verdict, done bool) {
	regs, err := t.Regs()
	if err != nil {
		return tracee.Deliver, false
	}
	pc := symbols.Addr(regs.Rip)
	if to, ok := tg.patches.guards[pc]; ok && si.Synchronous() {
		regs.Rip = uint64(to)
		return tg.resumed(t, regs), true
	}
	if to, ok := tg.patches.faults[pc]; ok && si.Synchronous() {
		regs.Rip = uint64(to)
		tg.faulted(t, si)
		return tg.resumed(t, regs), true
	}
	if p := tg.patches.longJump(pc); p != nil && !si.Synchronous() {
		regs.Rip = p.plan.Detour
		if err := t.SetRegs(regs); err != nil {
			return tracee.Deliver, true // gone
		}
		return tracee.Step, true
	}
	if tg.inShared(pc) && !si.Synchronous() {
		return tracee.Step, true
	}
	st := tg.patches.stageAt(pc)
	if st == nil {
		return tracee.Deliver, false
	}
	if !si.Synchronous() {
		return tracee.Step, true
	}
	out, state, ok := st.inCopy(regs, tg.proc)
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

// stepBack makes a breakpoint of a probe whose instruction has faulted. The
// program may repair the cause and go on at the instruction: that is still the
// same hit, and a breakpoint can tell.
func (tg *target) stepBack(t *tracee.Thread, st *stage, regs *unix.PtraceRegs) {
	p := tg.patches.owner[st]
	if p == nil || !p.armed || st.detour == nil {
		return
	}
	if err := tg.unoptimize(tg.s.run, p); err != nil {
		tg.s.logf("a probe whose instruction faults stays a jump: %v", err)
		return
	}
	for _, x := range p.probes() {
		x.why = "its instruction has faulted: a repaired fault is the same hit, which a breakpoint can tell"
		x.pinned = x.why
	}
	if site := tg.sites[symbols.Addr(regs.Rip)]; site != nil {
		tg.thread(t).fault(site, regs, true)
	}
}

// resumed lets a thread go on at other registers, one step at a time if it was
// stepping.
func (tg *target) resumed(t *tracee.Thread, regs *unix.PtraceRegs) tracee.Verdict {
	stepping := t.Stepping()
	_ = t.SetRegs(regs) // fails only if the thread is gone
	if stepping {
		return tracee.Step
	}
	return tracee.Resume
}

// faulted repairs what the kernel does to a program's action for a fault that
// its thread blocks (tracee.RepairForced): the action is as it was when kprobe
// came, or the program's own doing since.
func (tg *target) faulted(t *tracee.Thread, si *tracee.Siginfo) {
	sig := si.Signal()
	was, known := tg.actions[sig]
	if !known || was.Handler == 0 {
		return
	}
	now, err := tg.proc.Sigaction(tg.s.run, t, sig)
	if err != nil || now.Handler != 0 {
		return
	}
	if err := t.RepairForced(sig, was, true); err != nil {
		tg.s.logf("the action of signal %d could not be put back: %v", sig, err)
	}
}
