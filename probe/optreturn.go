package probe

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/fetch"
	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How a return is seen without a trap
//
// The jump at the function's entry leads to code that takes an instance,
// keeps the return address in it and calls the function's displaced
// instructions: the function returns to the instance's landing, which records
// the hit and returns to the caller (probe/detour, BuildReturn).
//
// While the call is under way its slot on the stack has the landing's address.
// Whoever takes the probe out puts the program's own there again; a killed
// kprobe leaves landings that need nobody. What reads return addresses from
// the stack would meet the landing: where there is such a reader the probe
// goes by the function's exits or breakpoints, which leave the stack alone
// (optexit.go, returns.go). followable has the rules.

// followed is a return probe of landings: its instances, and its code once it
// is built.
type followed struct {
	probe *placed
	pool  detour.Pool
	code  *detour.Return
	// filled says that the pool's memory is written.
	filled bool
	// suspects are the instances that the last look for abandoned ones found.
	suspects map[int]detour.Instance
}

// followable says why the calls of a function can't return by a landing; "" if
// they can.
func (tg *target) followable(w want) string {
	f, err := tg.function(w.at)
	switch {
	case w.p == nil || w.p.goABI || w.at.Module.File.IsGo():
		return "Go's runtime looks for return addresses on its stacks"
	case tg.s.recordsStacks():
		return "stacks are recorded, and a landing would hide the caller"
	case tg.shadowStack:
		return "a shadow stack would keep the landing's address when kprobe has left"
	case err != nil:
		return err.Error()
	case strings.HasPrefix(w.at.Module.Name, "ld-"):
		return "the loader's functions are entered in ways of their own"
	}
	if why := peculiar(plainName(w.at.Func.Symbol.Name)); why != "" {
		return why
	}
	if by := tg.unwinder(); by != "" {
		return "exceptions and backtraces by " + by + " would find no way past a landing"
	}
	for _, t := range f.sweep.Targets() {
		if t.To == uint64(f.start) && !t.Call {
			return "the function jumps to its own entry"
		}
	}
	return ""
}

// plainName is a symbol's name without leading underscores and version.
func plainName(name string) string {
	name, _, _ = strings.Cut(strings.TrimLeft(name, "_"), "@")
	return name
}

// Reasons of peculiar that probes at exits tell apart.
const (
	returnsTwice = "it may return twice"
	asksCaller   = "it asks who its caller is"
)

// peculiar says why a function of that name, without leading underscores,
// needs its own return address; "" if it is like any other.
func peculiar(name string) string {
	switch name {
	case "start":
		return "it is entered without a return address"
	case "setjmp", "sigsetjmp", "getcontext", "swapcontext", "vfork", "clone", "clone2", "clone3", "syscall":
		return returnsTwice
	case "dlopen", "dlsym", "dlvsym", "dlmopen", "libc_dlopen_mode", "libc_dlsym":
		return asksCaller
	case "fentry", "mcount", "morestack":
		return "it works on its caller's return address"
	}
	if strings.HasPrefix(name, "x86_") && strings.Contains(name, "thunk") {
		return "it works on its own return address"
	}
	return ""
}

// unwinder names what may walk the target's stacks by its unwind information;
// "" if nothing can. The module that a program loads later is not foreseen:
// glibc's pthread_exit and pthread_cancel load libgcc_s, and where it finds no
// way past a landing they end the thread as if its stack ended there, which
// is right in a program that had no handlers to call.
func (tg *target) unwinder() string {
	for _, m := range tg.space.Modules() {
		for _, lib := range [...]string{"libgcc_s.", "libunwind", "libstdc++", "libc++", "libasan", "libtsan"} {
			if strings.HasPrefix(m.Name, lib) {
				return m.Name
			}
		}
		if m.File == nil || strings.HasPrefix(m.Name, "libc.") || strings.HasPrefix(m.Name, "ld-") || strings.HasPrefix(m.Name, "libpthread") {
			continue // glibc's own cleanups need none
		}
		if len(m.File.Lookup("_Unwind_RaiseException")) > 0 {
			return m.Name
		}
		// Landing pads of exceptions: some unwinder must be there for them.
		if _, _, ok := m.File.SectionData(".gcc_except_table"); ok {
			return m.Name
		}
	}
	return ""
}

// returnStage builds the code of a return probe as a stage.
func (o *optimizer) returnStage(st *stage, w want, tail tailFunc) ([]byte, error) {
	params := o.params
	params.Sketch = st.sketch
	r, err := detour.BuildReturn(uint64(st.base), &params, probesOf([]want{w})[0], w.p.followed.pool, tail)
	if err != nil {
		return nil, err
	}
	w.p.followed.code = r
	o.tg.tap.landed.hide(st.base, st.base+symbols.Addr(len(r.Code)))
	st.detour, st.returns = &r.Detour, w.p.followed
	return r.Code, nil
}

// leaveReturn is leave for the stage of a return probe.
func (s *stage) leaveReturn(regs *unix.PtraceRegs, mem symbols.Memory) (*unix.PtraceRegs, bool) {
	var r fetch.Regs
	tracee.FetchRegs(regs, &r)
	ok, err := s.returns.code.Leave(&r, mem, uint64(s.at))
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

// held gives the call whose landing is at an address.
func (tg *target) held(a symbols.Addr) (*followed, int) {
	st := tg.patches.stageAt(a)
	if st == nil || st.returns == nil {
		return nil, 0
	}
	n := st.returns.code.Instance(uint64(a))
	if n == 0 || st.returns.code.Landing(n) != uint64(a) {
		return nil, 0
	}
	return st.returns, n
}

// behind gives the address that a call returns to in the program: a itself,
// or what stands behind it if it is a landing.
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

// restoreReturns puts the program's return addresses back into the slots that
// hold landings, in the target or in a copy of its memory. No thread of it may
// run, nor be in the code of a return probe.
func (tg *target) restoreReturns(p *tracee.Process) error {
	for _, st := range tg.patches.stages {
		if st.returns == nil {
			continue
		}
		pool := st.returns.pool
		mem := make([]byte, pool.Size())
		if _, err := p.ReadMemory(mem, symbols.Addr(pool.Addr)); err != nil {
			return fmt.Errorf("read return instances: %w", err)
		}
		for _, in := range pool.Used(mem) {
			var word [8]byte
			if _, err := p.ReadMemory(word[:], symbols.Addr(in.Slot)); err != nil {
				continue // the stack is gone
			}
			if binary.LittleEndian.Uint64(word[:]) != st.returns.code.Landing(in.Number) {
				continue // abandoned, or a function that was jumped to has its landing there
			}
			if err := p.WriteMemory(put64(in.Real), symbols.Addr(in.Slot)); err != nil {
				return fmt.Errorf("put a return address back: %w", err)
			}
		}
	}
	return nil
}
