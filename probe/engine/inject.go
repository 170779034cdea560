package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/regs"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Injection is how a session changes calls of the functions that its definitions name. It changes
// calls that pass the definition's filter. A call that isn't changed counts as filtered. The zero
// value changes nothing.
type Injection struct {
	// Result, if not nil, is what a call returns at once, in %ax: its function is not
	// executed.
	Result *uint64
	// Errno is written to the thread's errno before the call returns; 0 writes none.
	Errno int32
	// Delay is how long the thread stays stopped at the function's entry; 0 is not at all.
	// Meanwhile it takes no signals except SIGKILL.
	Delay time.Duration
	// Every changes each Nth call; 0 and 1 change all.
	Every uint64
	// Limit is how many calls are changed in all; 0 is no limit.
	Limit uint64
}

// InjectionError says why calls can't be changed as asked.
type InjectionError struct {
	Def *fetch.Def
	Why string
}

func (e *InjectionError) Error() string { return fmt.Sprintf("%s: %s", e.Def.Place, e.Why) }

// Injecting is an Injection with its counters. It is used on the tracer's thread only.
//
// Calls that return at once are changed by detours if their function can have a jump, else by the
// tracer at a breakpoint. Both use the same counters in the memory file. A call is delayed by
// keeping its thread stopped.
type Injecting struct {
	Injection
	seen, changed uint64 // counters if no detour counts (Options.NoOptimize)
}

// NeedsTracer reports whether detours can't make the change. Several processes count separately in
// their detours, so they can't apply Every and Limit to all calls together.
func (x *Injecting) NeedsTracer(several bool) bool {
	return x.Delay > 0 || x.Result == nil || several && (x.Every > 1 || x.Limit > 0)
}

// due counts a call that the filter has passed, and reports whether it is changed.
func (x *Injecting) due(tg *Target) bool {
	if !tg.Engine.Opts.NoOptimize {
		f := tg.Area.File
		at := f.Layout.Injection()
		passed := func(was uint64) uint64 { return (was + 1) % x.Every }
		if x.Every > 1 && passed(f.Update64(at+ring.InjectPassed, passed)) != 0 {
			return false
		}
		changed := func(was uint64) uint64 { return min(was+1, x.Limit) }
		return x.Limit == 0 || f.Update64(at+ring.InjectChanged, changed) < x.Limit
	}
	x.seen++
	if x.Every > 1 && x.seen%x.Every != 0 || x.Limit > 0 && x.changed == x.Limit {
		return false
	}
	x.changed++
	return true
}

// undue undoes due for a call that could not be changed.
func (x *Injecting) undue(tg *Target) {
	if tg.Engine.Opts.NoOptimize {
		x.changed--
	} else if x.Limit > 0 {
		f := tg.Area.File
		f.Add64(f.Layout.Injection()+ring.InjectChanged, ^uint64(0))
	}
}

// injection is how the probe's detours change calls; nil: they don't.
func (p *Placed) injection() *detour.Injection {
	tg := p.target
	x := tg.Engine.Inject
	if x == nil || x.Result == nil {
		return nil
	}
	f := tg.Area.File
	return &detour.Injection{
		Counters: uint64(f.Addr(f.Layout.Injection())), Every: x.Every, Limit: x.Limit,
		Result: *x.Result, Errno: x.Errno, ErrnoOff: tg.errnoOff,
	}
}

// mayInject returns an *InjectionError if calls at a place can't be changed as asked.
func (tg *Target) mayInject(def *fetch.Def, at symbols.Site) error {
	fail := func(why string) error { return &InjectionError{def, why} }
	x := tg.Engine.Inject
	m := at.Module
	switch {
	case def.Kind == fetch.Return:
		return fail("a call is changed at its entry: write p, or the function alone")
	case at.Offset != 0:
		return fail("this is not the entry of a function: only a whole call can be changed")
	case x.Result == nil:
		return nil
	case m != nil && m.File != nil && m.File.IsGo():
		return fail("a Go function's results take several registers: only --delay can be injected")
	case tg.shadowStack:
		return fail("the program has a shadow stack, which only its own return instruction keeps consistent")
	}
	if x.Errno != 0 {
		off, err := tg.errnoOffset()
		if err == nil && int64(int32(off)) != off {
			err = errErrno
		}
		if err != nil {
			return fail(err.Error())
		}
		tg.errnoOff = int32(off)
	}
	return nil
}

// errErrno says that errno can't be set.
var errErrno = errors.New("it is not known where the program has errno: --return without --errno works")

// errnoOffset is the distance of a thread's errno from its thread pointer (fs), in bytes. The error is
// errErrno.
func (tg *Target) errnoOffset() (int64, error) {
	for _, m := range tg.Space.Modules() {
		if m.File == nil {
			continue
		}
		for _, sym := range m.File.Lookup("errno") {
			if sym.Kind != symbols.KindTLS {
				continue
			}
			if b, err := tg.Space.TLS(m); err == nil && b.Static {
				return b.Offset + int64(sym.Vaddr), nil
			}
		}
	}
	return 0, errErrno
}

// injectAt takes a hit at a function's entry in a session that changes calls.
func (s *Engine) injectAt(p *Placed) {
	s.ctx.Entry, s.ctx.Time = nil, s.now
	if s.Stopping || p.removed || !p.feed.enabled(p) {
		return
	}
	rec, pass := p.Program.Eval(&s.ctx, s.rec[:0])
	s.rec = rec[:0]
	if !pass || !s.Inject.due(p.target) {
		p.feed.producer.Count(s.ctx.CPU, p.Id, ring.CounterFiltered, 1)
		return
	}
	if err := s.change(p); err != nil {
		s.Warnf("thread %d: %v: the call is left as it is", s.ctx.TID, err)
		s.Inject.undue(p.target)
		p.feed.producer.Count(s.ctx.CPU, p.Id, ring.CounterFiltered, 1)
		return
	}
	p.feed.Names.Note(s.ctx.TID, s.ctx.Comm)
	p.feed.put(p, rec, 0)
}

// change changes the call whose entry the thread is at. On an error the call isn't changed.
func (s *Engine) change(p *Placed) error {
	x := s.Inject
	if x.Result != nil {
		r := s.newRegs(p)
		if r == nil {
			return tracee.ErrGone
		}
		if err := r.SkipFunction(*x.Result); err != nil {
			return err
		}
		if x.Errno != 0 {
			at := symbols.Addr(regs.Registers(r).Fs_base + uint64(int64(p.target.errnoOff)))
			if err := r.WriteMemory(binary.LittleEndian.AppendUint32(nil, uint32(x.Errno)), at); err != nil {
				return fmt.Errorf("write errno: %w", err)
			}
		}
		s.apply(r)
		s.jump(r)
	}
	s.delay = x.Delay
	return nil
}

// delayed keeps a thread stopped for s.delay. v is the verdict without a delay.
func (s *Engine) delayed(t *tracee.Thread, v tracee.Verdict) tracee.Verdict {
	d := s.delay
	s.delay = 0
	if d <= 0 || v != tracee.Resume {
		return v
	}
	time.AfterFunc(d, func() {
		// An error only says that the session is closed, which has let the thread go, or that
		// the thread is gone.
		_ = s.Tracer.Do(func() error {
			if s.Closed {
				return nil
			}
			return t.Resume()
		})
	})
	return tracee.Stay
}
