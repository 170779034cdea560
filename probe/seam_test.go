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
	"kprobe/probe/plan"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// The seam between tests and the engine
//
// Tests say what is seen of a target by these functions, and change it by them behind the
// engine's back: its fields are named here. What is asked of a target is asked on the
// tracer's thread (onTracer).

// onTracer runs f on the tracer's thread, with the session's only target.
func onTracer(t *testing.T, l *live, f func(tg *target) error) {
	t.Helper()
	err := l.s.tracer.Do(func() error {
		for _, tg := range l.s.targets {
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
	_ = l.s.tracer.Do(func() error {
		for _, tg := range l.s.targets {
			for _, p := range tg.feed.ids {
				if p.ev.Name != name {
					continue
				}
				if p.optimized {
					jumps++
				} else {
					why = p.why
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
	_ = s.tracer.Do(func() error {
		for _, tg := range s.targets {
			for _, p := range tg.feed.ids {
				if p != nil {
					out[p.ev.Name] = p.optimized
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
	err := l.s.tracer.Do(func() error {
		for _, tg := range l.s.targets {
			for _, p := range tg.feed.ids {
				out[p.ev.Name], why[p.ev.Name], jump[p.ev.Name] = p.tactic, p.why, p.optimized
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
	_ = l.s.tracer.Do(func() error {
		for _, tg := range l.s.targets {
			if tg.feed == nil {
				continue
			}
			for _, p := range tg.feed.ids {
				out = append(out, p.optimized)
			}
		}
		return nil
	})
	return out
}

// siteOfTactic is the address of the only probe, which must be armed by a tactic.
func siteOfTactic(tg *target, want plan.Tactic) (site symbols.Addr, err error) {
	got := plan.Breakpoint
	for p := range tg.placed {
		site = p.where.Addr
		for _, q := range tg.patches.list {
			if q.armed && slices.Contains(q.probes(), p) {
				got = q.plan.Tactic
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
	err := l.s.tracer.Do(func() error {
		for _, tg := range l.s.targets {
			for p := range tg.placed {
				if p.byExits == nil {
					continue
				}
				for _, w := range p.byExits.exits {
					if name := w.Site.Name; !seen[name] && !strings.Contains(name, ".cold") {
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
func toggle(s *Session, rng *rand.Rand, keep func(*placed) bool) error {
	return s.tracer.Do(func() error {
		for _, tg := range s.targets {
			err := tg.proc.WithStopped(context.Background(), func(stopped []*tracee.Thread) error {
				for _, p := range tg.patches.list {
					if keep(p.wants[0].p) || rng.IntN(2) == 0 {
						continue
					}
					if p.armed {
						if err := tg.restorePatches([]*patch{p}, stopped); err != nil {
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

func rearm(tg *target, p *patch, stopped []*tracee.Thread) error {
	for g, to := range p.guards() {
		if err := tg.area.Table.Insert(guardKey(g), uint64(to)); err != nil {
			return err
		}
		tg.patches.guards[symbols.Addr(g.At)] = to
	}
	return armPatch(tg, p, stopped)
}

// heldBy gives also how many arenas of code are mapped: some stay for what comes.
func heldBy(t *testing.T, s *Session) (h held, arenas int) {
	t.Helper()
	err := s.tracer.Do(func() error {
		for _, tg := range s.targets {
			tg.reap(t.Context())
			a := tg.area
			shared := 0 // of code that is laid once and stays
			for _, s := range a.Shared {
				shared += len(s.Faults) + len(s.Asks)
			}
			h = held{
				table: a.Table.Len() - shared - asking(tg), journal: a.Journal.Pending(),
				sites: len(tg.sites), slots: len(tg.bySlot), patches: len(tg.patches.list), stages: len(tg.patches.stages),
				guards: len(tg.patches.guards), pools: len(a.Pools), retired: len(tg.retired),
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
func asking(tg *target) (n int) {
	for _, s := range tg.patches.stages {
		if s.detour == nil {
			continue
		}
		n += len(s.detour.Asks)
		for k := range s.pushes() {
			if _, ok := detour.PushFault(k, uint64(s.copyAt)); ok {
				n++
			}
		}
	}
	return n
}

// breakpointsUnderJumps lists the breakpoints of a target that a jump covers.
func breakpointsUnderJumps(tg *target) (out []symbols.Addr) {
	for _, st := range tg.sites {
		if st.armed && tg.patches.covering(st.addr, st.length) != nil {
			out = append(out, st.addr)
		}
	}
	return out
}

// seesByExits reports whether the calls of an event's probes are seen at their functions'
// exits.
func seesByExits(tg *target, event string) bool {
	for _, p := range tg.feed.ids {
		if p != nil && p.ev.Name == event {
			return p.byExits != nil
		}
	}
	return false
}

// aloneAtExits lists the probes whose returns are counted where their functions return, by
// event; patched are the places of those whose entry is patched all the same.
func aloneAtExits(tg *target) (byEvent map[string]int, patched []string) {
	byEvent = map[string]int{}
	for p := range tg.placed {
		if x := p.byExits; x == nil || !x.alone {
			continue
		}
		byEvent[p.ev.Name]++
		if q := tg.patches.covering(p.where.Addr, 1); q != nil && len(q.wants) > 0 && q.wants[0].p.def.Kind == p.def.Kind && q.plan.At == uint64(p.where.Addr) {
			patched = append(patched, p.where.Name)
		}
	}
	return byEvent, patched
}

// jumpsIn lists the jumps of a target that are in its text.
func jumpsIn(tg *target) (out []*patch) {
	for _, p := range tg.patches.list {
		if p.armed {
			out = append(out, p)
		}
	}
	return out
}

// ofExits reports whether a jump is at an exit of a return probe; place, if not "", says
// which.
func ofExits(p *patch, place string) bool {
	return slices.ContainsFunc(p.wants, func(w patchRequest) bool { return w.kind == wantExit && (place == "" || w.Site.Name == place) })
}

// jumpOf is the jump of an event.
func jumpOf(tg *target, event string) (jump *patch) {
	for _, p := range tg.patches.list {
		if p.wants[0].p.ev.Name == event {
			jump = p
		}
	}
	return jump
}

// onlySite is where a target's only probe is, and the long jump that it takes; 0: none.
func onlySite(tg *target) (site, long symbols.Addr) {
	for p := range tg.placed {
		site = p.where.Addr
	}
	for _, p := range tg.patches.list {
		long = symbols.Addr(p.plan.LongJump())
	}
	return site, long
}

// sitesIn lists the breakpoints of a target in [lo, hi).
func sitesIn(tg *target, lo, hi uint64) (out []*site) {
	for a, st := range tg.sites {
		if uint64(a) >= lo && uint64(a) < hi {
			out = append(out, st)
		}
	}
	return out
}

// kept is what a target still has of probes that were removed.
func kept(tg *target) string {
	left := fmt.Sprintf("%d changes, %d patches, %d batches of instances, %d tables of calls", len(tg.retired), len(tg.patches.list), len(tg.area.Pools), len(tg.exitProbes))
	for _, st := range tg.sites {
		if st.redirect != 0 {
			left += fmt.Sprintf(", a breakpoint at %v", st.addr)
		}
	}
	return left
}

// keptNothing is what kept says where there is nothing.
const keptNothing = "0 changes, 0 patches, 0 batches of instances, 0 tables of calls"

// instancesHeld is how many calls are noted in the target's memory.
func instancesHeld(tg *target) (n int, err error) {
	for _, st := range tg.patches.stages {
		if w := st.way; w != nil {
			mem := make([]byte, w.memory().Size())
			if _, err := tg.proc.ReadMemory(mem, symbols.Addr(w.at())); err != nil {
				return 0, err
			}
			n += len(w.memory().Used(mem))
		}
	}
	return n, nil
}

// waitsForLoader reports whether anything of a target depends on its loader.
func waitsForLoader(tg *target) bool {
	return tg.libs != nil || len(tg.pending)+len(tg.gone)+len(tg.placed) != 0
}
