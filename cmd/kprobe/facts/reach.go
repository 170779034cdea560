package facts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/output"
	"kprobe/probe/debugreg"
	"kprobe/symbols"
)

// mostThreads is of how many threads it is asked how many watchpoints they can have.
const mostThreads = 64

const breakWrite = 2 // HW_BREAKPOINT_W (linux/hw_breakpoint.h)

// watchpoints says how many of the debug registers can be had that watchpoints take.
func (p Proc) watchpoints(pid int) output.Fact {
	tids, err := p.process(pid).Threads()
	if err != nil || len(tids) == 0 {
		return note("watchpoints", fmt.Sprintf("the process's threads can't be listed: %v", err), "")
	}
	free := debugreg.MaxRegisters
	for _, tid := range tids[:min(len(tids), mostThreads)] {
		n, err := freeDebugRegisters(tid)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return watchpointsFact(0, err)
		}
		if err == nil {
			free = min(free, n)
		}
	}
	return watchpointsFact(free, nil)
}

// watchpointsFact judges how many debug registers there are, or why nobody says so.
func watchpointsFact(free int, err error) output.Fact {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return fine("watchpoints", fmt.Sprintf("this user may not see which debug registers are free, because perf events are forbidden (%v)", err))
	case err != nil:
		return note("watchpoints", fmt.Sprintf("this machine offers no debug registers (%v)", err), "w@PLACE needs them; probe the functions that change the memory")
	case free == debugreg.MaxRegisters:
		return fine("watchpoints", fmt.Sprintf("all %d debug registers are free", free))
	}
	return note("watchpoints", fmt.Sprintf("%d of %d debug registers are free: the program, a profiler or a debugger has the others", free, debugreg.MaxRegisters),
		"as many memory places can be watched (w@PLACE); the rest is free when their user ends")
}

// freeDebugRegisters is how many watchpoints a thread can have besides those that it has.
// The kernel is asked for them by perf events that never begin; so no register changes.
func freeDebugRegisters(tid int) (n int, err error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_BREAKPOINT, Bp_type: breakWrite,
		Ext1: 4096, Ext2: 8, // address and length
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	attr.Size = uint32(binary.Size(attr))
	for range debugreg.MaxRegisters {
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENOSPC) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		defer unix.Close(fd)
		n++
	}
	return n, nil
}

// mostFiles is how many files are named that have statically defined probes.
const mostFiles = 6

// files says what the process's files mean for probing it.
func (p Proc) files(pid int) []output.Fact {
	space, err := symbols.OpenProcess(pid, nil)
	if err != nil {
		return nil
	}
	return append(static(pid, space), translated(space)...)
}

// translated says that the process is Valgrind, which runs a translation of another program.
func translated(space *symbols.Space) []output.Fact {
	for _, m := range space.Modules() {
		if m.Translated {
			return []output.Fact{blocked("Valgrind", "the program runs in Valgrind, which executes a translation of it: a probe in its code has no hits or ends it",
				"run the program without Valgrind; only Valgrind's own functions can be probed here")}
		}
	}
	return nil
}

// static says which of the process's files have statically defined probes.
func static(pid int, space *symbols.Space) []output.Fact {
	var files []string
	more := 0
	for _, m := range space.Modules() {
		if m.File == nil {
			continue
		}
		names := map[string]bool{}
		for _, u := range m.File.USDT() {
			names[u.Provider+":"+u.Name] = true
		}
		switch {
		case len(names) == 0:
		case len(files) == mostFiles:
			more++
		default:
			files = append(files, fmt.Sprintf("%d in %s", len(names), m.Name))
		}
	}
	if len(files) == 0 {
		return nil
	}
	text := strings.Join(files, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and in %d more files", more)
	}
	return []output.Fact{fine("USDT", "statically defined probes: "+text+"; kprobe functions --usdt -p "+fmt.Sprint(pid)+" lists them")}
}
