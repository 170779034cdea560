package bench

import (
	"context"
	"errors"
	"fmt"

	"kprobe/probe"
)

// armLeft gives what leaves definitions in a process that nobody traces (--detach); row
// learns what was lost.
func armLeft(ctx context.Context, pid int, texts []string, row *Row) armed {
	return func() (between, out func() error, err error) {
		_, take, err := leave(ctx, pid, texts)()
		return nil, func() error { return errors.Join(left(pid, row), take()) }, err
	}
}

// leave gives what leaves definitions in a process.
func leave(ctx context.Context, pid int, texts []string) armed {
	return func() (between, out func() error, err error) {
		defs, err := parsed(texts)
		if err != nil {
			return nil, nil, err
		}
		s, err := probe.Attach(ctx, []int{pid}, probe.Options{Detach: true})
		if err != nil {
			return nil, nil, err
		}
		if err = s.Arm(ctx, defs); err == nil {
			var without []probe.LeftOut
			if without, err = s.Detach(ctx); err == nil && len(without) > 0 {
				err = errors.New(without[0].Why)
			}
		}
		if err = errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
			return nil, nil, err
		}
		return nil, func() error { return takeLeft(context.WithoutCancel(ctx), pid) }, nil
	}
}

// left tells a row how many hits were lost of what was left in a process.
func left(pid int, row *Row) error {
	l, err := probe.OpenLive(pid)
	if err != nil {
		return err
	}
	defer l.Close()
	hits, lost := uint64(0), uint64(0)
	for _, st := range l.Stats() {
		hits, lost = hits+st.Hits, lost+st.Lost
	}
	if hits < fewest*least {
		return fmt.Errorf("there were %d hits only", hits)
	}
	row.Lost = float64(lost) / float64(hits)
	return nil
}

// takeLeft takes what was left out of a process.
func takeLeft(ctx context.Context, pid int) error {
	l, err := probe.OpenLive(pid)
	if err != nil {
		return err
	}
	defer l.Close()
	var names []string
	for _, st := range l.Stats() {
		names = append(names, st.Event.Group+"/"+st.Event.Name)
	}
	return l.Remove(ctx, names)
}
