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

// faultSignals are the signals that faults in detours and copies of an address space may raise, and
// the program's actions for them.
type faultSignals struct {
	actions map[syscall.Signal]tracee.Sigaction // the program's actions for signals that have a fallback handler
	copies  map[syscall.Signal]bool             // signals that copies may raise
	detours bool                                // there are or were detours, which may fault
	// ignoring are the signals that the program ignored at the last noteIgnored; ignored are
	// those of the last two. Signal n has bit n-1.
	ignoring, ignored uint64
	watch             FallbackWatch
}

func newFaultSignals() faultSignals {
	return faultSignals{actions: map[syscall.Signal]tracee.Sigaction{}, copies: map[syscall.Signal]bool{}}
}

// unanswered lists the signals that need a fallback handler and have none: those of detours, and
// those of copies if the program has a handler for them.
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

// answer sets fallback handlers for those of sigs that have none. t is a stopped thread of the
// process or nil.
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

// catchCopy enters into the fallback handler's table how a fault in the copy m at address at is shown
// as a fault of the original instruction. It takes effect when the signals have fallback handlers.
func (f *faultSignals) catchCopy(table *detour.Table, m insn.Moved, at symbols.Addr) error {
	memory, division := m.Faulting(uint64(at))
	for _, pt := range append(memory, division...) {
		to, ok := detour.CopyFault(pt.IP, int(pt.AddSP), asm.Reg(pt.Scratch))
		if !ok {
			continue // a fallback handler can't undo what such a copy does; no copy does this today
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

// forgetCopy removes the entries of catchCopy for a copy that no thread can be in.
func forgetCopy(table *detour.Table, m insn.Moved, at symbols.Addr) {
	memory, division := m.Faulting(uint64(at))
	for _, pt := range append(memory, division...) {
		table.Remove(detour.FaultKey(uint64(at) + uint64(pt.Off)))
	}
}

// noteIgnored notes which signals the program ignores now, or ignored at the look before. The look
// before counts because the kernel resets an ignored action when it forces the signal.
func (f *faultSignals) noteIgnored(status string) {
	now := signalSet(status, "SigIgn:")
	f.ignored = now | f.ignoring
	f.ignoring = now
}

// signalSet reads a set of signals from lines of /proc/PID/status.
func signalSet(status, name string) (set uint64) {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name); ok {
			set, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64) // the kernel's number is valid
		}
	}
	return set
}
