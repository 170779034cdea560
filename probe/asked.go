package probe

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/probe/engine"
	"kprobe/probe/mailbox"
	"kprobe/probe/ring"
)

// reply does what a request asks for, and returns the answer.
func (s *Session) reply(ctx context.Context, r *ring.Request) []byte {
	q, err := mailbox.ReadRequest(r.Body)
	if err != nil {
		return errorClasses.Answer(err, nil)
	}
	if q.Op == mailbox.Open {
		return s.openAnswer(q, int(r.PID))
	}
	defs, err := s.asked(ctx, q, r)
	return errorClasses.Answer(err, defs)
}

// asked makes the change that a request asks for. defs are the definitions in the request.
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
	s.engine.Logf("process %d asks to %s %s: %s", r.PID, q.Op, what, outcome(err))
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

// removeNamed removes the definitions that deletions name. If a deletion names none, the error
// is a *DefError with ErrNoEvent, and nothing is removed.
func (s *Session) removeNamed(ctx context.Context, deletions []*fetch.Def) error {
	var chosen map[*engine.Definition]bool
	err := s.engine.Tracer.Do(func() error {
		chosen = map[*engine.Definition]bool{}
		for _, d := range deletions {
			n := 0
			for _, x := range s.engine.Events.Definitions() {
				if s.names(d, x.Def) {
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
	return s.removeDefs(ctx, func(x *engine.Definition) bool { return chosen[x] }, nil)
}

// names reports whether a deletion means a definition. A deletion may omit the file of a place,
// or use another name of the same file.
func (s *Session) names(d, def *fetch.Def) bool {
	if !d.HasPlace || d.Place.Module == def.Place.Module {
		return d.Deletes(def)
	}
	same := d.Place.Module == ""
	for _, tg := range s.engine.Targets {
		same = same || tg.SameModule(d.Place.Module, def.Place.Module)
	}
	plain := *def
	plain.Place.Module = d.Place.Module
	return same && d.Deletes(&plain)
}

// oneUser returns an error unless all processes belong to the user that kprobe runs as.
// Otherwise somebody who may write to one process's memory could have kprobe change the others.
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
