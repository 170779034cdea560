package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Memory that needs no question
//
// Hits of probes that are left alone ask the kernel before they read. They ask once for each page,
// as long as whatever ends a mapping is seen (probe/detour, known.go): before each system call
// instruction of the process's files that may do so there must be a jump of kprobe's own. These are
// the jumps of leftbirths.go, laid at more places.
//
//	laid     the jumps are in the text
//	trusted  there was a moment in which no thread was between a jump and its system call: what is
//	         mapped was listed in it, and from then on pages are noted
//
// If some code can't be seen, or a place can't have a jump, each read is asked for; the session's log
// says why.

// KnownOff is the offset of detour.Params.Known from the gate.
const KnownOff = memory.PageSize

// knows is the reason why each read is asked for; "" if pages can be noted.
func (tg *Target) knows(places []bornAt) string {
	for _, b := range places {
		switch name := symbols.OffsetName(b.Func.Symbol.Name, uint64(b.At-b.Func.Start)); {
		case !b.Unmaps:
		case b.Before == 0:
			return fmt.Sprintf("the system call at %s may unmap memory, and no jump can be placed before it", name)
		case b.Blurs:
			return fmt.Sprintf("the system call at %s may unmap memory, and gets an argument right before", name)
		}
	}
	return ""
}

// reads reports whether hits of the target read memory that may not be there.
func (tg *Target) reads() bool {
	for p := range tg.Placed {
		if p.Rarely().Birth == nil && tg.Params.Careful && detour.Reads(p.Program) {
			return true
		}
	}
	return false
}

// unknown notes why each read is asked for.
func (tg *Target) unknown(why string) {
	tg.births.unseen = why
	if !tg.reads() {
		return
	}
	tg.Engine.Logf("process %d: hits ask the kernel before each page that they read: %s", tg.Proc.PID(), why)
}

// trustMemory has pages be noted from now on, if all jumps are laid.
func (tg *Target) trustMemory(ctx context.Context) error {
	if tg.births.known || tg.births.unseen != "" || tg.Params.Known == 0 {
		return nil
	}
	if why, err := away(tg.Engine, func() (string, error) { return guarded(tg.Proc.PID()) }); err != nil || why != "" {
		if why == "" {
			why = err.Error()
		}
		tg.unknown(why)
		return nil
	}
	if done, err := tg.knownToHost(); done || err != nil {
		return err
	}
	at := symbols.Addr(tg.Params.Known + detour.KnownState)
	for range unseenBirths {
		n := 0
		err := tg.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			if len(stopped) == 0 || len(tg.Proc.StillSharers()) > 0 || !tg.standsClear(stopped) {
				return nil
			}
			var state [1]byte
			if _, err := tg.Proc.ReadMemory(state[:], at); err != nil || state[0] != 0 && !tg.births.own {
				return err
			}
			maps, err := symbols.ReadMaps(tg.Proc.PID())
			if err != nil {
				return err
			}
			ranges, heap := tg.staying(maps)
			n = len(ranges)
			tg.births.known = true
			return tg.Proc.WriteMemory(detour.KnownTable(ranges, heap), symbols.Addr(tg.Params.Known))
		})
		if err := tracee.IgnoreLate(err); err != nil {
			return err
		}
		if tg.births.known {
			tg.Engine.Logf("process %d: hits ask the kernel once for each page that they read, in %d ranges", tg.Proc.PID(), n)
			return nil
		}
		if err := tg.pauseLooking(); err != nil {
			return err
		}
	}
	tg.unknown("there was no moment in which no thread was unmapping memory")
	return nil
}

// standsClear reports whether no thread has passed a jump before a system call that may end a mapping, and not
// yet the call; and none is about to note a page.
func (tg *Target) standsClear(stopped []*tracee.Thread) bool {
	for _, t := range tg.Proc.AllLate() {
		if pc, known := t.WaitsAt(); !known || tg.births.unmapsAt(pc) || tg.inUprobes(pc) {
			return false
		}
	}
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil {
			return false // gone
		}
		pc := symbols.Addr(regs.Rip)
		if tg.births.unmapsAt(pc) || tg.InShared(pc) || tg.left.holds(pc) {
			return false
		}
		if st := tg.Patches.StageAt(pc); !st.None() && slices.ContainsFunc(st.Wants(), func(w planner.Request) bool { return w.P.Rarely().Birth != nil }) {
			return false
		}
	}
	return true
}

// unmapsAt reports whether the system call instruction at pc may end a mapping.
func (b *births) unmapsAt(pc symbols.Addr) bool {
	return slices.ContainsFunc(b.unmapping, func(p bornAt) bool { return pc == p.module.Addr(p.At) })
}

const (
	heapGrows  = 64 << 30 // how far beyond its end the heap's pages may be noted
	stackGrows = 8 << 20
)

// staying lists memory that nobody but the process itself can take away: private memory without a file, and
// the file that it executes. heap is the end of the heap. The heap and the first stack grow into free memory,
// where nothing else is put unless a program asks for the place.
func (tg *Target) staying(maps []symbols.Mapping) (out []detour.KnownRange, heap uint64) {
	exe, _ := os.Readlink(procfs.Process(tg.Proc.PID()).Path("exe")) // none: nothing is equal
	exe = strings.TrimSuffix(exe, " (deleted)")
	for i := range maps {
		m := &maps[i]
		if m.Shared || tg.isOwn(m.Start) || m.Inode != 0 && m.Path != exe || m.Inode == 0 && strings.HasPrefix(m.Path, "[v") {
			continue
		}
		r := detour.KnownRange{Start: uint64(m.Start), End: uint64(m.End)}
		switch m.Path {
		case "[heap]":
			heap = max(heap, r.End)
			if r.End += heapGrows; i+1 < len(maps) {
				r.End = min(r.End, uint64(maps[i+1].Start))
			}
		case "[stack]":
			if r.Start = min(r.Start, r.End-stackGrows); i > 0 {
				r.Start = max(r.Start, uint64(maps[i-1].End))
			}
		}
		if n := len(out); n > 0 && out[n-1].End == r.Start {
			out[n-1].End = r.End
			continue
		}
		out = append(out, r)
	}
	if len(out) > detour.KnownRanges { // the largest
		slices.SortFunc(out, func(a, b detour.KnownRange) int { return int(b.End-b.Start) - int(a.End-a.Start) })
		out = out[:detour.KnownRanges]
	}
	return out, heap
}

// guarded is the reason why a process's memory can change without a system call that is watched: protection
// keys are in use, or the process answers faults itself (userfaultfd).
func guarded(pid int) (why string, err error) {
	const answers = "the process answers faults itself (userfaultfd)"
	if fds, err := procfs.Process(pid).Descriptors(); err == nil {
		for _, fd := range fds {
			if to, err := os.Readlink(procfs.Process(pid).Path(fmt.Sprintf("fd/%d", fd))); err == nil && strings.Contains(to, "userfaultfd") {
				return answers, nil
			}
		}
	}
	f, err := os.Open(procfs.Process(pid).Path("smaps"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := r.ReadSlice('\n')
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "ProtectionKey":
			if string(bytes.TrimSpace(value)) != "0" {
				return "the process uses protection keys", nil
			}
		case "VmFlags":
			for _, flag := range []string{" um", " uw", " ui"} {
				if bytes.Contains(value, []byte(flag)) {
					return answers, nil
				}
			}
		}
		switch {
		case err == io.EOF:
			return "", nil
		case err != nil && err != bufio.ErrBufferFull:
			if err == unix.ESRCH {
				err = tracee.ErrGone
			}
			return "", err
		}
	}
}
