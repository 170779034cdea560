package engine

import (
	"context"
	"slices"
	"time"

	"kprobe/probe/mailbox"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// look has serve look into the mailbox if a request was posted. It is called by
// who wakes up anyway: after each look at the rings, and at each tick of the
// session, for a sink may keep the reader.
func (t *Feed) look() {
	if !t.box.Posted() && !t.own.Posted() {
		return
	}
	select {
	case t.posted <- struct{}{}:
	default:
	}
}

// glanceEvery is how often a target in which something waits is looked at: its
// mappings are read, a millisecond for a large process.
const glanceEvery = time.Second

// peek looks whether what waits in the target has come.
func (t *Feed) peek(ctx context.Context) {
	err := t.engine.Tracer.Do(func() error {
		if tg := t.engine.Targets[t.Pid]; tg != nil && !t.engine.Closed {
			tg.peek(ctx)
		}
		return nil
	})
	if err != nil {
		t.engine.Logf("what waits in process %d: %v", t.Pid, err)
	}
}

// serve does what other kprobes ask for in the mailboxes of a target, until ctx
// is done: in that of kprobe's own, anything (mailbox.Own).
//
// Who can write to the one in the target's memory may trace the target, or is the
// target. So a request there can change this session's probes, which it could do by tracing the process
// itself, and nothing else; where the session has several processes, not even
// that, unless all are of the user that kprobe runs as.
func (t *Feed) serve(ctx context.Context) {
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if t.expects.Load() {
				t.peek(ctx)
			}
		case <-t.posted:
		}
		t.serveFrom(ctx, t.own.Mailbox, func() error { return nil })
		t.serveFrom(ctx, t.box, t.engine.Owner.MayAsk)
	}
}

// serveFrom does what the request in a mailbox asks for, if there is one that may.
func (t *Feed) serveFrom(ctx context.Context, box *ring.Mailbox, may func() error) {
	r, err := mailbox.Serve(box, may,
		func(r *ring.Request) []byte { return t.engine.Owner.Reply(ctx, r) },
		t.engine.Owner.Refuse)
	if err != nil {
		t.engine.Logf("a request of process %d: %v", r.PID, err)
	}
}

// SameModule reports whether two names are those of one file that the target
// maps; "" is the program.
func (tg *Target) SameModule(a, b string) bool {
	find := func(name string) []*symbols.Module {
		if name != "" {
			return tg.Space.FindModule(name)
		}
		mods := tg.Space.Modules()
		return slices.DeleteFunc(slices.Clone(mods), func(m *symbols.Module) bool { return !m.Main })
	}
	mods := find(a)
	return slices.ContainsFunc(find(b), func(m *symbols.Module) bool { return slices.Contains(mods, m) })
}
