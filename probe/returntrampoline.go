package probe

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/exits"
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

// followed is a return probe of return trampolines: its instances, and its code once it
// is built.
type followed struct {
	probe *placed
	pool  detour.Pool
	code  *detour.Return
	// suspects are the instances that the last look for abandoned ones found.
	suspects map[int]detour.Instance
}

// followable says why the calls of a function can't return by a return trampoline; "" if
// they can.
func (o *planner) followable(w patchRequest) string {
	tg := o.tg
	f, err := tg.leaving(w.Site)
	switch {
	case w.p.goABI || w.Site.Module.File.IsGo():
		return "Go's runtime looks for return addresses on its stacks"
	case tg.s.recordsStacks():
		return "stacks are recorded, and a return trampoline would hide the caller"
	case tg.shadowStack:
		return "a shadow stack would keep the return trampoline's address when kprobe has left"
	case err != nil:
		return err.Error()
	case strings.HasPrefix(w.Site.Module.Name, "ld-"):
		return "the loader's functions are entered in ways of their own"
	}
	if why := exits.Peculiar(w.Site.Func.Symbol.Name); why != "" {
		return why
	}
	if by := o.unwinder(); by != "" {
		return "exceptions and backtraces by " + by + " would find no way past a return trampoline"
	}
	if f.Leaving().StartsOver {
		return "the function jumps to its own entry"
	}
	return ""
}

// returnStage builds the code of a return probe as a stage.
func (o *planner) returnStage(st *stage, w patchRequest, tail tailFunc) ([]byte, error) {
	params, f := o.params, o.course(w.p).followed
	params.Sketch = st.sketch
	r, err := detour.BuildReturn(uint64(st.base), &params, o.probesOf([]patchRequest{w})[0], f.pool, tail)
	if err != nil {
		return nil, err
	}
	f.code = r
	st.detour, st.returns, st.trampolines = &r.Detour, f, r
	return r.Code, nil
}

// leaveReturn is leave for the stage of a return probe.
func (s *stage) leaveReturn(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	var r fetch.Regs
	tracee.FetchRegs(regs, &r)
	ok, err := s.trampolines.Leave(&r, mem, uint64(s.at))
	if err != nil {
		return nil, false
	}
	out := *regs
	out.Rip = uint64(s.at)
	if ok {
		fromFetch(&r, &out)
		out.Rip = r.IP
	}
	return &out, true
}

// held gives the call whose return trampoline is at an address.
func (tg *target) held(a symbols.Addr) (*followed, int) {
	st := tg.patches.stageAt(a)
	if st == nil || st.returns == nil {
		return nil, 0
	}
	n := st.trampolines.Instance(uint64(a))
	if n == 0 || st.trampolines.Trampoline(n) != uint64(a) {
		return nil, 0
	}
	return st.returns, n
}

// behind gives the address that a call returns to in the program: a itself,
// or what stands behind it if it is a return trampoline.
func (tg *target) behind(a symbols.Addr) symbols.Addr {
	f, n := tg.held(a)
	if f == nil {
		return a
	}
	var word [8]byte
	if _, err := tg.proc.ReadMemory(word[:], symbols.Addr(f.pool.RealAt(n))); err != nil {
		return a
	}
	return symbols.Addr(binary.LittleEndian.Uint64(word[:]))
}
