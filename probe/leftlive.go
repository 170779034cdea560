package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kprobe/fetch"
	"kprobe/probe/area"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How probes that were left alone change
//
// To add probes, kprobe attaches, arms them beside the existing ones, with a memory file of
// their own, and leaves again. They may use words of the first file (engine, host.go); that one stays for them, with
// its jumps beside system calls, when its own probes go. To remove all probes of a memory file, kprobe attaches and does
// what recovery does. If only some probes of a file are removed, they are switched off for good and
// no longer listed; then their places in the text are given back, except those that probes of the file
// need which stay (area/prune.go).

// leaveMore adds definitions to probes that were left alone: all, or none.
func (l *Live) leaveMore(ctx context.Context, defs []*fetch.Def) error {
	s, err := Attach(ctx, []int{l.PID}, Options{Detach: true, Expect: defs})
	if err != nil {
		return err
	}
	// The definitions were looked at before. Nobody else gets the number while this process is traced.
	if err = l.same(); err == nil {
		err = s.Arm(ctx, defs)
	}
	if err == nil {
		err = s.engine.Tracer.Do(func() error { return s.engine.WouldLeaveOut() })
	}
	if err == nil {
		_, err = s.Detach(ctx)
	}
	if err = errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	return l.Refresh()
}

// turnPatience is how long a command waits for others that change the probes of a process.
var turnPatience = 10 * time.Second

// turn begins a change of probes that were left alone: nobody else changes them until it ends, and what others have
// changed before is known.
func (l *Live) turn(ctx context.Context) (*area.Turn, error) {
	if err := tracee.Frozen(l.PID); err != nil {
		return nil, err
	}
	turn, err := area.TakeTurn(ctx, l.PID, turnPatience)
	if err != nil {
		return nil, err
	}
	if err := l.look(false); err != nil {
		turn.End()
		return nil, err
	}
	return turn, nil
}

// takeOut removes probes that were left alone. It ends the turn once they are out.
func (l *Live) takeOut(ctx context.Context, turn *area.Turn, goes func(*ring.ProbeState) bool) error {
	l.pending = nil
	whole, hidden := map[symbols.Addr]bool{}, false
	all := append([]*Live{l}, l.more...)
	stays := func(x *Live) bool {
		return slices.ContainsFunc(x.snap.Probes, func(p ring.ProbeState) bool { return !goes(&p) })
	}
	needed := func(x *Live) bool {
		return slices.ContainsFunc(all, func(y *Live) bool { return y != x && y.host == x.base && stays(y) })
	}
	for _, x := range all {
		if !stays(x) && !needed(x) {
			whole[x.base] = true
			continue
		}
		for i := range x.snap.Probes {
			if p := &x.snap.Probes[i]; goes(p) {
				if err := ring.Hide(x.file(), x.snap.Layout, p.ID); err != nil {
					return l.ended(err)
				}
				hidden = true
			}
		}
	}
	var pending []string
	if len(whole) > 0 || hidden {
		chosen := &area.Chosen{Start: l.start, Files: whole}
		if _, err := area.RecoverAll(ctx, []int{l.PID}, chosen); err != nil {
			return err
		}
		pending = chosen.Pending
	}
	turn.End()
	err := l.Refresh()
	l.pending = pending // Refresh may have put another memory file first
	if err != nil && !errors.Is(err, ErrNotTraced) && !errors.Is(err, symbols.ErrGone) {
		return err
	}
	return nil
}

// removeLeft removes events, all or none.
func (l *Live) removeLeft(ctx context.Context, events []string) error {
	turn, err := l.turn(ctx)
	if errors.Is(err, ErrNotTraced) {
		return fmt.Errorf("%s: %w", events[0], ErrNoEvent) // others have taken out all that there was
	}
	if err != nil {
		return err
	}
	defer turn.End()
	there := l.Probes()
	for _, name := range events {
		if !slices.ContainsFunc(there, func(p LiveProbe) bool { return p.Group+"/"+p.Event == name }) {
			return fmt.Errorf("%s: %w", name, ErrNoEvent)
		}
	}
	return l.takeOut(ctx, turn, func(p *ring.ProbeState) bool { return slices.Contains(events, p.Name) })
}

// deleteLeft removes what deletions name from probes that were left alone.
func (l *Live) deleteLeft(ctx context.Context, deletions []*fetch.Def) error {
	turn, err := l.turn(ctx)
	if errors.Is(err, ErrNotTraced) {
		return &DefError{Def: deletions[0], Err: ErrNoEvent}
	}
	if err != nil {
		return err
	}
	defer turn.End()
	names := map[string]bool{}
	for _, d := range deletions {
		if d.HasPlace {
			return &DefError{Def: d, Err: errors.New("only whole events of detached probes can be deleted: leave the place out")}
		}
		found := false
		for _, p := range l.Probes() {
			if p.Event == d.Event && (d.Group == "" || p.Group == d.Group) {
				names[p.Group+"/"+p.Event], found = true, true
			}
		}
		if !found {
			return &DefError{Def: d, Err: ErrNoEvent}
		}
	}
	return l.takeOut(ctx, turn, func(p *ring.ProbeState) bool { return names[p.Name] })
}
