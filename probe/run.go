package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Run lets the targets run and hands every hit to sink, until the targets
// have ended, ctx is done, or sink returns an error, which Run returns unless
// it is ErrStop. The probes stay armed: Close takes them out. But where ctx is done
// and the sink takes more than a second over what it has, they are taken out, and the
// session is closed; Run returns when the sink has had all.
func (s *Session) Run(ctx context.Context, sink Sink) (Summary, error) {
	if s.inHandler() {
		return Summary{}, ErrInHandler
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	err := s.tracer.Do(func() error {
		if s.closed {
			return ErrClosed
		}
		s.sinkMu.Lock()
		s.sink, s.sinkEnded, s.ended, s.endErr = sink, sink == nil && !s.opts.CountOnly, false, nil
		s.sinkMu.Unlock()
		s.cancel.Store(&cancel)
		s.run, s.running = ctx, true
		s.stopping, s.fatal = false, nil
		for _, t := range s.feeds {
			t.start(context.WithoutCancel(ctx))
		}
		return s.release()
	})
	if err != nil {
		return Summary{}, err
	}
	go s.watchFallbacks(run)
	go s.watchLetGo(run)
	waited := s.await(run)
	err = s.tracer.Run(run, s.handler())
	waited()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return s.conclude(ctx, err)
}

const (
	// sinkPatience is how long a sink may take over the last hits, when the run is
	// to end, before the processes are left.
	sinkPatience = time.Second
	// leaveTime is how long that may take.
	leaveTime = 30 * time.Second
)

// giveLast gives the sink what is in the rings. Where ctx is done and the sink takes
// too long the processes are left meanwhile.
func (s *Session) giveLast(ctx context.Context, feeds []*feed) error {
	given := make(chan error, 1)
	go func() {
		var err error
		s.retiring.Wait()
		for _, t := range feeds {
			if ferr := t.finish(); ferr != nil && err == nil {
				err = fmt.Errorf("read the last hits of process %d: %w", t.pid, ferr)
			}
		}
		s.giveOrdered(true)
		given <- err
	}()
	select {
	case err := <-given:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-given:
		return err
	case <-time.After(sinkPatience):
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	return errors.Join(s.leave(end), <-given)
}

// conclude ends a run: no probe takes hits any more, what is in the rings
// goes to the sink, and the counters are added up.
func (s *Session) conclude(ctx context.Context, err error) (Summary, error) {
	sum := Summary{Reason: EndTarget}
	var feeds []*feed
	_ = s.tracer.Do(func() error { // fails only when the tracer is closed
		s.stopping, s.running = true, false
		s.seizeForEnd(context.WithoutCancel(ctx))
		feeds = s.feeds
		if len(s.targets) > 0 || ctx.Err() != nil {
			sum.Reason = EndContext
		}
		sum.Status, sum.HasStatus = s.status, s.hasStatus
		sum.Killed = slices.Clone(s.killed)
		sum.Alive = s.pids()
		if s.fatal != nil {
			err = s.fatal
		}
		return nil
	})
	for _, t := range feeds {
		t.disableAll()
	}
	for _, t := range feeds {
		s.quiesce(t)
	}
	if lerr := s.giveLast(ctx, feeds); err == nil {
		err = lerr
	}
	s.order.Clear()
	s.sinkMu.Lock()
	if s.ended {
		sum.Reason = EndSink
		if err == nil && !errors.Is(s.endErr, ErrStop) {
			err = s.endErr
		}
	}
	s.sinkMu.Unlock()
	sum.Stats, sum.Unarmed = s.Stats(), s.unarmed()
	sum.Interposed = interposed(sum.Stats, feeds)
	return sum, err
}

// interposed finds out of which events without a hit the program calls another
// module's function by the name.
func interposed(stats []Stats, feeds []*feed) (out []Interposed) {
	for i := range stats {
		st := &stats[i]
		if st.Hits != 0 || st.Missed != 0 || st.Disabled || st.Event.Def == nil {
			continue
		}
		for _, t := range feeds {
			if by := t.space.Interposed(st.Event.Def.Place); by != nil {
				out = append(out, Interposed{Event: st.Event, By: by.Name, Main: by.Main})
				break
			}
		}
	}
	return out
}

// CommandStatus tells how the command that Start started has ended, if it did before
// Close has returned, behind which it is to be called.
func (s *Session) CommandStatus() (status syscall.WaitStatus, ended bool) {
	if s.hasStatus || s.started == 0 {
		return s.status, s.hasStatus
	}
	return s.tracer.Reaped(s.started)
}

// release lets the command go that Start started; it was held until now.
func (s *Session) release() error {
	tg := s.targets[s.started]
	if tg == nil || s.released {
		return nil
	}
	s.released = true
	return tg.proc.ResumeAll()
}
