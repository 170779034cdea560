package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/probe/assess"
	"kprobe/probe/planner"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// ArmDefs arms definitions in the target: all or none. While the program is being loaded, and
// if their libraries are not mapped, definitions wait.
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

// ArmAsIn arms in a forked child what its parent has. A definition that has no place in the parent's
// program has none in the child either: it is left out, and the others are armed. The user is told of it
// unless that was done for the parent. What waits in the parent for its library waits in the child.
func (tg *Target) ArmAsIn(ctx context.Context, parent *Target) error {
	tg.lacks = maps.Clone(parent.lacks)
	list := slices.DeleteFunc(tg.Engine.Events.Definitions(), func(d *Definition) bool { return tg.lacks[d.Def] })
	waits := parent.awaited.keys()
	var wait []*pendingDef
	for {
		err := tg.ArmDefs(ctx, list)
		var bad *assess.DefError
		if err != nil && (!errors.As(err, &bad) || ctx.Err() != nil || tg.hasEnded()) {
			return err
		}
		if err == nil {
			break
		}
		n := len(list)
		list = slices.DeleteFunc(list, func(d *Definition) bool {
			if d.Def != bad.Def {
				return false
			}
			if waits[d.key()] && errors.Is(err, symbols.ErrNotMapped) {
				wait = append(wait, &pendingDef{Definition: d, err: symbols.ErrNotMapped})
			} else {
				tg.leaveOut(d.Def)
				tg.Engine.Warnf("child %d: %v", tg.Proc.PID(), err)
			}
			return true
		})
		if len(list) == n {
			return err
		}
	}
	if len(wait) > 0 {
		tg.awaited.add(wait...)
		tg.watchLibraries(ctx)
	}
	return nil
}

// elsewhere is how often places are resolved again because their library was unmapped between
// resolving and writing.
const elsewhere = 10

// armFound arms the places that were found for definitions. If the process has unloaded a library
// meanwhile, the definitions are resolved again, and may have to wait for it.
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

// blamed adds the definition at fault to an error of arming. If none is, err is returned as it is:
// most such errors are due to the process or the machine.
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

// moved reports whether the cause of an error may be that the process has unmapped a file since its
// places were resolved; it may have mapped the file again at the same addresses. It is false if the
// process has executed a program.
func (tg *Target) moved(ctx context.Context, err error) bool {
	moved := errors.Is(err, unix.EIO) || errors.Is(err, unix.EFAULT)
	if !moved {
		before := tg.Space.Modules()
		moved = tg.refresh() == nil && !slices.Equal(before, tg.Space.Modules())
	}
	return moved && !tg.Proc.Executed(ctx)
}

// armResolved arms places, and makes the definitions in wait, which have none yet, wait.
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
		tg.atList(tg.awaited.libs) // the library may have been loaded meanwhile
	}
	return nil
}

// resolveAll finds and proves the places of definitions. wait are the definitions that must wait
// for their library. If a library is unmapped while its code is read, all are resolved again.
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
		if all == nil {
			all = ws // nearly always one definition has nearly all
		} else {
			all = append(all, ws...)
		}
	}
	return all, wait, nil
}

// resolveNow resolves a definition. It calls the resolvers of IFUNCs that the process has not bound
// yet, by injected calls.
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
