package probe

import (
	"context"

	"kprobe/fetch"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
)

// sessionOwner is the session as its engine asks it.
type sessionOwner struct{ s *Session }

func (o sessionOwner) handler() tracee.Handler { return o.s.handler() }

func (o sessionOwner) handlersOf(d *fetch.Def) *handlers {
	o.s.usersMu.Lock()
	defer o.s.usersMu.Unlock()
	return o.s.users[d].calls()
}

func (o sessionOwner) hasHandlers() bool {
	o.s.usersMu.Lock()
	defer o.s.usersMu.Unlock()
	for _, u := range o.s.users {
		if u.sync {
			return true
		}
	}
	return false
}

func (o sessionOwner) strike(d *fetch.Def) {
	o.s.usersMu.Lock()
	defer o.s.usersMu.Unlock()
	o.s.strike(d)
}

func (o sessionOwner) mayAsk() error { return o.s.oneUser() }

func (o sessionOwner) reply(ctx context.Context, r *ring.Request) []byte { return o.s.reply(ctx, r) }

func (o sessionOwner) refuse(err error) []byte { return errorClasses.Answer(err, nil) }
