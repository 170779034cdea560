package probe

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"kprobe/fetch"
	"kprobe/probe/engine"
	"kprobe/probe/regs"
	"kprobe/symbols"
)

// Flags modify a registration.
type Flags uint8

// FlagDisabled registers a probe switched off, until EnableProbe. It is the kernel's
// KPROBE_FLAG_DISABLED.
const FlagDisabled Flags = 1

// Probe is what Register takes: a *Kprobe, a *Kretprobe or a *Jprobe.
type Probe interface {
	kprobe() *Kprobe
	register() (*registered, error)
}

// Kprobe is a probe at an instruction, the kernel's struct kprobe. Symbol and Offset, or Addr,
// give the place. A registered probe must not be changed or copied. It may be registered again
// after it was unregistered.
//
// Handlers run in the calling process while the thread that hit the probe is stopped. The other
// threads of the target keep running. All handlers of a session run on one goroutine, the
// tracer's, one after another, so they need no locks among themselves.
//
// A handler must be short: meanwhile every other thread that hits a probe waits. It must not
// wait for the target or for the sink, and must not end its goroutine (runtime.Goexit,
// testing's FailNow). It may call these methods of the session: EnableProbe, DisableProbe,
// Enable, Events and Stats. Methods that change the target return ErrInHandler.
//
// A probe with a handler is a breakpoint: a hit stops its thread, for some 15 to 60
// microseconds. A probe without one only counts, and is a jump where it can be.
type Kprobe struct {
	// Symbol names the place as the definition language does: SYM, MOD:SYM, SYM@FILE.c,
	// FILE.c:LINE. It must name one place.
	Symbol string
	// Offset is added to the symbol's address, in bytes. It must lead to the start of an
	// instruction.
	Offset uint64
	// Addr is the place as an address in the process. With it Symbol must be "" and Offset
	// 0. A probe by address is armed in every process of the session.
	Addr symbols.Addr
	// Name is the event's name in Events and Stats: EVENT or GROUP/EVENT. If it is "", the
	// name is made like the kernel's, kprobes/p_SYM_OFFSET, with a number appended if it is
	// taken.
	Name string
	// Flags is 0 or FlagDisabled.
	Flags Flags

	// PreHandler runs before the instruction, with IP at it. Its changes of regs become the
	// thread's. nil is none.
	//
	// If it returns true (the kernel's non-zero), the instruction is not executed: the
	// thread continues at regs.IP() at once, and later probes at the same place don't see
	// the hit. If it returns false, a change of IP is ignored, as in the kernel.
	PreHandler func(p *Kprobe, regs *Regs) (skip bool)
	// PostHandler runs after the instruction and before the program's next one, with the
	// registers as the instruction left them, and IP where it led. Changes of regs become
	// the thread's, also of IP. nil is none.
	//
	// It is not called if a PreHandler skipped the instruction, or if the instruction
	// faults. The instruction is single-stepped for it. That takes at least two more stops,
	// and one for each element of a repeated string instruction.
	PostHandler func(p *Kprobe, regs *Regs)
	// FaultHandler runs when the probed instruction faults, with the registers from before
	// the instruction, and IP at it. nil is none.
	//
	// If it returns true, the signal is dropped. The instruction is then executed again
	// with the registers as they are now; if IP was changed, the thread continues there
	// instead. If it returns false, the program gets its signal.
	//
	// Mistakes of handlers never come here. Memory that can't be read is an error of the
	// method, and a panic is a *HandlerError of Run.
	FaultHandler func(p *Kprobe, regs *Regs, f *Fault) (handled bool)

	reg atomic.Pointer[registered]   // nil: it isn't registered
	ev  atomic.Pointer[engine.Event] // of the last registration
}

// Fault describes the fault of an instruction.
type Fault = engine.Fault

