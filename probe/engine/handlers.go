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

// Handlers are the handlers of a registered probe, in the form in which the engine calls them
// (callbacks.go). They get the registers of the stopped thread. Each may be nil. Only Gone changes
// after they were made.
type Handlers struct {
	Pre   func(r *regs.Regs) (skip bool)
	Post  func(r *regs.Regs)
	Fault func(r *regs.Regs, f *Fault) (handled bool)
	// A return probe has these three. Follow makes the value that the handlers keep for a call;
	// before is the value of an earlier call to reuse, or nil. Entry is called when the call has
	// an instance, Left when it has returned.
	Follow func(before any, in *Instance) any
	Entry  func(call any, r *regs.Regs) (skip bool)
	Left   func(call any, ret symbols.Addr, r *regs.Regs)
	Call   *signature.Func // of a jprobe
	// Abi is a jprobe's definition for a function without debug information; nil if it is the
	// same as with.
	Abi  *fetch.Def
	Gone atomic.Bool // the probe was unregistered
	// Sync says that the handlers run with the thread stopped, so the probe must be a
	// breakpoint.
	Sync bool
	// Entered is called with the probe's event. Disabled says that the event begins switched off.
	Entered  func(ev *Event)
	Disabled bool
	// Failed makes the error of a handler that panicked.
	Failed func(handler string, value any, stack []byte) error
}

// whyTrap is the reason why the probe can't be a jump; "" if it can. u may be nil.
func (u *Handlers) whyTrap() string {
	if u == nil || !u.Sync {
		return ""
	}
	return "its handlers run with the thread stopped"
}

// handles reports whether hits call handlers at once instead of being recorded. u may be nil.
func (u *Handlers) handles() bool { return u != nil && u.Sync }

// records reports whether hits of a probe make records: those of definitions, unless the session
// only counts, and those of jprobes whose function the reader calls. Other registered probes only
// count. u may be nil.
func (s *Engine) records(u *Handlers) bool {
	if u == nil {
		return !s.Opts.CountOnly
	}
	return u.Call != nil && !u.Sync
}

// form is the definition that fetches a jprobe's parameters at a place; else d. u may be nil.
func (u *Handlers) form(d *fetch.Def, e *assess.Env) (*fetch.Def, error) {
	if u == nil || u.Call == nil {
		return d, nil
	}
	if !e.AtEntry() {
		return nil, &survey.RefusedError{Addr: e.Site.Addr, Place: e.Site.Name(), Rule: "a jprobe needs a function's entry"}
	}
	if u.Abi == nil {
		return d, nil
	}
	// With ErrNoValue the parameter is known, but has no value here.
	if _, err := e.Argument(1); err != nil && !errors.Is(err, fetch.ErrNoValue) {
		return u.Abi, nil
	}
	return d, nil
}

// Fault describes a fault of a probed instruction.
type Fault struct {
	Signal int          // its number: SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGTRAP
	Code   int          // si_code (sigaction(2))
	Addr   symbols.Addr // si_addr: of the data of SIGSEGV and SIGBUS, else of the instruction
}
