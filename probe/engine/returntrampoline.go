package engine

import (
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a return is seen without a trap
//
// The jump at the function's entry leads to code that takes an instance,
// keeps the return address in it and calls the function's displaced
// instructions: the function returns to the instance's return trampoline, which records
// the hit and returns to the caller (probe/detour, BuildReturn).
//
// While the call is under way its slot on the stack has the return trampoline's address.
// Whoever takes the probe out puts the program's own there again; a killed
// kprobe leaves return trampolines that need nobody. What reads return addresses from
// the stack would meet the return trampoline: where there is such a reader the probe
// goes by the function's exits or breakpoints, which leave the stack alone
// (returnexits.go, returnbreakpoint.go). followable has the rules.

// trampolineProbe is a return probe of return trampolines, with its instances.
type trampolineProbe struct {
	noted
	pool detour.Pool
}

func (f *trampolineProbe) Memory() callMemory             { return f.pool }
func (f *trampolineProbe) At() uint64                     { return f.pool.Addr }
func (f *trampolineProbe) blank(s *detour.Shared) []byte  { return f.pool.Image(s) }
func (f *trampolineProbe) inUse() bool                    { return f.probe.Optimized }
func (f *trampolineProbe) owns([]byte, int, *Placed) bool { return true }
func (f *trampolineProbe) outlives() bool                 { return true }

// followable says why the calls of a function can't return by a return trampoline; "" if
// they can.
func (o *planner) followable(w PatchRequest) string {
	f, err := o.ground.code.leaving(w.Site)
	switch {
	case w.P.goABI || w.Site.Module.File.IsGo():
		return "Go's runtime looks for return addresses on its stacks"
	case o.ground.stacks:
		return "stacks are recorded, and a return trampoline would hide the caller"
	case o.ground.shadowStack:
		return "a shadow stack would keep the return trampoline's address when kprobe has left"
	case err != nil:
		return err.Error()
	case strings.HasPrefix(w.Site.Module.Name, "ld-"):
		return "the loader's functions are entered in ways of their own"
	}
	if why := exits.Peculiar(w.Site.Func.Symbol.Name); why != "" {
		return why
	}
	if by := o.ground.unwinder(); by != "" {
		return "exceptions and backtraces by " + by + " would find no way past a return trampoline"
	}
	if f.Leaving().StartsOver {
		return "the function jumps to its own entry"
	}
	return ""
}

func (f *trampolineProbe) buildEntry(o *planner, st *stage, ws []PatchRequest, tail tailFunc) ([]byte, error) {
	params := o.params
	params.Sketch = st.sketch
	r, err := detour.BuildReturn(uint64(st.base), &params, o.probesOf(ws[len(ws)-1:])[0], f.pool, tail)
	if err != nil {
		return nil, err
	}
	st.Detour, st.Way, st.trampolines = &r.Detour, f, r
	return r.Code, nil
}

func (f *trampolineProbe) leave(st *stage, regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	var r fetch.Regs
	tracee.FetchRegs(regs, &r)
	ok, err := st.trampolines.Leave(&r, mem, uint64(st.At))
	if err != nil {
		return nil, false
	}
	out := *regs
	out.Rip = uint64(st.At)
	if ok {
		fromFetch(&r, &out)
		out.Rip = r.IP
	}
	return &out, true
}

// held gives the call whose return trampoline is at an address.
func (tg *Target) held(a symbols.Addr) (*trampolineProbe, int) {
	st := tg.Patches.StageAt(a)
	if st == nil {
		return nil, 0
	}
	f, ok := st.Way.(*trampolineProbe)
	if !ok {
		return nil, 0
	}
	n := st.trampolines.Instance(uint64(a))
	if n == 0 || st.trampolines.Trampoline(n) != uint64(a) {
		return nil, 0
	}
	return f, n
}

// abandoned reports whether a call won't return by its return trampoline: whether it is
// not among those that its slot leads to, from return trampoline to return trampoline where
// functions jumped to each other.
func (f *trampolineProbe) abandoned(tg *Target, in detour.Instance, _ []uint64) bool {
	var word [8]byte
	next := symbols.Addr(in.Slot)
	for range detour.MaxInstances {
		if _, err := tg.Proc.ReadMemory(word[:], next); err != nil {
			return !errors.Is(err, symbols.ErrLatePage)
		}
		now, n := tg.held(symbols.Addr(le64(word[:])))
		if now == nil {
			return true
		}
		if now == f && n == in.Number {
			return false
		}
		next = symbols.Addr(now.pool.ReturnAt(n))
	}
	return false
}

// rollBack makes a call that can't be noted one without an instance; a return that can't
// be recorded is lost. Its instance comes back when it is needed.
func (f *trampolineProbe) rollBack(tg *Target, at faulting) (v tracee.Verdict, done bool) {
	t, st := at.t, at.st
	var r fetch.Regs
	tracee.FetchRegs(at.in, &r)
	taken, inFrame, _ := st.Detour.Undo(&r, tg.Proc)
	out, ok := f.leave(st, at.in, tg.Proc)
	if !ok {
		return tracee.Deliver, false
	}
	tg.faulted(t, at.si)
	trampoline := out.Rip != uint64(st.At)
	if !trampoline {
		out.Rip = uint64(st.CopyAt)
	}
	if err := errors.Join(t.EndSequence(tg.inStage), t.SetRegs(out)); err != nil {
		return tracee.Resume, true // gone
	}
	tg.rollbacks++
	s, p := tg.Engine, f.probe
	if (!inFrame || taken == 0) && s.fill(tg, tg.thread(t)) == nil && !s.Stopping && p.feed.enabled(p) {
		if trampoline {
			p.feed.producer.Count(s.ctx.CPU, p.Id, ring.CounterLost, 1)
		} else {
			s.miss(p)
		}
	}
	return tg.resumed(t, out), true
}

// behind gives the address that a call returns to in the program: a itself,
// or what stands behind it if it is a return trampoline.
func (tg *Target) behind(a symbols.Addr) symbols.Addr {
	f, n := tg.held(a)
	if f == nil {
		return a
	}
	var word [8]byte
	if _, err := tg.Proc.ReadMemory(word[:], symbols.Addr(f.pool.RealAt(n))); err != nil {
		return a
	}
	return symbols.Addr(binary.LittleEndian.Uint64(word[:]))
}
