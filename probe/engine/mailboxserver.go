package engine

import (
	"context"
	"slices"
	"time"

	"kprobe/probe/mailbox"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// look wakes serve if a request was posted. The reader calls it after each look at the rings. The
// session calls it at each tick, too, because a slow sink may keep the reader.
func (t *Feed) look() {
	if !t.box.Posted() && !t.own.Posted() {
		return
	}
	select {
	case t.posted <- struct{}{}:
	default:
	}
}

// glanceEvery is how often the mappings of a target with waiting definitions are read. This takes a
// millisecond for a large process.
const glanceEvery = time.Second

// peek looks for the libraries of the target's waiting definitions (Target.peek).
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

// serve carries out requests of other kprobes from a target's two mailboxes, until ctx is done. The
// mailbox in kprobe's own memory may ask for anything (mailbox.Own).
//
// Whoever can write to the mailbox in the target's memory may trace the target, or is the target. So
// its requests may change the probes in this process, which the writer could do by itself. They are
// refused if the session has several processes, unless all belong to the user that kprobe runs as
// (Owner.MayAsk).
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

// serveFrom answers the request in a mailbox, if there is one. It is refused with the error of may.
func (t *Feed) serveFrom(ctx context.Context, box *ring.Mailbox, may func() error) {
	r, err := mailbox.Serve(box, may,
		func(r *ring.Request) []byte { return t.engine.Owner.Reply(ctx, r) },
		t.engine.Owner.Refuse)
	if err != nil {
		t.engine.Logf("a request of process %d: %v", r.PID, err)
	}
}

// SameModule reports whether two names mean the same file that the target maps. "" means the program.
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
