// Package facts reports, before anything is touched, whether a process can be probed and what
// would prevent it. It reads /proc. It never traces, stops or signals.
package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"kprobe/internal/procfs"
	"kprobe/output"
	"kprobe/probe/tracee/access"
)

// Proc is a /proc to look at. The zero value is not useful: take Live, or the
// folder of a test.
type Proc struct {
	Root string // "/proc"
	Self int    // the process that asks
	// Supervisor is the process that the user started, where it is another; 0 is none.
	Supervisor int
}

// Live is this machine's /proc.
func Live() Proc { return Proc{Root: "/proc", Self: os.Getpid()} }

// Own reports whether the process is the one that asks.
func (p Proc) Own(pid int) bool { return pid == p.Self || pid == p.Supervisor }

// Check gathers the facts of a process, those that stand in the way marked. A
// process that does not exist, or ends meanwhile, is a fact and no error.
func (p Proc) Check(pid int) []output.Fact {
	st, err := p.process(pid).Status()
	if err != nil {
		return []output.Fact{existence(pid, err)}
	}
	if _, err := p.process(p.Self).Status(); err != nil {
		return []output.Fact{blocked("proc", fmt.Sprintf("%s can't be read: %v", p.Root, err), "mount it: mount -t proc proc /proc")}
	}
	facts := []output.Fact{p.identity(pid, st)}
	if facts[0].Blocks {
		return facts
	}
	c := access.Look(p.Root, p.Self, pid)
	facts = append(facts, permission(c), yama(c), p.tracer(pid), p.program(pid))
	facts = append(facts, p.seccomp(pid), p.state(pid, st), threads(st), p.namespaces(pid), shadowStack(st))
	if p.Root == Live().Root {
		facts = append(facts, p.hits(pid), p.watchpoints(pid))
		facts = append(facts, p.files(pid)...)
	}
	return append(facts, p.runtime(pid)...)
}

// Blocked reports whether one of the facts stands in the way.
func Blocked(facts []output.Fact) bool {
	for i := range facts {
		if facts[i].Blocks {
			return true
		}
	}
	return false
}

func fine(name, text string) output.Fact { return output.Fact{Name: name, OK: true, Text: text} }

func note(name, text, remedy string) output.Fact {
	return output.Fact{Name: name, Text: text, Remedy: remedy}
}

func blocked(name, text, remedy string) output.Fact {
	return output.Fact{Name: name, Blocks: true, Text: text, Remedy: remedy}
}

func existence(pid int, err error) output.Fact {
	if errors.Is(err, fs.ErrNotExist) {
		return blocked("process", fmt.Sprintf("there is no process %d", pid), "find it by name: pgrep -l NAME")
	}
	return blocked("process", fmt.Sprintf("process %d can't be looked at: %v", pid, err), "run kprobe as root")
}

func (p Proc) path(pid int, name ...string) string {
	return filepath.Join(append([]string{p.Root, strconv.Itoa(pid)}, name...)...)
}

func (p Proc) process(pid int) procfs.Task { return procfs.FS(p.Root).Process(pid) }
