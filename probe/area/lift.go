package area

import (
	"os"

	"kprobe/internal/procfs"
	"kprobe/probe/memory"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// LiftBreakpoints writes the program's bytes over the int3s in the journal of a killed tracer,
// while the program's threads run. Recover does this before anything else, for two reasons. A
// thread that blocks SIGTRAP, or a child of posix_spawn, which has the default actions, dies of
// an int3 that nobody answers. And stopping all threads takes as long as one of them waits for
// its child.
//
//	a thread before the int3   executes the program's instruction: one byte is written, and no
//	                           processor sees half of it
//	a thread that has trapped  is led to the copy by the fallback handler, or by the stop of a
//	                           tracer that finds no int3
//
// Jumps stay: they harm nobody, and can't be written while threads run. A process that somebody
// traces is left alone, because the int3s may be another session's. A failure here shows again
// when the text is restored.
func LiftBreakpoints(pid int, m *symbols.Mapping) error {
	mem, err := os.OpenFile(procfs.Image(pid).Path("mem"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	r, h, layout, err := readHeader(mem, m)
	if err != nil {
		return err
	}
	sites, err := ring.ReadSites(r, h, layout)
	if err != nil {
		return err
	}
	if HasTracer(pid) {
		return nil
	}
	for _, l := range sites {
		if l.Tactic != uint16(plan.Breakpoint) || l.Before[0] == memory.Int3 {
			continue
		}
		var now [1]byte
		if _, err := mem.ReadAt(now[:], int64(l.Addr)); err == nil && now[0] == memory.Int3 {
			if _, err := mem.WriteAt(l.Before[:1], int64(l.Addr)); err != nil {
				return err
			}
		}
	}
	return nil
}

// HasTracer reports whether a thread of the process has a tracer. It returns true if that can't
// be read.
func HasTracer(pid int) bool {
	tids, err := procfs.Process(pid).Threads()
	if err != nil {
		return true
	}
	for _, tid := range tids {
		st, err := procfs.Thread(pid, tid).Status()
		if err == nil && st.Field("TracerPid") != "0" {
			return true
		}
	}
	return false
}
