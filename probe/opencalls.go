package probe

import (
	"cmp"
	"context"
	"slices"

	"kprobe/probe/mailbox"
	"kprobe/probe/results"
)

// OpenCall is a call whose beginning a return probe has seen, and whose return it hasn't.
type OpenCall = results.OpenCall

// Calls that have not returned
//
// Live.OpenCalls asks for them through the mailbox. Calls that detours follow are noted in the
// process's memory (detour.Pool, detour.Calls), calls that breakpoints follow in this kprobe's.
// A call that longjmp or an exception has left stays noted until its place is needed. So the
// caller of OpenCalls treats a call as open only if its slot is one of the stack's.

// maxOpenPages bounds the number of requests.
const maxOpenPages = 100

// OpenCalls lists the calls in this process that the session's return probes have seen begin
// and not return. Some of them may have been left by longjmp or an exception. Errors are
// ErrNotTraced and symbols.ErrGone if the session or the process ends, and ErrNoAnswer.
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

// openList is what a process has been told last of the calls in another one. Its further requests go on in this list:
// in a new one, calls that have begun or returned since would move the others.
type openList struct {
	asker, pid int
	calls      []OpenCall
}

// openAnswer answers the request of a process for calls, from a given number on.
func (s *Session) openAnswer(q *mailbox.Request, asker int) []byte {
	var list []OpenCall
	err := s.engine.Tracer.Do(func() error {
		if q.From == 0 || s.open.asker != asker || s.open.pid != q.PID {
			s.open = openList{asker: asker, pid: q.PID}
			if tg := s.engine.Targets[q.PID]; tg != nil && !s.engine.Closed {
				s.open.calls = tg.OpenCalls()
			}
			slices.SortFunc(s.open.calls, func(a, b OpenCall) int {
				return cmp.Or(cmp.Compare(a.TID, b.TID), cmp.Compare(b.Slot, a.Slot), cmp.Compare(a.Entry, b.Entry))
			})
		}
		if list = s.open.calls; q.From >= len(list) {
			s.open = openList{}
		}
		return nil
	})
	if err != nil {
		return errorClasses.Answer(err, nil)
	}
	b, err := q.OpenAnswer(list)
	if err != nil {
		return errorClasses.Answer(err, nil)
	}
	return b
}
