package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kprobe/probe/detour"
	"kprobe/probe/engine"
	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// The seam between tests and the engine
//
// Tests say what is seen of a target by these functions, and change it by them behind the
// engine's back: its fields are named here. What is asked of a target is asked on the
// tracer's thread (onTracer).

const int3 = 0xcc

// onTracer runs f on the tracer's thread, with the session's only target.
func onTracer(t *testing.T, l *live, f func(tg *engine.Target) error) {
	t.Helper()
	err := l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			return f(tg)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// optimizedOf reports how many places of an event are jumps, and why the others
// are not.
func optimizedOf(l *live, name string) (jumps int, why string) {
	_ = l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			for _, p := range tg.Feed.Ids {
				if p == nil || p.Ev.Name != name {
					continue
				}
				if p.Optimized {
					jumps++
				} else {
					why = p.Why
				}
			}
		}
		return nil
	})
	return jumps, why
}

// tacticsNow tells which events are jumps.
func tacticsNow(s *Session) map[string]bool {
	out := map[string]bool{}
	_ = s.engine.Tracer.Do(func() error {
		for _, tg := range s.engine.Targets {
			for _, p := range tg.Feed.Ids {
				if p != nil {
					out[p.Ev.Name] = p.Optimized
				}
			}
		}
		return nil
	})
	return out
}

// tactics gives each event's tactic at its only place, and fails the test for
// those in must that are no jumps.
func tactics(t *testing.T, l *live, must ...string) map[string]plan.Tactic {
	t.Helper()
	out, why := map[string]plan.Tactic{}, map[string]string{}
	jump := map[string]bool{}
	err := l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			for _, p := range tg.Feed.Ids {
				out[p.Ev.Name], why[p.Ev.Name], jump[p.Ev.Name] = p.Tactic, p.Why, p.Optimized
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range must {
		if !jump[name] {
			t.Errorf("%s is no jump but a %v: %s", name, out[name], why[name])
		}
	}
	return out
}

func jumpsOf(t *testing.T, l *live) (out []bool) {
	t.Helper()
	_ = l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			if tg.Feed == nil {
				continue
			}
			for _, p := range tg.Feed.Ids {
				out = append(out, p.Optimized)
			}
		}
		return nil
	})
	return out
}

// siteOfTactic is the address of the only probe, which must be armed by a tactic.
func siteOfTactic(tg *engine.Target, want plan.Tactic) (site symbols.Addr, err error) {
	got := plan.Breakpoint
	for p := range tg.Placed {
		site = p.Where.Addr
		for _, q := range tg.Patches.List {
			if q.Armed && slices.Contains(q.Probes(), p) {
				got = q.Plan.Tactic
			}
		}
	}
	if got != want {
		return 0, fmt.Errorf("the probe is a %v, want %v: the fixture is wrong", got, want)
	}
	return site, nil
}

