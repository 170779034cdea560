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
)

// serveEvery is how often a mailbox is looked at: a load from memory each time,
// and the price of waking up for it, a third of what an idle session costs.
const serveEvery = 40 * time.Millisecond

// serve does what other kprobes ask for in the mailbox of a target, until ctx
// is done.
//
// Who can write there may trace the target, or is the target. So a request can
// change this session's probes, which it could do by tracing the process
// itself, and nothing else; and where the session has processes of several
// users, not even that.
func (t *tap) serve(ctx context.Context) {
	tick := time.NewTicker(serveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
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
		if defs, err = unpackDefs(q.Defs); err != nil {
			return nil, err
		}
		_, err = s.Add(ctx, defs)
		s.logf("process %d asks to add %s: %s", r.PID, eventList(defs), outcome(err))
		return defs, err
	case "remove":
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
