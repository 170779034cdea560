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
// A thread may arrive where a call would have returned, with the stack pointer that it would
// have, although it isn't that call's return: an exception or longjmp has left the call, and
// the next call returns there, or a jump leads there. So breakpoints are on the function's own
// returns, and on its jumps to other functions. A call is in one of two states:
//
//	inside   it has not left the function: it returns at one of the function's returns, with its
//	         return address at the stack pointer. If another call has its slot, it was abandoned.
//	outside  the function has jumped to another one: the call is followed to its return address
//	         (lands, which also sees the next call of that place).
//
// Parts of the function that are jumped to (f.cold) belong to it. If the returns aren't known,
// or can't have breakpoints, calls are outside at once. The breakpoints are put in at the first
// call.

// watch is whether there are breakpoints where a probe's function is left.
type watch uint8

const (
	unwatched watch = iota // no call has come yet
	watched
	unwatchable
)

// watches makes sure that threads stop where they leave the probe's function, and
// reports whether they do.
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
			tg.Engine.Logf("%s: its returns have no breakpoints, but what it returns to: %v", p.Where.Name, err)
		}
	}
	return p.watch == watched
}

// armWays puts the breakpoints in that aren't there.
func (tg *Target) armWays(ctx context.Context, list []own) error {
	for _, x := range list {
		if tg.Patches.Covering(x.Site.Addr, int(x.Inst.Len)) != nil {
			return fmt.Errorf("at %s there is a jump", x.Site.Name)
		}
	}
	var fresh []own
	for _, x := range list {
		if st := tg.Sites[x.Site.Addr]; st == nil || !st.Armed {
			fresh = append(fresh, x)
		}
	}
	if err := tg.change(ctx, &changeset{own: fresh}); err != nil {
		return err
	}
	for _, x := range list {
		if st := tg.Sites[x.Site.Addr]; !slices.Contains(st.leaves, x.leaves) {
			st.serve(x)
		}
	}
	return nil
}

// waysOut finds the returns of a probe's function and its jumps to others, and
// gives them as what is to be armed.
func (tg *Target) waysOut(p *Placed) (list []own, err error) {
	switch why := exits.Peculiar(p.Where.Func.Symbol.Name); {
	case tg.shadowStack:
		return nil, errors.New("there is a shadow stack")
	case why != "" && why != exits.AsksCaller && why != exits.ReturnsTwice:
		return nil, errors.New(why)
	}
	ways, err := tg.exitFinder().Outwards(*p.Where, p.pop)
	for _, x := range ways {
		list = append(list, own{Place: *x.Place, leaves: p, outwards: x.Jumps, conditional: x.Conditional})
	}
	return list, err
}

// leaveFunction deals with a thread that is about to leave the functions of the
// site's return probes, by a return or a jump. The context is filled.
func (s *Engine) leaveFunction(ctx context.Context, tg *Target, th *thread, st *Site) {
	sp := s.regs.GPR[fetch.SP]
	var word [8]byte
	if _, err := tg.Proc.ReadTouched(word[:], symbols.Addr(sp)); err != nil {
		return // there is no return address: it faults
	}
	to := symbols.Addr(binary.LittleEndian.Uint64(word[:]))
	ra := tg.behind(to)
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
	// Whoever looks sees the thread where it has returned to. The instruction
	// itself does that, unless a handler wants something else.
	back := sp + 8 + st.leaves[0].pop
	live.Rsp, live.Rip = back, uint64(to)
	s.regs.GPR[fetch.SP], s.regs.IP = back, uint64(ra)
	kept := s.done[:0]
	for _, in := range s.done {
		if in.Return == ra {
			kept = append(kept, in)
		} else {
			in.Pool.Put(in) // it was left, and this is a call that nobody saw
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

// followOutside has the calls in s.done seen where they return to: their functions
// are left by a jump.
func (s *Engine) followOutside(ctx context.Context, tg *Target) {
	list := slices.Clone(s.done)
	s.done = s.done[:0]
	slices.Reverse(list) // the first entered comes first
	shared := false
	for _, in := range list {
		in.Inside = false
		if !shared && !tg.catchReturn(ctx, in) {
			in.Pool.Put(in)
			s.miss(in.Probe)
			continue
		}
		shared = shared || in.Trampoline >= 0
		tg.calls.Add(in)
	}
}

// unwatch takes the breakpoints away at which probes' functions are left that may
// become jumps by a change. Calls that are under way are followed to where they
// return to. Whether there are to be such breakpoints is found out anew at the next
// call that needs them.
func (tg *Target) unwatch(ctx context.Context, c *changeset) {
	if tg.Engine.Opts.NoOptimize || tg.unwatching {
		return
	}
	gone := map[*Placed]bool{}
	for p := range tg.affected(c).stay {
		if p.watch == watched && !p.user.handles() {
			gone[p] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	tg.unwatching = true // what follows are changes, too
	defer func() { tg.unwatching = false }()
	for p := range gone {
		p.watch = unwatchable // until it is planned
		for in := range p.pool.Active() {
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

// forgetWays takes out the breakpoints at which only functions of such probes
// are left.
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
