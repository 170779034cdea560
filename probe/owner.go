package probe

import (
	"context"

	"kprobe/fetch"
	"kprobe/probe/ring"
)

// sessionOwner is the session as its engine asks it.
type sessionOwner struct{ s *Session }

func (o sessionOwner) handlersOf(d *fetch.Def) *handlers {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return o.s.users[d].calls()
}

func (o sessionOwner) hasHandlers() bool {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	for _, u := range o.s.users {
		if u.sync {
			return true
		}
	}
	return false
}

func (o sessionOwner) mayAsk() error { return o.s.oneUser() }

func (o sessionOwner) reply(ctx context.Context, r *ring.Request) []byte { return o.s.reply(ctx, r) }

func (o sessionOwner) refuse(err error) []byte { return errorClasses.Answer(err, nil) }
