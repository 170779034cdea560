package probe

import (
	"cmp"
	"context"
	"slices"

	"kprobe/probe/mailbox"
	"kprobe/probe/results"
)

// OpenCall is a call that a return probe has seen begin, and not return.
type OpenCall = results.OpenCall

// Calls that are under way
//
// Who asks what a process is inside of (Live.OpenCalls) is answered through the
// mailbox. What detours follow lies in the process's memory (detour.Pool,
// detour.Calls), what breakpoints follow in this kprobe's. A call that has been left by
// longjmp or an exception stays among them until its place is needed: the asker takes
// it for open only if its slot is one of the stack's.

// maxOpenPages bounds how often is asked.
const maxOpenPages = 100

// OpenCalls lists the calls that the session's return probes have seen begin and not
// return, of this process. Errors are ErrNotTraced and symbols.ErrGone when the session
// or the process ends, and ErrNoAnswer.
func (l *Live) OpenCalls(ctx context.Context) ([]OpenCall, error) {
	var out []OpenCall
	for range maxOpenPages {
		page, err := l.askFor(ctx, &mailbox.Request{Op: mailbox.Open, PID: l.PID, From: len(out)}, nil)
		if err != nil {
			return nil, err
		}
		if out = append(out, page...); len(page) == 0 {
			break
		}
	}
	return out, nil
}

// openAnswer is the answer to a request for calls from one on.
func (s *Session) openAnswer(q *mailbox.Request) []byte {
	var list []OpenCall
	err := s.engine.Tracer.Do(func() error {
		if tg := s.engine.Targets[q.PID]; tg != nil && !s.engine.Closed {
			list = tg.OpenCalls()
		}
		return nil
	})
	if err != nil {
		return errorClasses.Answer(err, nil)
	}
	slices.SortFunc(list, func(a, b OpenCall) int {
		return cmp.Or(cmp.Compare(a.TID, b.TID), cmp.Compare(b.Slot, a.Slot), cmp.Compare(a.Entry, b.Entry))
	})
	b, err := q.OpenAnswer(list)
	if err != nil {
		return errorClasses.Answer(err, nil)
	}
	return b
}
