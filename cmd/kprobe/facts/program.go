package facts

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/output"
	"kprobe/probe"
	"kprobe/probe/tracee/access"
)

// program says what kind of code the process runs.
func (p Proc) program(pid int) output.Fact {
	f, err := untrusted.OpenELF(p.path(pid, "exe"))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return note("program", "the program's file can't be read by this user", "run kprobe as the owner of the process, or as root")
	case err != nil:
		return note("program", fmt.Sprintf("the program's file can't be read: %v", err), "")
	}
	defer f.Close()
	name, err := os.Readlink(p.path(pid, "exe"))
	if err != nil {
		name = "the program"
	}
	if f.Machine != elf.EM_X86_64 {
		return blocked("program", fmt.Sprintf("%s is not x86-64 code (%v)", name, f.Machine), "kprobe probes x86-64 code only")
	}
	if f.Class != elf.ELFCLASS64 {
		return blocked("program", name+" is code with 32-bit addresses (x32)", "kprobe probes 64-bit code only")
	}
	if gone, ok := strings.CutSuffix(name, " (deleted)"); ok {
		return note("program", gone+", x86-64, which was deleted or replaced since: the process runs the old file, and that is what is probed",
			"definitions that are kept would be about the new file")
	}
	return fine("program", name+", x86-64")
}

// seccomp looks at the rules for the system calls that kprobe makes in the process,
// by those of any of its threads: the call is made in whichever thread is fit.
func (p Proc) seccomp(pid int) output.Fact {
	tids, err := p.process(pid).Threads()
	if err != nil {
		return note("seccomp", fmt.Sprintf("the threads can't be listed: %v", err), "")
	}
	worst, with := fine("seccomp", "no filter"), 0
	for _, tid := range tids {
		st, err := p.process(pid).Thread(tid).Status()
		if err != nil || st.Int("Seccomp") == 0 {
			continue // it has just ended, or has none
		}
		with++
		if f := p.rules(pid, st); with == 1 || f.Blocks && !worst.Blocks {
			worst = f
		}
	}
	if with > 0 && with < len(tids) {
		worst.Text = fmt.Sprintf("in %d of %d threads: %s", with, len(tids), worst.Text)
	}
	return worst
}

// rules says what the seccomp rules of one thread mean for kprobe's calls, as
// probe/tracee decides it.
func (p Proc) rules(pid int, st procfs.Status) output.Fact {
	n := st.Int("Seccomp_filters")
	what := "strict mode"
	if st.Int("Seccomp") == 2 {
		what = "filters"
		if n > 0 {
			what = count(n, "filter")
		}
	}
	switch {
	case access.SuspendsSeccomp(p.Root, p.Self):
		return fine("seccomp", what+", which kprobe suspends while it makes calls in the process")
	case st.Int("Seccomp") == 2 && access.InheritedFilters(p.Root, p.Self, pid, n):
		return note("seccomp", what+", which kprobe is under as well: those of the container or service that both are in",
			"if attaching fails, run kprobe outside the container as root")
	}
	return blocked("seccomp", what+": its rules may forbid the system calls that kprobe makes in the process, and only root can suspend them",
		"run kprobe as root, outside of any container")
}

// count puts a number before a word.
func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func (p Proc) state(pid int, st procfs.Status) output.Fact {
	if p.Root == Live().Root {
		if dir := procfs.Frozen(pid); dir != "" {
			return blocked("state", "the process is frozen by the cgroup "+dir, "thaw it: echo 0 >"+dir+"/cgroup.freeze, or echo THAWED >"+dir+"/freezer.state")
		}
	}
	switch st.State() {
	case 'T':
		return note("state", "the process is stopped; hits come once it continues", "kill -CONT the process")
	case 't':
		return note("state", "the process is stopped by a tracer", "")
	case 'D':
		return note("state", "the process waits in the kernel and can't be stopped now; kprobe waits for it", "")
	}
	return fine("state", st.Field("State"))
}

func threads(st procfs.Status) output.Fact {
	n := st.Int("Threads")
	if n == 1 {
		return fine("threads", "1 thread")
	}
	return fine("threads", fmt.Sprintf("%d threads; all are probed", n))
}

// namespaces compares those that change what a name or a number means.
func (p Proc) namespaces(pid int) output.Fact {
	var other []string
	for _, ns := range []string{"mnt", "pid", "user"} {
		mine, err1 := os.Readlink(p.path(p.Self, "ns", ns))
		its, err2 := os.Readlink(p.path(pid, "ns", ns))
		if err1 == nil && err2 == nil && mine != its {
			other = append(other, ns)
		}
	}
	if len(other) == 0 {
		return fine("namespaces", "the same as kprobe's")
	}
	return fine("namespaces", "own "+strings.Join(other, ", ")+" namespace: it is in a container; its files are read through /proc, and process ids are printed as this side sees them")
}

func shadowStack(st procfs.Status) output.Fact {
	if st.ShadowStack() {
		return note("shadow stack", "in use: a return address can't be replaced",
			"return probes are placed at the function's exits instead; nothing is to be done")
	}
	return fine("shadow stack", "not in use")
}

// hits says which way the hits of jumps go.
func (p Proc) hits(pid int) output.Fact {
	if ways := left(pid); ways != nil {
		return leftHits(ways)
	}
	switch why, err := probe.HitsInSequences(pid); {
	case err != nil:
		return note("hits", "which way they go can't be read: "+err.Error(), "kprobe trace -v and profile -v say it")
	case why != "":
		return fine("hits", "of jumps are taken by locked instructions: "+why)
	}
	return fine("hits", "of jumps are taken in restartable sequences, without locks")
}

// left gives what probe.Live.HitsLocked says of probes that were left in a process; nil:
// none were, or this user can't know.
func left(pid int) []string {
	l, err := probe.OpenLive(pid)
	if err != nil {
		return nil
	}
	defer l.Close()
	return l.HitsLocked()
}

// leftHits says which way the hits go of probes that were left: recorders of one process
// may do it in different ways.
func leftHits(ways []string) output.Fact {
	slices.Sort(ways)
	var text []string
	for _, why := range slices.Compact(ways) {
		if why == "" {
			text = append(text, "are taken in restartable sequences, without locks")
		} else {
			text = append(text, "take locked instructions: "+why)
		}
	}
	return fine("hits", "of the detached probes here "+strings.Join(text, "; others "))
}

// runtime notes language runtimes whose code lives by rules of its own.
func (p Proc) runtime(pid int) []output.Fact {
	var facts []output.Fact
	if f, err := untrusted.OpenELF(p.path(pid, "exe")); err == nil {
		if f.Section(".gopclntab") != nil || f.Section(".go.buildinfo") != nil {
			facts = append(facts, note("Go", "goroutines move between threads and stacks; arguments are in Go's own registers",
				"return probes are placed at the function's exits; fetch arguments by their names, or $argN: both need debug information (no -ldflags=-w)"))
		}
		f.Close()
	}
	maps, err := os.ReadFile(p.path(pid, "maps"))
	if err != nil {
		return facts
	}
	if strings.Contains(string(maps), "/memfd:kprobe ") && p.tracer(pid).OK && (p.Root != Live().Root || left(pid) == nil) {
		facts = append(facts, note("leftovers", "an earlier kprobe has left memory here, and probes if it was killed together with its supervisor; they do no harm",
			"the next kprobe trace or profile takes them out"))
	}
	if strings.Contains(string(maps), "/libjvm.so") {
		facts = append(facts, note("Java", "compiled Java methods have no symbols; the JVM itself and native libraries do",
			"probe libjvm.so, libc.so.6 or JNI functions"))
	}
	return facts
}