// Kretprobe is a probe at the return of a function, the kernel's struct kretprobe. Its place is
// the function's entry. PreHandler and PostHandler of the Kprobe must be nil. FaultHandler is
// for the first instruction.
type Kretprobe struct {
	Kprobe
	// Handler runs when the function has returned, with IP at the address that it returned
	// to. For a Go function IP is at the instruction that leaves it. Changes of regs become
	// the thread's, also of IP. nil is none.
	Handler func(ri *KretprobeInstance, regs *Regs)
	// EntryHandler runs at the entry, if there is an instance for the call. If it returns
	// true, the call is not followed: its return calls no handler and isn't counted.
	// Changes of regs become the thread's, except of IP. nil is none.
	EntryHandler func(ri *KretprobeInstance, regs *Regs) (skip bool)
	// MaxActive is how many calls can be followed at once, at most 4096. Further calls are
	// counted in NMissed, and no handler is called for them. 0 is the default, 1024.
	MaxActive int
	// DataSize is the number of bytes of private data that each instance has.
	DataSize int
}

// KretprobeInstance is one call that a Kretprobe follows. It is valid until Handler returns, or
// an EntryHandler that skips the call.
type KretprobeInstance struct {
	Probe   *Kretprobe
	RetAddr symbols.Addr // where the call returns to; at the entry of a Go function too
	PID     int          // thread group that made the call
	TID     int          // thread that made the call
	// Data has DataSize bytes for the handlers, all zero at the entry. Value is for Go
	// values.
	Data  []byte
	Value any
}

func (p *Kprobe) kprobe() *Kprobe { return p }

// Registered reports whether the probe is registered with a session.
func (p *Kprobe) Registered() bool { return p.reg.Load() != nil }

// Event returns the event of the probe's last registration; nil before the first.
func (p *Kprobe) Event() *Event {
	if e := p.ev.Load(); e != nil {
		return &e.Event
	}
	return nil
}

// Stats returns the counters since the probe was last registered, summed over processes. They
// stay after Unregister. Before the first registration they are zero. It may be called at any
// time.
func (p *Kprobe) Stats() Stats {
	if e := p.ev.Load(); e != nil {
		return e.Own()
	}
	return Stats{}
}

// NMissed returns how many calls found no free instance since the probe was registered. Only a
// Kretprobe misses: no handler runs in the target, so none can hit another probe there.
func (p *Kprobe) NMissed() uint64 { return p.Stats().Missed }

// String returns the probe's place.
func (p *Kprobe) String() string {
	switch {
	case p.Symbol == "":
		return p.Addr.String()
	case p.Offset != 0:
		return fmt.Sprintf("%s+%#x", p.Symbol, p.Offset)
	}
	return p.Symbol
}

// place returns the place as a definition writes it.
func (p *Kprobe) place() (string, error) {
	switch {
	case p.Symbol != "" && p.Addr != 0:
		return "", &InvalidProbeError{Field: "Addr", Reason: "a place is a symbol or an address, and not both"}
	case p.Symbol == "" && p.Addr == 0:
		return "", &InvalidProbeError{Field: "Symbol", Reason: "the probe has no place"}
	case p.Symbol == "" && p.Offset != 0:
		return "", &InvalidProbeError{Field: "Offset", Reason: "it needs a symbol"}
	case p.Flags&^FlagDisabled != 0:
		return "", &InvalidProbeError{Field: "Flags", Reason: fmt.Sprintf("unknown flag %#x", uint8(p.Flags&^FlagDisabled))}
	case p.Addr != 0:
		return "0x" + strconv.FormatUint(uint64(p.Addr), 16), nil
	}
	s := p.Symbol
	if p.Offset != 0 {
		s += "+" + strconv.FormatUint(p.Offset, 10)
	}
	return `"` + s + `"`, nil
}

// define makes the definition of a probe. what is the letter with its suffix, args are the
// fetch arguments.
func (p *Kprobe) define(what, args string) (*fetch.Def, error) {
	place, err := p.place()
	if err != nil {
		return nil, err
	}
	head := what
	if p.Name != "" {
		head += ":" + p.Name
	}
	d, err := fetch.Parse(head + " " + place + args)
	if err != nil {
		return nil, err
	}
	want := fetch.Entry
	if what[0] == 'r' {
		want = fetch.Return
	}
	switch {
	case d.Place.IsGlob():
		return nil, &InvalidProbeError{Field: "Symbol", Reason: "a pattern names many places, and a probe has one"}
	case d.Kind != want:
		return nil, &InvalidProbeError{Field: "Symbol", Reason: "%return is a Kretprobe's"}
	}
	return d, nil
}

