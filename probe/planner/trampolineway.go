package planner

import (
	"strings"

	"kprobe/probe/detour"
	"kprobe/probe/exits"
)

// How a return is seen by a return trampoline
//
// The jump at the function's entry leads to code that takes an instance, keeps the return
// address in it and calls the function's displaced instructions. The function returns to the
// instance's return trampoline, which records the hit and returns to the caller (probe/detour,
// BuildReturn).
//
// During the call its slot on the stack has the return trampoline's address. Whoever removes
// the probe puts the program's own address back. A killed kprobe leaves return trampolines that
// need nobody. Anything that reads return addresses from the stack would find the return
// trampoline. If there is such a reader, the probe uses the function's exits or breakpoints,
// which leave the stack alone (exitway.go; probe/engine, returnbreakpoint.go). followable has
// the rules.

// TrampolineWay is the Way of a return probe by return trampolines, with its instances.
type TrampolineWay struct {
	Probe *Probe
	Pool  detour.Pool
}

func (f *TrampolineWay) Of() *Probe         { return f.Probe }
func (f *TrampolineWay) Memory() CallMemory { return f.Pool }
func (f *TrampolineWay) At() uint64         { return f.Pool.Addr }

func (f *TrampolineWay) Blank(s *detour.Shared) []byte { return f.Pool.Head(s) }
func (f *TrampolineWay) Owns([]byte, int, *Probe) bool { return true }

func (f *TrampolineWay) Outlives() bool { return true }

// followable is the reason why the calls of a function can't return by a return trampoline; "" if they can.
func (o *planner) followable(w Request) string {
	f, err := o.ground.Code.Leaving(w.Site)
	switch {
	case w.P.GoABI || w.Site.Module.File.IsGo():
		return "Go's runtime looks for return addresses on its stacks"
	case o.ground.Stacks:
		return "stacks are recorded, and a return trampoline would hide the caller"
	case o.ground.ShadowStack:
		return "a shadow stack would keep the return trampoline's address when kprobe has left"
	case err != nil:
		return err.Error()
	case strings.HasPrefix(w.Site.Module.Name, "ld-"):
		return "the loader's functions are entered in ways of their own"
	}
	if why := exits.Peculiar(w.Site.Func.Symbol.Name); why != "" {
		return why
	}
	if by := o.ground.Unwinder(); by != "" {
		return "exceptions and backtraces by " + by + " would find no way past a return trampoline"
	}
	if f.Leaving().StartsOver {
		return "the function jumps to its own entry"
	}
	return ""
}

func (f *TrampolineWay) buildEntry(o *planner, st *Stage, ws []Request, tail tailFunc) ([]byte, error) {
	params := o.params
	params.FlagsDead = o.flagsDead(ws)
	r, err := detour.BuildReturn(uint64(st.Base), &params, o.probesOf(ws[len(ws)-1:])[0], f.Pool, tail)
	if err != nil {
		return nil, err
	}
	text := r.Code
	r.Code = nil
	st.probed, st.rare = true, &rareStage{way: f, trampolines: r}
	return text, nil
}
