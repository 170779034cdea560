package engine

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/probe/area"
	"kprobe/probe/asm"
	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// faultSignals is which signals of faults an address space's code may raise where kprobe
// has moved it, and what the program does on those that fallback handlers answer.
type faultSignals struct {
	actions map[syscall.Signal]tracee.Sigaction // the program's, of those that are answered
	copies  map[syscall.Signal]bool             // of copies that the fallback handler's table knows
	detours bool                                // jumps have been there, whose detours may fault
	// ignoring are the signals that the program ignored when that was looked at last,
	// bit by number less one; ignored those and the ones of the time before.
	ignoring, ignored uint64
	watch             FallbackWatch
}

func newFaultSignals() faultSignals {
	return faultSignals{actions: map[syscall.Signal]tracee.Sigaction{}, copies: map[syscall.Signal]bool{}}
}

// unanswered gives the signals that fallback handlers of a process are to answer, and none
// does: those of detours, and of copies where the program has handlers.
func (f *faultSignals) unanswered(pid int) map[syscall.Signal]bool {
	out := maps.Clone(f.copies)
	if f.detours {
		out[unix.SIGSEGV], out[unix.SIGBUS] = true, true
	}
	maps.DeleteFunc(out, func(sig syscall.Signal, _ bool) bool { _, there := f.actions[sig]; return there })
	if len(out) == 0 {
		return nil
	}
	caught := signalSet(caughtSignals(pid), "SigCgt:")
	maps.DeleteFunc(out, func(sig syscall.Signal, _ bool) bool {
		return caught&(1<<(sig-1)) == 0 && !(f.detours && (sig == unix.SIGSEGV || sig == unix.SIGBUS))
	})
	return out
}

// answer has fallback handlers of an area answer signals that none answers yet. t is a
// stopped thread of the process or nil.
func (f *faultSignals) answer(ctx context.Context, a *area.Area, t *tracee.Thread, sigs map[syscall.Signal]bool) error {
	for sig := range sigs {
		if _, ok := f.actions[sig]; ok {
			continue
		}
		if _, err := a.Catch(ctx, t, sig); err != nil {
			return err
		}
		act, err := a.Proc.Sigaction(ctx, t, sig)
		if err != nil {
			return err
		}
		f.actions[sig] = act
	}
	return nil
}

// catchCopy has the fallback handler whose table it is show faults in a copy, which is at an
// address, as those of the originals, once it answers the signals of these.
func (f *faultSignals) catchCopy(table *detour.Table, m insn.Moved, at symbols.Addr) error {
	memory, division := m.Faulting(uint64(at))
	for _, pt := range append(memory, division...) {
		to, ok := detour.CopyFault(pt.IP, int(pt.AddSP), asm.Reg(pt.Scratch))
		if !ok {
			continue // a fallback handler can't undo what the copy did; there is none such
		}
		if err := table.Insert(detour.FaultKey(uint64(at)+uint64(pt.Off)), to); err != nil {
			return err
		}
	}
	if len(memory) > 0 {
		f.copies[unix.SIGSEGV], f.copies[unix.SIGBUS] = true, true
	}
	if len(division) > 0 {
		f.copies[unix.SIGFPE] = true
	}
	return nil
}

// forgetCopy takes from a fallback handler's table what it knows of a copy that no thread
// can be in.
func forgetCopy(table *detour.Table, m insn.Moved, at symbols.Addr) {
	memory, division := m.Faulting(uint64(at))
	for _, pt := range append(memory, division...) {
		table.Remove(detour.FaultKey(uint64(at) + uint64(pt.Off)))
	}
}

// noteIgnored remembers which signals the program ignores, or did when that was looked
// at before: one that was just forced it ignores no more.
func (f *faultSignals) noteIgnored(status string) {
	now := signalSet(status, "SigIgn:")
	f.ignored = now | f.ignoring
	f.ignoring = now
}

// signalSet reads a set of signals from lines of /proc/PID/status.
func signalSet(status, name string) (set uint64) {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name); ok {
			set, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64) // the kernel's
		}
	}
	return set
}