// registered begins the registration of the probe that contains this Kprobe.
func (p *Kprobe) registered(of Probe) *registered {
	u := &registered{probe: of, kp: p}
	if f := p.FaultHandler; f != nil {
		u.Fault = func(r *Regs, fault *Fault) bool { return f(p, r, fault) }
	}
	u.Disabled, u.Entered = p.Flags&FlagDisabled != 0, func(ev *engine.Event) { p.ev.Store(ev) }
	u.Failed = func(handler string, value any, stack []byte) error {
		return &HandlerError{Probe: of, Handler: handler, Value: value, Stack: stack}
	}
	return u
}

func (p *Kprobe) register() (*registered, error) {
	d, err := p.define("p", "")
	if err != nil {
		return nil, err
	}
	u := p.registered(p)
	u.def = d
	if f := p.PreHandler; f != nil {
		u.Pre = func(r *Regs) bool { return f(p, r) }
	}
	if f := p.PostHandler; f != nil {
		u.Post = func(r *Regs) { f(p, r) }
	}
	u.Sync = u.Pre != nil || u.Post != nil || u.Fault != nil
	return u, nil
}

func (p *Kretprobe) register() (*registered, error) {
	switch {
	case p.PreHandler != nil:
		return nil, &InvalidProbeError{Field: "PreHandler", Reason: "a Kretprobe has Handler and EntryHandler: register a Kprobe beside it"}
	case p.PostHandler != nil:
		return nil, &InvalidProbeError{Field: "PostHandler", Reason: "a Kretprobe has Handler: register a Kprobe beside it"}
	case p.MaxActive < 0 || p.MaxActive > fetch.MaxActive:
		return nil, &InvalidProbeError{Field: "MaxActive", Reason: fmt.Sprintf("%d is not between 0 and %d", p.MaxActive, fetch.MaxActive)}
	case p.DataSize < 0 || p.DataSize > maxDataSize:
		return nil, &InvalidProbeError{Field: "DataSize", Reason: fmt.Sprintf("%d is not between 0 and %d", p.DataSize, maxDataSize)}
	}
	what := "r"
	if p.MaxActive != 0 {
		what += strconv.Itoa(p.MaxActive)
	}
	d, err := p.define(what, "")
	if err != nil {
		return nil, err
	}
	u := p.registered(p)
	u.def, u.Follow = d, p.follow
	if f := p.EntryHandler; f != nil {
		u.Entry = func(call any, r *Regs) bool { return f(call.(*KretprobeInstance), r) }
	}
	if f := p.Handler; f != nil {
		u.Left = func(call any, ret symbols.Addr, r *Regs) {
			ri := call.(*KretprobeInstance)
			ri.RetAddr = ret
			f(ri, r)
		}
	}
	u.Sync = u.Left != nil || u.Entry != nil || u.Fault != nil
	return u, nil
}

// follow makes the public side of a call's instance. before is that of an earlier call with the
// same instance, to be reused.
func (p *Kretprobe) follow(before any, in *engine.Instance) any {
	data := []byte(nil)
	if ri, ok := before.(*KretprobeInstance); ok {
		data = ri.Data
	}
	if len(data) != p.DataSize {
		data = make([]byte, p.DataSize)
	}
	clear(data)
	return &KretprobeInstance{Probe: p, RetAddr: in.Return, PID: in.TGID, TID: in.TID, Data: data}
}

// maxDataSize bounds the private data of an instance. There may be thousands of instances.
const maxDataSize = 1 << 20

// Regs are the registers that a handler sees, the kernel's struct pt_regs.
type Regs = regs.Regs

// ErrStale is returned by methods of a Regs after its handler has returned.
var ErrStale = regs.ErrStale
