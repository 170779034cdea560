package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kprobe/fetch"
	"kprobe/probe/exits"
	"kprobe/symbols"
)

// How a call that breakpoints follow is seen to leave its function
//
// A breakpoint at the return address is not enough. A thread may arrive there with the stack
// pointer that a call's return would have, and yet not by that return: an exception or longjmp has
// left the call, and the next call returns there, or a jump leads there. So the breakpoints are on
// the function's own returns, and on its jumps to other functions. A call is in one of two states:
//
//	inside   it has not left the function: it will return at one of the function's returns, with
//	         its return address at the stack pointer. If another call has its slot, it was
//	         abandoned
//	outside  the function has jumped to another one: the call is followed to its return address
//	         (lands, which also has a breakpoint on the call instruction before it)
//
// Parts of the function that a compiler moved away (f.cold) belong to it. If the returns aren't
// known, or can't have breakpoints, calls are outside from their entry on. The breakpoints are
// written at the first call.

// watch says whether there are breakpoints where a probe's function is left.
type watch uint8

const (
	unwatched   watch = iota // not yet: no call has needed them
	watched                  // there are
	unwatchable              // there can't be: calls are outside from their entry on
)

// watches ensures that there are breakpoints where the probe's function is left, and reports
// whether there are.
func (tg *Target) watches(ctx context.Context, p *Placed) bool {
	if p.watch == unwatched {
		list, err := tg.waysOut(p)
		if err == nil && len(list) == 0 {
			err = errors.New("none is known")
		}
		if err == nil && slices.ContainsFunc(list, func(x own) bool { return x.Site.Addr == p.Where.Addr }) {
			err = errors.New("its entry is a return: a call is entered and left in one stop")
		}
		if err == nil {
			err = tg.armWays(ctx, list)
		}
		if p.watch = watched; err != nil {
			p.watch = unwatchable
			tg.Engine.Logf("%s: breakpoints are at the places that it returns to, not at its returns: %v", p.Where.Name(), err)
		}
	}
	return p.watch == watched
}

// armWays writes the breakpoints of list that aren't in the text, also if ctx is done: a call is under way. The error
// says if one of them is under a jump.
func (tg *Target) armWays(ctx context.Context, list []own) error {
	for _, x := range list {
		if tg.Patches.Covering(x.Site.Addr, int(x.Inst().Len)) != nil {
			return fmt.Errorf("at %s there is a jump", x.Site.Name())
		}
	}
	var fresh []own
	for _, x := range list {
		if st := tg.Sites[x.Site.Addr]; st == nil || !st.Armed {
			fresh = append(fresh, x)
		}
	}
	if err := tg.change(context.WithoutCancel(ctx), &changeset{own: fresh}); err != nil {
		return err
	}
	for _, x := range list {
		if st := tg.Sites[x.Site.Addr]; !slices.Contains(st.leaves, x.leaves) {
			st.serve(x)
		}
	}
	return nil
}

// waysOut lists the breakpoints that are needed where a probe's function is left: on its returns
// and on its jumps to other functions.
func (tg *Target) waysOut(p *Placed) (list []own, err error) {
	switch why := exits.Peculiar(p.Where.Func.Symbol.Name); {
	case tg.shadowStack:
		return nil, errors.New("there is a shadow stack")
	case why != "" && why != exits.AsksCaller && why != exits.ReturnsTwice:
		return nil, errors.New(why)
	}
	ways, err := tg.exitFinder().Outwards(*p.Where, p.pop())
	for _, x := range ways {
		list = append(list, own{Place: *x.Place, leaves: p, outwards: x.Jumps, conditional: x.Conditional})
	}
	return list, err
}

