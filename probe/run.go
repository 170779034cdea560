package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"kprobe/probe/engine"
)

// Run lets the processes run and passes every hit to sink. It returns when the processes have
// ended, when ctx is done, or when sink returns an error; it returns that error unless it is
// ErrStop.
//
// The probes stay armed after Run, until Close. One case is different: if ctx is done and sink
// needs more than a second for the remaining hits, the probes are removed and the session is
// closed, so that the program doesn't wait. Run still returns only after sink has had all hits.
func (s *Session) Run(ctx context.Context, sink Sink) (Summary, error) {
	if s.inHandler() {
		return Summary{}, ErrInHandler
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	err := s.engine.Tracer.Do(func() error {
		if s.engine.Closed {
			return ErrClosed
		}
		s.engine.Out.Begin(sink, s.engine.Opts.CountOnly)
		s.engine.Cancel.Store(&cancel)
		s.engine.Run, s.engine.Running = ctx, true
		s.engine.Stopping, s.engine.Fatal = false, nil
		for _, t := range s.engine.Feeds {
			t.Join() // probes are in, so each process may have hits that are older than those of others
		}
		for _, t := range s.engine.Feeds {
			t.Start(context.WithoutCancel(ctx))
		}
		return s.release()
	})
	if err != nil {
		return Summary{}, err
	}
	go s.engine.WatchFallbacks(run)
	go s.engine.WatchLetGo(run)
	waited := s.await(run)
	err = s.engine.Tracer.Run(run, s.handler())
	waited()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return s.conclude(ctx, err)
}

// sinkPatience is how long a sink may take for the last hits of a run before the
// processes are left without waiting for it.
const sinkPatience = time.Second

// giveLast passes the records that are still in the rings to the sink. If ctx is done and the
// sink takes too long, the processes are left in the meantime.
func (s *Session) giveLast(ctx context.Context, feeds []*engine.Feed) error {
	given := make(chan error, 1)
	go func() {
		var err error
		s.engine.Retiring.Wait()
		for _, t := range feeds {
			if ferr := t.Finish(); ferr != nil && err == nil {
				err = fmt.Errorf("read the last hits of process %d: %w", t.Pid, ferr)
			}
		}
		s.engine.Out.GiveOrdered(true)
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
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), LeaveTime(s.Stats()))
	defer cancel()
	return errors.Join(s.engine.Leave(end), <-given)
}

// conclude ends a run: probes take no more hits, the sink gets what is in the rings, and the
// counters are summed up.
func (s *Session) conclude(ctx context.Context, err error) (Summary, error) {
	sum := Summary{Reason: EndTarget}
	var feeds []*engine.Feed
	_ = s.engine.Tracer.Do(func() error { // fails only when the tracer is closed
		s.engine.Stopping, s.engine.Running = true, false
		s.engine.SeizeForEnd(context.WithoutCancel(ctx))
		feeds = s.engine.Feeds
		sum.Reached = len(feeds) > 0
		if len(s.engine.Targets) > 0 || ctx.Err() != nil {
			sum.Reason = EndContext
		}
		sum.Status, sum.HasStatus = s.status, s.hasStatus
		sum.Killed = slices.Clone(s.killed)
		sum.Alive = s.pids()
		if s.engine.Fatal != nil {
			err = s.engine.Fatal
		}
		return nil
	})
	for _, t := range feeds {
		t.DisableAll()
	}
	for _, t := range feeds {
		s.engine.Quiesce(t)
	}
	if lerr := s.giveLast(ctx, feeds); err == nil {
		err = lerr
	}
	s.engine.Out.Over()
	if ended, serr := s.engine.Out.Ended(); ended {
		sum.Reason = EndSink
		if err == nil {
			err = serr
		}
	}
	sum.Stats, sum.Unarmed = s.Stats(), s.engine.Unarmed()
	sum.Interposed = interposed(sum.Stats, feeds)
	return sum, err
}

// interposed finds events without hits for which the program calls another module's function of
// that name.
func interposed(stats []Stats, feeds []*engine.Feed) (out []Interposed) {
	for i := range stats {
		st := &stats[i]
		if st.Hits != 0 || st.Missed != 0 || st.Disabled || st.Event.Def == nil {
			continue
		}
		for _, t := range feeds {
			if by := t.Space.Interposed(st.Event.Def.Place); by != nil {
				out = append(out, Interposed{Event: st.Event, By: by.Name, Main: by.Main})
				break
			}
		}
	}
	return out
}

// CommandStatus returns how the command of Start ended. ended is false if it had not ended when
// Close returned. Call it after Close.
func (s *Session) CommandStatus() (status syscall.WaitStatus, ended bool) {
	if s.hasStatus || s.engine.Started == 0 {
		return s.status, s.hasStatus
	}
	return s.engine.Tracer.Reaped(s.engine.Started)
}

// release lets the command of Start run; it was held until now.
func (s *Session) release() error {
	tg := s.engine.Targets[s.engine.Started]
	if tg == nil || s.released {
		return nil
	}
	s.released = true
	return tg.Proc.ResumeAll()
}
