package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"kprobe/fetch"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// look has serve look into the mailbox if a request was posted. It is called by
// who wakes up anyway: after each look at the rings, and at each tick of the
// session, for a sink may keep the reader.
func (t *tap) look() {
	if !t.box.Posted() {
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

// glance looks whether what waits in the target has come.
func (t *tap) glance(ctx context.Context) {
	err := t.s.tracer.Do(func() error {
		if tg := t.s.targets[t.pid]; tg != nil && !t.s.closed {
			tg.glance(ctx)
		}
		return nil
	})
	if err != nil {
		t.s.logf("what waits in process %d: %v", t.pid, err)
	}
}

// serve does what other kprobes ask for in the mailbox of a target, until ctx
// is done.
//
// Who can write there may trace the target, or is the target. So a request can
// change this session's probes, which it could do by tracing the process
// itself, and nothing else; and where the session has processes of several
// users, not even that.
func (t *tap) serve(ctx context.Context) {
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if t.expects.Load() {
				t.glance(ctx)
			}
		case <-t.posted:
		}
		r, err := t.box.Next()
		if r == nil {
			continue
		}
		var defs []*fetch.Def
		if err == nil {
			defs, err = t.s.asked(ctx, r)
		}
		if err := t.box.Answer(r.ID, packAnswer(err, defs)); err != nil {
			t.s.logf("a request of process %d: %v", r.PID, err)
		}
	}
}

// asked does what a request asks for. defs are its definitions.
func (s *Session) asked(ctx context.Context, r *ring.Request) (defs []*fetch.Def, err error) {
	var q remoteRequest
	if err := json.Unmarshal(r.Body, &q); err != nil {
		return nil, fmt.Errorf("the request is not understood: %w", err)
	}
	if err := s.oneUser(); err != nil {
		return nil, err
	}
	switch q.Op {
	case "add":
		if defs, err = unpackDefs(q.Defs, false); err != nil {
			return nil, err
		}
		_, err = s.add(ctx, defs, true)
		s.logf("process %d asks to add %s: %s", r.PID, eventList(defs), outcome(err))
		return defs, err
	case "remove":
		if len(q.Defs) > 0 {
			return s.removeAsked(ctx, q.Defs, r.PID)
		}
		var list []*Event
		for _, ev := range s.Events() {
			if slices.Contains(q.Events, ev.Group+"/"+ev.Name) {
				list = append(list, ev)
			}
		}
		if len(list) != len(q.Events) {
			return nil, fmt.Errorf("%s: %w", strings.Join(q.Events, ", "), ErrNoEvent)
		}
		err := s.Remove(ctx, list...)
		s.logf("process %d asks to remove %s: %s", r.PID, strings.Join(q.Events, ", "), outcome(err))
		return nil, err
	}
	return nil, fmt.Errorf("this kprobe does not know how to %q", q.Op)
}

// removeAsked removes what deletions name. defs are the deletions.
func (s *Session) removeAsked(ctx context.Context, list []remoteDef, pid uint32) (defs []*fetch.Def, err error) {
	if defs, err = unpackDefs(list, true); err != nil {
		return nil, err
	}
	err = s.removeNamed(ctx, defs)
	s.logf("process %d asks to remove %s: %s", pid, eventList(defs), outcome(err))
	return defs, err
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

// oneUser makes sure that all processes of the session are of one user.
func (s *Session) oneUser() error {
	uids := map[uint32]bool{}
	for _, pid := range s.Pids() {
		st, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if err != nil {
			continue // gone
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			uids[sys.Uid] = true
		}
	}
	if len(uids) > 1 {
		return errors.New("the trace has processes of several users: it takes no requests")
	}
	return nil
}
