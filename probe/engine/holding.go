package engine

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// Memory that is held while a change is planned
//
// Planning thousands of probes takes seconds. A program that maps memory all the time, as runtimes with
// garbage collectors do, would map some where the plan wants to have its tables, and the plan would have to
// be made again. So what the plan knows to need before it looks at the functions is mapped at once. The
// journal lists it. What is built uses it; what is left when the change has ended is unmapped.

// takenError says that the program has mapped memory in a range that was free when the plan was
// made.
type takenError struct{ plan.Range }

func (e *takenError) Error() string {
	return fmt.Sprintf("the program has mapped memory at %v", symbols.Addr(e.Lo))
}

// holding has what is mapped for the plan of one change.
type holding struct {
	tg     *Target
	code   *memory.Arenas
	arenas map[plan.Range]*memory.Arena
}

// hold begins to hold memory for a change. The caller must call release when the change has ended.
func (tg *Target) hold() *holding {
	h := &holding{tg: tg, code: tg.Area.Code, arenas: map[plan.Range]*memory.Arena{}}
	tg.holding = h
	return h
}

// gone reports whether the process has ended or executes another program, so that nothing is mapped any more.
func (h *holding) gone() bool { return h.tg.Area == nil || h.tg.Area.Code != h.code }

// take maps a range. free is false if something is mapped there.
func (h *holding) take(ctx context.Context, r plan.Range) (free bool, err error) {
	arena, err := h.code.MapAt(ctx, symbols.Addr(r.Lo), r.Hi-r.Lo)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	h.arenas[r] = arena
	return true, nil
}

// use returns the arena of a range that is held; nil if it isn't. It is held no more. h may be nil.
func (h *holding) use(r plan.Range) *memory.Arena {
	if h == nil || h.gone() {
		return nil
	}
	arena := h.arenas[r]
	delete(h.arenas, r)
	return arena
}

// release unmaps what was not used. What can't be unmapped stays until kprobe leaves.
func (h *holding) release(ctx context.Context) {
	h.tg.holding = nil
	if h.gone() {
		return
	}
	for _, arena := range h.arenas {
		if err := h.code.Unmap(ctx, arena); err != nil {
			h.code.Keep(arena)
			h.tg.Engine.Logf("memory for a plan stays mapped: %v", err)
		}
	}
}
