package probe

import (
	"reflect"

	"kprobe/probe/signature"
)

// Jprobe is a probe at the entry of a function. It calls a Go function with the function's
// arguments, as the kernel's struct jprobe does. The handlers of the Kprobe must be nil, except
// FaultHandler.
//
// Entry is a func with the parameters of the probed function. It may omit the last ones:
//
//	bool, int8 … int64, int, uint8 … uint64, uint, uintptr, symbols.Addr   integers, pointers
//	float32, float64        float and double
//	string                  the text of a char *, at most 4096 bytes
//	*string                 the same, nil if there is nothing to read
//	*T                      what a pointer points to; nil if it can't be read
//
// T is a number, an array or a struct of such, laid out as in C, at most 2048 bytes. All fields
// must be exported or named _. A pointer inside is a uintptr. If the text of a string can't be
// read, Entry is not called, and the hit is counted in Stats.Lost. Use a *string where NULL may
// occur.
//
// Run calls Entry when the reader reaches the hit: from one goroutine, in order of time, some
// milliseconds after the hit. The values are those of the hit. The probe stays a jump where it
// can be one. The first parameter of Entry may be a *Hit, which is valid until Entry returns.
//
// If the first parameter is a *Regs, Entry is called like a PreHandler, with the thread
// stopped, and the same rules apply. It may then return a bool: true skips the instruction.
// With a FaultHandler Entry is also called this way, and can't take a *Hit.
//
// Parameters are located by debug information, or by the calling convention if there is none.
type Jprobe struct {
	Kprobe
	Entry any
}

// SignatureError says what is wrong with the signature of a Jprobe's Entry.
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
