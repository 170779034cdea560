package probe

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/probe/mailbox"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// look has serve look into the mailbox if a request was posted. It is called by
// who wakes up anyway: after each look at the rings, and at each tick of the
// session, for a sink may keep the reader.
func (t *feed) look() {
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
func (t *feed) peek(ctx context.Context) {
	err := t.s.tracer.Do(func() error {
		if tg := t.s.targets[t.pid]; tg != nil && !t.s.closed {
			tg.peek(ctx)
		}
		return nil
	})
	if err != nil {
		t.s.logf("what waits in process %d: %v", t.pid, err)
	}
}

// serve does what other kprobes ask for in the mailboxes of a target, until ctx
// is done: in that of kprobe's own, anything (mailbox.Own).
//
// Who can write to the one in the target's memory may trace the target, or is the
// target. So a request there can change this session's probes, which it could do by tracing the process
// itself, and nothing else; where the session has several processes, not even
// that, unless all are of the user that kprobe runs as.
func (t *feed) serve(ctx context.Context) {
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
		t.serveFrom(ctx, t.box, t.s.owner.mayAsk)
	}
}

// serveFrom does what the request in a mailbox asks for, if there is one that may.
func (t *feed) serveFrom(ctx context.Context, box *ring.Mailbox, may func() error) {
	r, err := mailbox.Serve(box, may,
		func(r *ring.Request) []byte { return t.s.owner.reply(ctx, r) },
		t.s.owner.refuse)
	if err != nil {
		t.s.logf("a request of process %d: %v", r.PID, err)
	}
}

// reply does what a request asks for, and says what became of it.
func (s *Session) reply(ctx context.Context, r *ring.Request) []byte {
	q, err := mailbox.ReadRequest(r.Body)
	if err != nil {
		return errorClasses.Answer(err, nil)
	}
	if q.Op == mailbox.Open {
		return s.openAnswer(q)
	}
	defs, err := s.asked(ctx, q, r)
	return errorClasses.Answer(err, defs)
}

// asked changes what a request asks to be changed. defs are its definitions.
func (s *Session) asked(ctx context.Context, q *mailbox.Request, r *ring.Request) (defs []*fetch.Def, err error) {
	if q.Op != mailbox.Add && q.Op != mailbox.Remove {
		return nil, fmt.Errorf("this kprobe does not know how to %q", q.Op)
	}
	if defs, err = q.Definitions(); err != nil {
		return nil, err
	}
	what := eventList(defs)
	switch {
	case q.Op == mailbox.Add:
		_, err = s.add(ctx, defs, true)
	case len(defs) > 0:
		err = s.removeNamed(ctx, defs)
	default:
		what, err = strings.Join(q.Events, ", "), s.removeEvents(ctx, q.Events)
	}
	s.logf("process %d asks to %s %s: %s", r.PID, q.Op, what, outcome(err))
	return defs, err
}

// removeEvents removes events, named GRP/EVENT: all, or none and ErrNoEvent.
func (s *Session) removeEvents(ctx context.Context, names []string) error {
	var list []*Event
	for _, ev := range s.Events() {
		if slices.Contains(names, ev.Group+"/"+ev.Name) {
			list = append(list, ev)
		}
	}
	if len(list) != len(names) {
		return fmt.Errorf("%s: %w", strings.Join(names, ", "), ErrNoEvent)
	}
	return s.Remove(ctx, list...)
}

// removeNamed removes the definitions that deletions name. A deletion that
// names none is a *DefError with ErrNoEvent, and nothing is removed.
func (s *Session) removeNamed(ctx context.Context, deletions []*fetch.Def) error {
	var chosen map[*defOf]bool
	err := s.tracer.Do(func() error {
		chosen = map[*defOf]bool{}
		for _, d := range deletions {
			n := 0
			for _, x := range s.definitions() {
				if s.names(d, x.def) {
					chosen[x] = true
					n++
				}
			}
			if n == 0 {
				return &DefError{Def: d, Err: ErrNoEvent}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.removeDefs(ctx, func(x *defOf) bool { return chosen[x] }, nil)
}

// names reports whether a deletion is about a definition. The file of a place
// may be left out, or be called by another of its names.
func (s *Session) names(d, def *fetch.Def) bool {
	if !d.HasPlace || d.Place.Module == def.Place.Module {
		return d.Deletes(def)
	}
	same := d.Place.Module == ""
	for _, tg := range s.targets {
		same = same || tg.sameModule(d.Place.Module, def.Place.Module)
	}
	plain := *def
	plain.Place.Module = d.Place.Module
	return same && d.Deletes(&plain)
}

// sameModule reports whether two names are those of one file that the target
// maps; "" is the program.
func (tg *target) sameModule(a, b string) bool {
	find := func(name string) []*symbols.Module {
		if name != "" {
			return tg.space.FindModule(name)
		}
		mods := tg.space.Modules()
		return slices.DeleteFunc(slices.Clone(mods), func(m *symbols.Module) bool { return !m.Main })
	}
	mods := find(a)
	return slices.ContainsFunc(find(b), func(m *symbols.Module) bool { return slices.Contains(mods, m) })
}

func eventList(defs []*fetch.Def) string {
	var out []string
	for _, d := range defs {
		out = append(out, d.Group+"/"+d.Event)
	}
	return strings.Join(out, ", ")
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

// oneUser makes sure that who may write to one process's memory could do to the
// others what it asks for.
func (s *Session) oneUser() error {
	var owners []uint32
	for _, pid := range s.Pids() {
		st, err := os.Stat(string(procfs.Process(pid)))
		if err != nil {
			continue // gone
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			owners = append(owners, sys.Uid) // root, where the process isn't dumpable
		}
	}
	return mailbox.MayAsk(owners, uint32(os.Geteuid()))
}
