package engine

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Code that detours share
//
// It is written with the first return probe or string (detour.Shared), and again when threads'
// numbers can be read (renew.go): then the heads of the calls lead to the new code. All
// versions, and their entries in the fallback handler's table, stay until the session leaves
// the process. A stopped thread in this code counts as being in the detour that it came from,
// where it will continue.

// newestShared is the shared code that was written last; nil: there is none.
func (tg *Target) newestShared() *detour.Shared {
	if n := len(tg.Area.Shared); n > 0 {
		return tg.Area.Shared[n-1]
	}
	return nil
}

// layShared maps and writes the shared code of a plan, if the target has none yet.
func (tg *Target) layShared(ctx context.Context, x *planner.Shared) error {
	if x.Fresh && tg.newestShared() == nil {
		pc, err := tg.mapPlanned(ctx, x.Memory())
		if err != nil {
			return fmt.Errorf("code that probes share: %w", err)
		}
		tg.Area.Code.Keep(pc)
		if err := tg.putShared(x.Code); err != nil {
			return err
		}
	}
	if x.Texts {
		tg.Params.Shared = x.Code
	}
	return nil
}

// putShared writes shared code into memory that is mapped for it, and enters its faults and asks.
func (tg *Target) putShared(s *detour.Shared) error {
	if err := tg.Proc.WriteMemory(s.Code, symbols.Addr(s.Base)); err != nil {
		return fmt.Errorf("write code that probes share: %w", err)
	}
	for _, f := range s.Faults {
		if err := tg.Area.Table.Insert(detour.FaultKey(f.At), f.To); err != nil {
			return err
		}
		tg.Patches.faults[symbols.Addr(f.At)] = symbols.Addr(f.To)
	}
	if err := tg.putAsks(s.Asks); err != nil {
		return err
	}
	tg.Area.Shared = append(tg.Area.Shared, s)
	return nil
}

// putAsks enters the asks of shared code for the fallback handler and for the tracer.
func (tg *Target) putAsks(list []detour.Ask) error {
	for _, k := range list {
		if err := tg.Area.Table.Insert(detour.FaultKey(k.At), k.Back); err != nil {
			return err
		}
		tg.Patches.asks[symbols.Addr(k.At)] = k
	}
	return nil
}

// shareAnew maps and writes another version of the shared code, with the current parameters.
func (tg *Target) shareAnew(ctx context.Context) (*detour.Shared, error) {
	pc, err := tg.Area.Code.Add(ctx, tg.Area.File.Base, planner.SharedRoom)
	if err != nil {
		return nil, fmt.Errorf("code that probes share: %w", err)
	}
	pc.Used = pc.Size
	maps, err := symbols.ReadMaps(tg.Proc.PID())
	if err != nil {
		return nil, err
	}
	s, err := planner.BuildShared(uint64(pc.Start), *tg.Params, maps)
	if err == nil {
		err = tg.putShared(s)
	}
	if err != nil {
		return nil, err
	}
	if tg.Params.Shared != nil {
		tg.Params.Shared = s
	}
	return s, nil
}

// ShareRenewed writes another version of the shared code, if there is any, which reads threads' numbers
// by the current parameters. The heads of the calls' tables then lead to it.
func (tg *Target) ShareRenewed(ctx context.Context) error {
	if len(tg.Area.Shared) == 0 {
		return nil
	}
	s, err := tg.shareAnew(ctx)
	if err != nil {
		return err
	}
	return tracee.IgnoreLate(tg.WithStopped(ctx, func([]*tracee.Thread) error {
		for _, l := range tg.ExitProbes {
			if err := tg.Proc.WriteMemory(l.Calls().Head(s), symbols.Addr(l.Calls().Addr)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// InShared reports whether pc is in shared code.
func (tg *Target) InShared(pc symbols.Addr) bool {
	if tg.Area == nil {
		return false
	}
	for _, s := range tg.Area.Shared {
		if uint64(pc) >= s.Base && uint64(pc) < s.Base+uint64(len(s.Code)) {
			return true
		}
	}
	return slices.ContainsFunc(tg.Area.Tallies, func(t *detour.Tally) bool { return t.Holds(uint64(pc)) })
}

// StageOf returns the stage that a thread is in, with its registers there. For a thread in shared code
// it is the stage that has called the code, with the registers after the call. For any other thread
// there is no stage.
func (tg *Target) StageOf(regs *unix.PtraceRegs) (stage, *unix.PtraceRegs) {
	if st := tg.Patches.StageAt(symbols.Addr(regs.Rip)); !st.None() || tg.Area == nil {
		return st, regs
	}
	for _, s := range tg.Area.Shared {
		at, ok, err := s.Caller(regs.Rip, regs.Rsp, tg.Proc)
		if !ok || err != nil {
			continue
		}
		out := *regs
		out.Rip = at
		return tg.Patches.StageAt(symbols.Addr(at)), &out
	}
	for _, t := range tg.Area.Tallies {
		var r fetch.Regs
		tracee.FetchRegs(regs, &r)
		if ok, err := t.Caller(&r, tg.Proc); !ok || err != nil {
			continue
		}
		out := *regs
		fromFetch(&r, &out)
		out.Rip = r.IP
		return tg.Patches.StageAt(symbols.Addr(r.IP)), &out
	}
	return stage{}, regs
}
