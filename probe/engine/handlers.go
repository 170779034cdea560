package engine

import (
	"errors"
	"sync/atomic"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/regs"
	"kprobe/probe/signature"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Handlers are what is called at the hits of a probe that was registered, as the engine
// calls them (callbacks.go): over the registers of the thread that is stopped. Each may be
// nil. They are not changed after they were made, but for gone.
type Handlers struct {
	Pre   func(r *regs.Regs) (skip bool)
	Post  func(r *regs.Regs)
	Fault func(r *regs.Regs, f *Fault) (handled bool)
	// Of a return probe: follow makes what its handlers keep of a call, out of what they
	// kept of one that is over, or nil; entry is called when there is an instance for the
	// call, left when it has returned.
	Follow func(before any, in *Instance) any
	Entry  func(call any, r *regs.Regs) (skip bool)
	Left   func(call any, ret symbols.Addr, r *regs.Regs)
	Call   *signature.Func // of a jprobe
	// abi is a jprobe's definition for a function without debug information,
	// where that differs; nil: it doesn't.
	Abi  *fetch.Def
	Gone atomic.Bool // the probe was unregistered
	// sync says that handlers run with the thread stopped: the probe must be a
	// breakpoint.
	Sync bool
	// entered is told the probe's event, which begins switched off where disabled says so.
	Entered  func(ev *Event)
	Disabled bool
	// failed gives the error of a handler that panicked.
	Failed func(handler string, value any, stack []byte) error
}

// whyTrap says why the probe can't be a jump; "" if it can. u may be nil.
func (u *Handlers) whyTrap() string {
	if u == nil || !u.Sync {
		return ""
	}
	return "its handlers run with the thread stopped"
}

// handles reports whether hits go to handlers at once, instead of being
// recorded. u may be nil.
func (u *Handlers) handles() bool { return u != nil && u.Sync }

// records reports whether hits leave records: those of a session that wants
// some, and of jprobes whose function is called by the reader. A probe with
// other handlers, or none, counts.
func (s *Engine) records(u *Handlers) bool {
	if u == nil {
		return !s.Opts.CountOnly
	}
	return u.Call != nil && !u.Sync
}

// form chooses the definition that fetches the parameters at a place. u may be
// nil.
func (u *Handlers) form(d *fetch.Def, e *assess.Env) (*fetch.Def, error) {
	if u == nil || u.Call == nil {
		return d, nil
	}
	if !e.AtEntry() {
		return nil, &survey.RefusedError{Addr: e.Site.Addr, Place: e.Site.Name, Rule: "a jprobe needs a function's entry"}
	}
	if u.Abi == nil {
		return d, nil
	}
	// ErrNoValue is of a parameter that is known.
	if _, err := e.Argument(1); err != nil && !errors.Is(err, fetch.ErrNoValue) {
		return u.Abi, nil
	}
	return d, nil
}

// Fault is what an instruction did that faulted.
type Fault struct {
	Signal int          // its number: SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGTRAP
	Code   int          // si_code (sigaction(2))
	Addr   symbols.Addr // si_addr: of the data of SIGSEGV and SIGBUS, else of the instruction
}