// leaveFunction handles a thread that is about to execute a return, or a jump out of the functions
// of the site's return probes. The session's context is filled.
func (s *Engine) leaveFunction(ctx context.Context, tg *Target, th *thread, st *Site) {
	sp := s.regs.GPR[fetch.SP]
	var word [8]byte
	if _, err := tg.Proc.ReadTouched(word[:], symbols.Addr(sp)); err != nil {
		return // the stack can't be read: the return will fault
	}
	to := symbols.Addr(binary.LittleEndian.Uint64(word[:]))
	_, held, err := tg.returnWord(symbols.Addr(sp))
	if err != nil {
		return
	}
	ra, _ := tg.trapped(held)
	s.done = s.done[:0]
	for _, p := range st.leaves {
		key, _ := p.callKey(tg, &s.regs, symbols.Addr(sp))
		found := tg.calls.Take(key, func(in *Instance) bool { return in.Inside && in.Probe == p && uint64(in.Slot) == sp }, s.done[len(s.done):])
		s.done = append(s.done, found...)
	}
	if len(s.done) == 0 {
		return
	}
	if st.outwards || len(s.due(st)) > 0 {
		s.followOutside(ctx, tg)
		return
	}
	live, err := th.t.Regs()
	if err != nil {
		return // gone
	}
	// Handlers and hits see the thread as if it had returned. The return instruction runs after
	// that, unless a handler has changed where the thread continues.
	back := sp + 8 + st.leaves[0].pop()
	live.Rsp, live.Rip = back, uint64(to)
	s.regs.GPR[fetch.SP], s.regs.IP = back, uint64(ra)
	kept := s.done[:0]
	for _, in := range s.done {
		if in.Return == ra {
			kept = append(kept, in)
		} else {
			in.Pool.Put(in) // it was abandoned: this is the return of a call that was not seen
		}
	}
	s.done = kept
	s.finish(tg)
	switch {
	case s.jumped:
	case live.Rsp != back:
		live.Rip = uint64(to)
		s.jumped = true
	default:
		live.Rsp = sp
		s.regs.GPR[fetch.SP], s.regs.IP = sp, uint64(st.Addr)
	}
}

// followOutside makes the calls in s.done outside: their functions are left by a jump, so they are
// followed to their return addresses. A call that can't be followed is missed.
func (s *Engine) followOutside(ctx context.Context, tg *Target) {
	list := slices.Clone(s.done)
	s.done = s.done[:0]
	slices.Reverse(list) // in the order in which the calls were entered
	for _, in := range list {
		in.Inside, in.Jumped = false, true
		if !tg.catchReturn(ctx, in) {
			in.Pool.Put(in)
			s.miss(in.Probe)
			continue
		}
		tg.calls.Add(in)
	}
}

// unwatch removes the breakpoints where functions are left, for probes that a change may make
// jumps. Active calls of them are outside from then on. The next call that needs such breakpoints
// has them written again (watches).
func (tg *Target) unwatch(ctx context.Context, c *changeset) {
	if tg.Engine.Opts.NoOptimize || tg.unwatching {
		return
	}
	gone := map[*Placed]bool{}
	for p := range tg.affected(c).stay {
		if p.watch == watched && !p.user().handles() {
			gone[p] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	tg.unwatching = true // the changes that follow must not call unwatch again
	defer func() { tg.unwatching = false }()
	for p := range gone {
		p.watch = unwatchable // until the breakpoints are removed
		for in := range p.instances().Active() {
			if !in.Inside {
				continue
			}
			if in.Inside = false; !tg.lands(ctx, in.Return) {
				tg.calls.Drop(in)
				tg.Engine.miss(p)
			}
		}
	}
	tg.forgetWays(func(p *Placed) bool { return gone[p] })
	for p := range gone {
		p.watch = unwatched
	}
}

// forgetWays removes the breakpoints where only functions of probes that satisfy of are left.
func (tg *Target) forgetWays(of func(*Placed) bool) {
	var idle []*Site
	for _, st := range tg.Sites {
		if len(st.leaves) == 0 {
			continue
		}
		if st.leaves = slices.DeleteFunc(st.leaves, of); len(st.leaves) == 0 && st.idle() {
			tg.discard(st)
			idle = append(idle, st)
		}
	}
	tg.Retired.add(&retired{sites: idle})
}
