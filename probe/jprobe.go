package probe

import (
	"reflect"

	"kprobe/probe/signature"
)

// Jprobe is a probe at the entry of a function that calls a Go function with the
// function's arguments: the kernel's struct jprobe. The handlers of the Kprobe
// must be nil, but for FaultHandler.
//
// Entry is a func with the parameters of the probed function, of which it may
// leave out the last ones:
//
//	bool, int8 … int64, int, uint8 … uint64, uint, uintptr, symbols.Addr   integers, pointers
//	float32, float64        as float and double
//	string                  a char *; its text, at most 4096 bytes of it
//	*string                 the same, nil where there is nothing to read
//	*T                      what a pointer points to; nil where it can't be read
//
// T is a number, an array or a struct of such, laid out as C lays it out: all
// fields exported or named _, at most 2048 bytes. A pointer inside is a uintptr.
// A hit with a text that can't be read calls nothing, and is counted in
// Stats.Lost: take a *string where NULL may come.
//
// Entry is called when the reader has come to the hit: by Run, from one
// goroutine, in order of time, some milliseconds after the hit. The values are
// those of the hit. The probe stays a jump where it can be one. As its first
// parameter Entry may take a *Hit, which is valid until it returns.
//
// If its first parameter is a *Regs, Entry is called with the thread stopped, as
// a PreHandler: what is said there holds. It may then have a result, a bool: true
// skips the instruction. With a FaultHandler Entry is called so, too, and can't
// take a *Hit.
//
// The parameters are found by debug information; without it by the calling
// convention.
type Jprobe struct {
	Kprobe
	Entry any
}

// SignatureError says what in the signature of a Jprobe's Entry can't be.
type SignatureError = signature.Error

func (p *Jprobe) register() (*registered, error) {
	if p.PreHandler != nil {
		return nil, &InvalidProbeError{Field: "PreHandler", Reason: "a Jprobe has Entry: register a Kprobe beside it"}
	}
	if p.PostHandler != nil {
		return nil, &InvalidProbeError{Field: "PostHandler", Reason: "a Jprobe has Entry: register a Kprobe beside it"}
	}
	hit, regs := reflect.TypeFor[*Hit](), reflect.TypeFor[*Regs]()
	f, err := signature.Parse(p.Entry, signature.First{Type: hit}, signature.First{Type: regs, Result: true})
	if err != nil {
		return nil, err
	}
	if f.First() == hit && p.FaultHandler != nil {
		return nil, &InvalidProbeError{Field: "FaultHandler", Reason: "with it Entry is called while the thread is stopped: let Entry take a *Regs instead of the *Hit"}
	}
	u := p.registered(p)
	u.Call, u.Sync = f, f.First() == regs || p.FaultHandler != nil
	u.def, err = p.define("p", f.Source)
	if err == nil && f.ABI != f.Source {
		u.Abi, err = p.define("p", f.ABI)
	}
	if err != nil {
		return nil, err
	}
	return u, nil
}
