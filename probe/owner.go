package probe

import (
	"context"

	"kprobe/fetch"
	"kprobe/probe/engine"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
)

// sessionOwner is the session as its engine asks it.
type sessionOwner struct{ s *Session }

func (o sessionOwner) Handler() tracee.Handler { return o.s.handler() }

func (o sessionOwner) HandlersOf(d *fetch.Def) *engine.Handlers {
	o.s.usersMu.Lock()
	defer o.s.usersMu.Unlock()
	return o.s.users[d].calls()
}

func (o sessionOwner) HasHandlers() bool {
	o.s.usersMu.Lock()
	defer o.s.usersMu.Unlock()
	for _, u := range o.s.users {
		if u.Sync {
			return true
		}
	}
	return false
}

func (o sessionOwner) Strike(d *fetch.Def) {
	o.s.usersMu.Lock()
	defer o.s.usersMu.Unlock()
	o.s.strike(d)
}

func (o sessionOwner) MayAsk() error { return o.s.oneUser() }

func (o sessionOwner) Reply(ctx context.Context, r *ring.Request) []byte { return o.s.reply(ctx, r) }

func (o sessionOwner) Refuse(err error) []byte { return errorClasses.Answer(err, nil) }