// exitPlaces are the returns of the probes that go by exits, as places of a
// definition.
func exitPlaces(t *testing.T, l *live) (places []string) {
	t.Helper()
	seen := map[string]bool{}
	err := l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			for p := range tg.Placed {
				if p.ByExits == nil {
					continue
				}
				for _, w := range p.ByExits.Exits {
					if name := w.Site.Name(); !seen[name] && !strings.Contains(name, ".cold") {
						seen[name] = true
						places = append(places, name)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(places)
	return places
}

// toggle takes random jumps of a target out and puts random ones back in, in
// one stop. Those of which keep says so stay.
func toggle(s *Session, rng *rand.Rand, keep func(*engine.Placed) bool) error {
	return s.engine.Tracer.Do(func() error {
		for _, tg := range s.engine.Targets {
			err := tg.Proc.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
				for _, p := range tg.Patches.List {
					if keep(engine.PlacedOf(p.Wants[0])) || rng.IntN(2) == 0 {
						continue
					}
					if p.Armed {
						if err := tg.RestorePatches([]*engine.Patch{p}, stopped); err != nil {
							return err
						}
						continue
					}
					if err := rearm(tg, p, stopped); err != nil {
						return err
					}
				}
				return nil
			})
			// As in the engine: a thread that did not get a processor in time
			// stops before it executes code of the program's.
			var late *tracee.NotStoppedError
			if err != nil && !errors.As(err, &late) {
				return err
			}
		}
		return nil
	})
}

func rearm(tg *engine.Target, p *engine.Patch, stopped []*tracee.Thread) error {
	for g, to := range p.Guards() {
		if err := tg.Area.Table.Insert(engine.GuardKey(g), uint64(to)); err != nil {
			return err
		}
		tg.Patches.Guards[symbols.Addr(g.At)] = to
	}
	return armPatch(tg, p, stopped)
}

// heldBy gives also how many arenas of code are mapped: some stay for what comes.
func heldBy(t *testing.T, s *Session) (h held, arenas int) {
	t.Helper()
	err := s.engine.Tracer.Do(func() error {
		for _, tg := range s.engine.Targets {
			tg.Reap(t.Context())
			a := tg.Area
			shared := 0 // of code that is laid once and stays
			for _, s := range a.Shared {
				shared += len(s.Faults) + len(s.Asks)
			}
			h = held{
				table: a.Table.Len() - shared - asking(tg), journal: a.Journal.Pending(),
				sites: len(tg.Sites), slots: len(tg.BySlot), patches: len(tg.Patches.List), stages: len(tg.Patches.Stages),
				guards: len(tg.Patches.Guards), pools: len(a.Pools), retired: tg.Retired.Len(),
			}
			arenas = len(a.Code.All())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h, arenas
}

// asking counts what the fallback handler's table has for the faults of detours that are there.
func asking(tg *engine.Target) (n int) {
	for _, s := range tg.Patches.Stages {
		if !s.Probed() {
			continue
		}
		d := s.Detour()
		n += len(d.Asks())
		for k := range s.Pushes() {
			if _, ok := detour.PushFault(k, uint64(s.CopyAt())); ok {
				n++
			}
		}
	}
	return n
}

// breakpointsUnderJumps lists the breakpoints of a target that a jump covers.
func breakpointsUnderJumps(tg *engine.Target) (out []symbols.Addr) {
	for _, st := range tg.Sites {
		if st.Armed && tg.Patches.Covering(st.Addr, st.Length) != nil {
			out = append(out, st.Addr)
		}
	}
	return out
}

// seesByExits reports whether the calls of an event's probes are seen at their functions'
// exits.
func seesByExits(tg *engine.Target, event string) bool {
	for _, p := range tg.Feed.Ids {
		if p != nil && p.Ev.Name == event {
			return p.ByExits != nil
		}
	}
	return false
}

// aloneAtExits lists the probes whose returns are counted where their functions return, by
// event; patched are the places of those whose entry is patched all the same.
func aloneAtExits(tg *engine.Target) (byEvent map[string]int, patched []string) {
	byEvent = map[string]int{}
	for p := range tg.Placed {
		if x := p.ByExits; x == nil || !x.Alone {
			continue
		}
		byEvent[p.Ev.Name]++
		if q := tg.Patches.Covering(p.Where.Addr, 1); q != nil && len(q.Wants) > 0 && engine.PlacedOf(q.Wants[0]).Def.Kind == p.Def.Kind && q.Plan.At == uint64(p.Where.Addr) {
			patched = append(patched, p.Where.Name())
		}
	}
	return byEvent, patched
}

// countingTogether is how many detours both count hits by themselves and look for other calls that end there.
func countingTogether(tg *engine.Target) (n int) {
	for _, p := range tg.Patches.List {
		for i := range p.Stages {
			if st := &p.Stages[i]; st.OwnHits() > 0 && st.OwnHits() < len(st.Wants()) {
				n++
			}
		}
	}
	return n
}

// jumpsIn lists the jumps of a target that are in its text.
func jumpsIn(tg *engine.Target) (out []*engine.Patch) {
	for _, p := range tg.Patches.List {
		if p.Armed {
			out = append(out, p)
		}
	}
	return out
}

// ofExits reports whether a jump is at an exit of a return probe; place, if not "", says
// which.
func ofExits(p *engine.Patch, place string) bool {
	return slices.ContainsFunc(p.Wants, func(w planner.Request) bool {
		return w.Kind == planner.Exit && (place == "" || w.Site.Name() == place)
	})
}

// jumpOf is the jump of an event.
func jumpOf(tg *engine.Target, event string) (jump *engine.Patch) {
	for _, p := range tg.Patches.List {
		if engine.PlacedOf(p.Wants[0]).Ev.Name == event {
			jump = p
		}
	}
	return jump
}

// onlySite is where a target's only probe is, and the long jump that it takes; 0: none.
func onlySite(tg *engine.Target) (site, long symbols.Addr) {
	for p := range tg.Placed {
		site = p.Where.Addr
	}
	for _, p := range tg.Patches.List {
		long = symbols.Addr(p.Plan.LongJump())
	}
	return site, long
}

// sitesIn lists the breakpoints of a target in [lo, hi).
func sitesIn(tg *engine.Target, lo, hi uint64) (out []*engine.Site) {
	for a, st := range tg.Sites {
		if uint64(a) >= lo && uint64(a) < hi {
			out = append(out, st)
		}
	}
	return out
}

// kept is what a target still has of probes that were removed.
func kept(tg *engine.Target) string {
	left := fmt.Sprintf("%d changes, %d patches, %d batches of instances, %d tables of calls", tg.Retired.Len(), len(tg.Patches.List), len(tg.Area.Pools), len(tg.ExitProbes))
	for _, st := range tg.Sites {
		if st.Redirect != 0 {
			left += fmt.Sprintf(", a breakpoint at %v", st.Addr)
		}
	}
	return left
}

// keptNothing is what kept says where there is nothing.
const keptNothing = "0 changes, 0 patches, 0 batches of instances, 0 tables of calls"

// instancesHeld is how many calls are noted in the target's memory.
func instancesHeld(tg *engine.Target) (n int, err error) {
	for _, st := range tg.Patches.Stages {
		if w := st.Way(); w != nil {
			mem := make([]byte, w.Memory().Size())
			if _, err := tg.Proc.ReadMemory(mem, symbols.Addr(w.At())); err != nil {
				return 0, err
			}
			n += len(w.Memory().Used(mem))
		}
	}
	return n, nil
}

// waitsForLoader reports whether anything of a target depends on its loader.
func waitsForLoader(tg *engine.Target) bool {
	return tg.WatchesLoader() || tg.Waits() || len(tg.Placed) != 0
}

// landingsOf is how many probes of a session see calls where they return to.
func landingsOf(l *live) (n int) {
	_ = l.s.engine.Tracer.Do(func() error {
		for _, tg := range l.s.engine.Targets {
			for p := range tg.Placed {
				if p.Rarely().Landing != nil {
					n++
				}
			}
		}
		return nil
	})
	return n
}
