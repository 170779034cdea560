package facts

import (
	"fmt"
	"os"

	"kprobe/internal/procfs"
	"kprobe/output"
	"kprobe/probe"
	"kprobe/probe/tracee/access"
)

func (p Proc) identity(pid int, st procfs.Status) output.Fact {
	name := st.Field("Name")
	if tgid := st.Int("Tgid"); tgid != pid && tgid != 0 {
		return blocked("process", fmt.Sprintf("%d is a thread of process %d (%s)", pid, tgid, name),
			fmt.Sprintf("probe the process: -p %d", tgid))
	}
	switch {
	case p.Own(pid):
		return blocked("process", fmt.Sprintf("%d is kprobe itself", pid), "choose another process")
	case st.State() == 'Z' || st.State() == 'X':
		return blocked("process", fmt.Sprintf("process %d (%s) has ended, and its parent has not waited for it yet", pid, name),
			"nothing is left of it to probe")
	case st.Field("VmSize") == "":
		// Only threads of the kernel have no memory of their own.
		return blocked("process", fmt.Sprintf("process %d (%s) belongs to the kernel", pid, name),
			"probe the kernel with its own kprobe_events")
	}
	return fine("process", fmt.Sprintf("process %d (%s)", pid, name))
}

// permission says whether the kernel lets kprobe trace the process, by all rules
// but Yama's.
func permission(c *access.Case) output.Fact {
	r := c.Seccomp()
	if r == nil {
		r = c.Person()
	}
	if r == nil && c.Yama() == nil && !c.Zombie {
		r = c.Policy()
	}
	switch {
	case r != nil:
		return refused("permission", r)
	case c.MayTraceAny():
		return fine("permission", "kprobe has CAP_SYS_PTRACE")
	}
	return fine("permission", "kprobe runs as the owner of the process")
}

// yama says what that security module's rule is.
func yama(c *access.Case) output.Fact {
	r := c.Yama()
	switch {
	case r != nil:
		return refused("ptrace scope", r)
	case c.Scope == "":
		return fine("ptrace scope", "this kernel does not restrict ptrace")
	case c.Scope == "0":
		return fine("ptrace scope", "0: a user may trace all own processes")
	case c.MayTraceAny():
		return fine("ptrace scope", c.Scope+": kprobe is exempt by CAP_SYS_PTRACE")
	}
	return fine("ptrace scope", c.Scope+": the process is a descendant of kprobe's")
}

func refused(name string, r *access.Refusal) output.Fact { return blocked(name, r.Reason, r.Remedy) }

// tracer looks at every thread: one that is traced is enough to be in the way.
func (p Proc) tracer(pid int) output.Fact {
	tids, err := p.process(pid).Threads()
	if err != nil {
		return note("tracer", fmt.Sprintf("the threads can't be listed: %v", err), "")
	}
	for _, tid := range tids {
		st, err := p.process(pid).Thread(tid).Status()
		if err != nil {
			continue // it has just ended
		}
		if by := st.Int("TracerPid"); by != 0 {
			name := "?"
			if other, err := p.process(by).Status(); err == nil {
				// It is a thread that traces: its process is what a user knows.
				if tgid := other.Int("Tgid"); tgid != 0 && tgid != by {
					if whole, err := p.process(tgid).Status(); err == nil {
						by, other = tgid, whole
					}
				}
				name = other.Field("Name")
			}
			why := ""
			if _, reason := p.liveSession(pid); reason != "" {
				why = "; that one lets go of the process while nothing changes, and doesn't now: " + reason
			}
			return blocked("tracer", fmt.Sprintf("thread %d is traced by process %d (%s); a thread has one tracer at a time%s", tid, by, name, why),
				remedy(pid, by, name))
		}
	}
	if by, _ := p.liveSession(pid); by != 0 {
		return blocked("tracer", fmt.Sprintf("process %d (kprobe) has probes in it, and nothing traces it while nothing changes", by), remedy(pid, by, "kprobe"))
	}
	return fine("tracer", "no other tracer")
}

// liveSession gives the kprobe that has probes in a process, 0: none has, and why that one
// traces it where it lets go of it otherwise.
func (p Proc) liveSession(pid int) (by int, why string) {
	if p.Self != os.Getpid() {
		return 0, ""
	}
	l, err := probe.OpenLive(pid)
	if err != nil {
		return 0, ""
	}
	defer l.Close()
	_, why = l.LetsGo()
	return l.Tracer, why
}

// remedy says what to do about another tracer.
func remedy(pid, by int, name string) string {
	if name == "kprobe" {
		return fmt.Sprintf("kprobe add -p %d DEF gives that trace another probe, kprobe profile -p %d shows its counters; or end process %d", pid, pid, by)
	}
	return fmt.Sprintf("end or detach process %d", by)
}
