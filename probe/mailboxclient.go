package probe

import (
	"context"
	"errors"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/probe/mailbox"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// ErrNoAnswer says that the kprobe that traces the process did not answer in time.
var ErrNoAnswer = mailbox.ErrNoAnswer

// errorClasses are the classes of errors that another kprobe can distinguish in an answer.
var errorClasses = mailbox.Classes{
	{
		Name:  "refused",
		Is:    func(err error) bool { var e *RefusedError; return errors.As(err, &e) },
		Cause: func(text string) error { return &RefusedError{Rule: text} },
	},
	{
		Name:  "boundary",
		Is:    func(err error) bool { var e *BoundaryError; return errors.As(err, &e) },
		Cause: func(string) error { return &BoundaryError{} },
	},
	mailbox.Sentinel("ambiguous", symbols.ErrAmbiguous),
	mailbox.Sentinel("no-symbol", symbols.ErrNoSymbol),
	mailbox.Sentinel("not-mapped", symbols.ErrNotMapped),
	mailbox.Sentinel("outside", symbols.ErrOutside),
	mailbox.Sentinel("not-executable", symbols.ErrNotExecutable),
	mailbox.Sentinel("no-debug-info", symbols.ErrNoDebugInfo),
	mailbox.Sentinel("no-event", ErrNoEvent),
	mailbox.Sentinel("closed", ErrClosed),
	mailbox.Sentinel("gone", symbols.ErrGone),
}

// Add asks the session to add definitions, as Session.Add does: all of them or none, in all of
// its processes. It returns when the probes are armed. In a process that doesn't map a
// definition's library, the definition waits for it, as with Options.Pending.
//
// Errors are those of Session.Add for these definitions; ErrNotTraced and symbols.ErrGone if
// the session or the process ends; ErrNoAnswer.
func (l *Live) Add(ctx context.Context, defs []*fetch.Def) error {
	if len(defs) == 0 {
		return nil
	}
	if l.Detached {
		return l.leaveMore(ctx, defs)
	}
	return l.ask(ctx, &mailbox.Request{Op: mailbox.Add, Defs: mailbox.NewDefs(defs)}, defs)
}

// Remove asks the session to remove events, named GRP/EVENT, as Session.Remove does. It returns
// when they are removed and the session's sink has had their hits. Errors are ErrNoEvent and
// those of Add.
func (l *Live) Remove(ctx context.Context, events []string) error {
	if len(events) == 0 {
		return nil
	}
	if l.Detached {
		return l.removeLeft(ctx, events)
	}
	return l.ask(ctx, &mailbox.Request{Op: mailbox.Remove, Events: events}, nil)
}

// Delete asks the session to remove what deletions (fetch.Delete) name: events, or some places
// of an event. A deletion may give another name of the same file than the definition did.
// Errors are those of Remove, and nothing is removed then.
func (l *Live) Delete(ctx context.Context, deletions []*fetch.Def) error {
	if len(deletions) == 0 {
		return nil
	}
	if l.Detached {
		return l.deleteLeft(ctx, deletions)
	}
	return l.ask(ctx, &mailbox.Request{Op: mailbox.Remove, Defs: mailbox.NewDefs(deletions)}, deletions)
}

// ask posts a request and waits until it is done.
func (l *Live) ask(ctx context.Context, q *mailbox.Request, defs []*fetch.Def) error {
	_, err := l.askFor(ctx, q, defs)
	return err
}

// askFor posts a request and waits for its answer.
func (l *Live) askFor(ctx context.Context, q *mailbox.Request, defs []*fetch.Def) ([]results.OpenCall, error) {
	body, err := l.peer().Ask(ctx, q)
	if err != nil {
		return nil, err
	}
	open, err := errorClasses.ReadAnswer(body, defs)
	if err != nil {
		return nil, err
	}
	return open, l.Refresh()
}

// peer is the session as the mailbox sees it.
func (l *Live) peer() *mailbox.Peer {
	return &mailbox.Peer{PID: l.PID, Tracer: l.Tracer, File: l.file(), Layout: l.snap.Layout, Alive: l.alive, Ended: l.ended}
}

// alive returns why the session no longer answers. Its kprobe may live longer than the session.
func (l *Live) alive() error {
	if _, err := l.file().ReadAt(make([]byte, 8), 0); err != nil {
		return l.ended(err)
	}
	if procfs.StartTime(l.Tracer) != l.snap.Header.TracerStart {
		return ErrNotTraced
	}
	return nil
}
