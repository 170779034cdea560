package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/probe/assess"
	"kprobe/probe/planner"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// ArmDefs arms definitions in the target, or has them wait for its loader: all
// or none.
func (tg *Target) ArmDefs(ctx context.Context, defs []*Definition) error {
	if tg.loads() {
		for _, d := range defs {
			tg.awaited.add(&pendingDef{Definition: d})
		}
		return tg.watchLoader(ctx)
	}
	ws, wait, err := tg.resolveAll(ctx, defs)
	if err != nil {
		return err
	}
	if tg.Engine.recordsStacks() {
		tg.Space.Warm()
	}
	return tg.armFound(ctx, defs, ws, wait)
}

// elsewhere is how often places are looked for again that were there no longer
// when they were to be read or written.
const elsewhere = 10

// armFound arms the places that were found for definitions. Where the process has
// unloaded a library meanwhile they are looked for once more: they may have to
// wait for it.
func (tg *Target) armFound(ctx context.Context, defs []*Definition, ws []planner.Request, wait []*pendingDef) error {
	for again := 0; ; again++ {
		err := tg.armResolved(ctx, ws, wait)
		if err == nil {
			return nil
		}
		if again == elsewhere || !tg.moved(ctx, err) {
			return blamed(err, ws)
		}
		if ws, wait, err = tg.resolveAll(ctx, defs); err != nil {
			return err
		}
	}
}

// blamed is an error of arming with the definition at fault, if one is: mostly it is the process
// or the machine that stands in the way.
func blamed(err error, ws []planner.Request) error {
	var known *assess.DefError
	var refused *survey.RefusedError
	if errors.As(err, &known) || !errors.As(err, &refused) {
		return err
	}
	for _, w := range ws {
		if w.Place.Site.Addr == refused.Addr {
			return &assess.DefError{Def: PlacedOf(w).Def, Err: err}
		}
	}
	return err
}

// moved reports whether an error may come of a file that the process has unmapped
// since its places were looked for, and maybe mapped again at the same addresses.
// A program that was executed meanwhile is another matter.
func (tg *Target) moved(ctx context.Context, err error) bool {
	moved := errors.Is(err, unix.EIO) || errors.Is(err, unix.EFAULT)
	if !moved {
		before := tg.Space.Modules()
		moved = tg.refresh() == nil && !slices.Equal(before, tg.Space.Modules())
	}
	return moved && !tg.Proc.Executed(ctx)
}

// armResolved arms places, and has the definitions wait that have none yet.
func (tg *Target) armResolved(ctx context.Context, ws []planner.Request, wait []*pendingDef) error {
	if err := tg.arm(ctx, ws); err != nil {
		return err
	}
	for _, p := range wait {
		tg.awaited.add(p)
		tg.Engine.Logf("%s/%s waits until process %d loads %s", p.Ev.Group, p.Ev.Name, tg.Proc.PID(), p.Def.Place.Module)
	}
	tg.watchLibraries(ctx)
	if len(wait) > 0 && tg.awaited.libs != nil {
		tg.atList(tg.awaited.libs) // it may have come meanwhile
	}
	return nil
}

// resolveAll finds and proves the places of definitions, and tells which have to
// wait for their library. One that goes while its code is read is looked for once
// more.
func (tg *Target) resolveAll(ctx context.Context, defs []*Definition) (all []planner.Request, wait []*pendingDef, err error) {
	for again := 0; ; again++ {
		all, wait, err = tg.resolveEach(ctx, defs)
		if err == nil || again == elsewhere || !tg.moved(ctx, err) {
			return all, wait, err
		}
	}
}

func (tg *Target) resolveEach(ctx context.Context, defs []*Definition) (all []planner.Request, wait []*pendingDef, err error) {
	if err := tg.refresh(); err != nil {
		return nil, nil, err
	}
	was := tg.Engine.Answers.Haste
	tg.Engine.Answers.Haste = ctx
	defer func() { tg.Engine.Answers.Haste = was }()
	named := newNamedPlaces(defs)
	for _, d := range defs {
		ws, err := tg.resolveNow(ctx, d, named)
		if err != nil && tg.mayWait(d, err) {
			wait = append(wait, &pendingDef{Definition: d, err: err})
			continue
		}
		if err != nil {
			return nil, nil, &assess.DefError{Def: d.Def, Err: err}
		}
		all = append(all, ws...)
	}
	return all, wait, nil
}

// resolveNow resolves a definition, asking the resolvers of IFUNCs that the
// process has not used yet.
func (tg *Target) resolveNow(ctx context.Context, d *Definition, named namedPlaces) ([]planner.Request, error) {
	for range 1024 {
		ws, err := tg.resolve(d.Def, d.Ev, named)
		var unbound *symbols.UnboundIFuncError
		if !errors.As(err, &unbound) {
			return ws, err
		}
		impl, cerr := tg.Proc.Call(ctx, nil, unbound.Resolver)
		if cerr != nil {
			return nil, fmt.Errorf("%w (its resolver could not be asked: %v)", err, cerr)
		}
		tg.chosen[unbound.Resolver] = symbols.Addr(impl)
	}
	return nil, errors.New("too many functions whose implementation is not chosen yet")
}
