package probe

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Code that detours share
//
// It is laid with the first return probe or text (detour.Shared), and again when
// threads' numbers can be read (renew.go): then the calls' heads lead to the new.
// What was laid, and what the fallback handler's table has of it, stays until the session leaves
// the process. A thread in it is, for whoever finds it there, in the detour that it
// came from, where it will go on.

// share lays the shared code if that isn't done, and gives it.
func (tg *target) share(ctx context.Context) (*detour.Shared, error) {
	a := tg.area
	if n := len(a.Shared); n > 0 {
		return a.Shared[n-1], nil
	}
	return tg.shareAnew(ctx)
}

// shareAnew lays shared code for what is known of the process by now.
func (tg *target) shareAnew(ctx context.Context) (*detour.Shared, error) {
	p, err := tg.firstParams()
	if err != nil {
		return nil, err
	}
	a := tg.area
	pc, err := a.Code.Add(ctx, a.File.Base, memory.PageSize)
	if err != nil {
		return nil, fmt.Errorf("code that probes share: %w", err)
	}
	pc.Used = pc.Size
	params := *p
	params.StackEnd = tg.mainStack()
	s, err := detour.BuildShared(uint64(pc.Start), &params)
	if err == nil && len(s.Code) > memory.PageSize {
		err = fmt.Errorf("it has %d bytes", len(s.Code))
	}
	if err == nil {
		err = tg.proc.WriteMemory(s.Code, pc.Start)
	}
	if err != nil {
		return nil, fmt.Errorf("write code that probes share: %w", err)
	}
	for _, f := range s.Faults {
		if err := a.Table.Insert(detour.FaultKey(f.At), f.To); err != nil {
			return nil, err
		}
		tg.patches.faults[symbols.Addr(f.At)] = symbols.Addr(f.To)
	}
	for _, k := range s.Asks {
		if err := a.Table.Insert(detour.FaultKey(k.At), k.Back); err != nil {
			return nil, err
		}
		tg.patches.asks[symbols.Addr(k.At)] = k
	}
	a.Shared = append(a.Shared, s)
	if p.Shared != nil {
		p.Shared = s
	}
	return s, nil
}

// shareRenewed lays shared code that reads threads' numbers as detours do now, if
// there is any, and has the calls' heads lead there.
func (tg *target) shareRenewed(ctx context.Context) error {
	if len(tg.area.Shared) == 0 {
		return nil
	}
	s, err := tg.shareAnew(ctx)
	if err != nil {
		return err
	}
	return tracee.IgnoreLate(tg.withStopped(ctx, func([]*tracee.Thread) error {
		for _, l := range tg.exitProbes {
			if err := tg.proc.WriteMemory(l.calls.Head(s), symbols.Addr(l.calls.Addr)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// inShared reports whether pc is in shared code.
func (tg *target) inShared(pc symbols.Addr) bool {
	if tg.area == nil {
		return false
	}
	for _, s := range tg.area.Shared {
		if uint64(pc) >= s.Base && uint64(pc) < s.Base+uint64(len(s.Code)) {
			return true
		}
	}
	return false
}

// stageOf is the stage that a thread is in, and its registers there: those that it
// goes on with if it is in shared code. The stage is nil for any other thread.
func (tg *target) stageOf(regs *unix.PtraceRegs) (*stage, *unix.PtraceRegs) {
	if st := tg.patches.stageAt(symbols.Addr(regs.Rip)); st != nil || tg.area == nil {
		return st, regs
	}
	for _, s := range tg.area.Shared {
		at, ok, err := s.Caller(regs.Rip, regs.Rsp, tg.proc)
		if !ok || err != nil {
			continue
		}
		out := *regs
		out.Rip = at
		return tg.patches.stageAt(symbols.Addr(at)), &out
	}
	return nil, regs
}
