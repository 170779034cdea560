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

// FailWith is for tests of failing requests. f is asked before each request. If it returns an
// error, the request fails with it and isn't made. f isn't asked about what an injected call
// does by itself. nil removes f. FailWith must be called on the tracer's thread, or before
// there is a process.
func (t *Tracer) FailWith(f func(Request) error) { t.fails = f }

// LoseStatus is for tests. It makes each step look as on a virtual machine that loses the debug
// status register, as happens now and then. It must be called like FailWith.
func (t *Tracer) LoseStatus() { t.untold = true }

// asks returns the error that a test has for a request.
func (p *Process) asks(r Request) error {
	if p.tr.fails == nil || p.tr.injecting {
		return nil
	}
	r.Process = p
	return p.tr.fails(r)
}

// unasked calls fn without asking a test about its requests.
func (p *Process) unasked(fn func() error) error {
	was := p.tr.injecting
	p.tr.injecting = true
	defer func() { p.tr.injecting = was }()
	return fn()
}
