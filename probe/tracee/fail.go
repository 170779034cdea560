//go:build linux && amd64

package tracee

import "kprobe/symbols"

// Request is something that a Tracer is about to do to a process.
type Request struct {
	Process *Process
	Kind    RequestKind
	Addr    symbols.Addr // of a write
	Len     int          // of a write, in bytes
	Nr      uintptr      // of a system call
}

// RequestKind is a kind of Request.
type RequestKind uint8

// The kinds of requests.
const (
	RequestWrite   RequestKind = iota // WriteMemory
	RequestSetRegs                    // SetRegs
	RequestSyscall                    // Syscall and what makes one; Call
)

// FailWith is for tests of what callers do when a request fails: f is asked before
// each, and the error that it returns is the request's, which isn't made then. What
// an injected call does by itself isn't asked about. Nil asks nobody. It is to be
// called on the tracer's thread, or before there is a process.
func (t *Tracer) FailWith(f func(Request) error) { t.fails = f }

// LoseStatus is for tests of what virtual machines do now and then: each step is reported
// as the kernel does that finds the debug status register empty. It is to be called as
// FailWith is.
func (t *Tracer) LoseStatus() { t.untold = true }

// asks is the error that a test has for a request.
func (p *Process) asks(r Request) error {
	if p.tr.fails == nil || p.tr.injecting {
		return nil
	}
	r.Process = p
	return p.tr.fails(r)
}

// unasked calls fn, about whose requests no test is asked.
func (p *Process) unasked(fn func() error) error {
	was := p.tr.injecting
	p.tr.injecting = true
	defer func() { p.tr.injecting = was }()
	return fn()
}
