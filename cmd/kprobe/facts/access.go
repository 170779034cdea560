package facts

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kprobe/output"
)

// Numbers of capabilities (capabilities(7)).
const (
	capSysPtrace = 19
	capSysAdmin  = 21
)

// has reports whether a process has a capability.
func has(who status, capability uint) bool {
	caps, err := strconv.ParseUint(who["CapEff"], 16, 64)
	return err == nil && caps>>capability&1 != 0
}

// mayTraceAny reports whether the asking process has CAP_SYS_PTRACE.
func mayTraceAny(who status) bool { return has(who, capSysPtrace) }

func (p Proc) identity(pid int, st status) output.Fact {
	name := st["Name"]
	if tgid := st.number("Tgid"); tgid != pid && tgid != 0 {
		return blocked("process", fmt.Sprintf("%d is a thread of process %d (%s)", pid, tgid, name),
			fmt.Sprintf("probe the process: -p %d", tgid))
	}
	switch {
	case p.Own(pid):
		return blocked("process", fmt.Sprintf("%d is kprobe itself", pid), "choose another process")
	case st.field("State", 0) == "Z" || st.field("State", 0) == "X":
		return blocked("process", fmt.Sprintf("process %d (%s) has ended, and its parent has not taken notice yet", pid, name),
			"nothing is left of it to probe")
	case st["VmSize"] == "":
		// Only threads of the kernel have no memory of their own.
		return blocked("process", fmt.Sprintf("process %d (%s) belongs to the kernel", pid, name),
			"probe the kernel with its own kprobe_events")
	}
	return fine("process", fmt.Sprintf("process %d (%s)", pid, name))
}

// permission applies ptrace(2), "Ptrace access mode checking": the same user
// and group three times over, and a process that may be dumped; or
// CAP_SYS_PTRACE.
func (p Proc) permission(pid int, st, who status) output.Fact {
	if mayTraceAny(who) {
		if p.refused(pid) {
			return blocked("permission", "the system's policy forbids it even to root (a container's limits, or a security module)",
				"run kprobe outside the container, or have the policy allow it")
		}
		return fine("permission", "kprobe has CAP_SYS_PTRACE")
	}
	uid, gid := who.field("Uid", 1), who.field("Gid", 1)
	for i := range 3 {
		if st.field("Uid", i) != uid {
			return blocked("permission", fmt.Sprintf("the process belongs to user %s, kprobe runs as user %s", st.field("Uid", 0), uid),
				fmt.Sprintf("run kprobe as user %s or as root", st.field("Uid", 0)))
		}
		if st.field("Gid", i) != gid {
			return blocked("permission", fmt.Sprintf("the process runs with group %s, kprobe with group %s", st.field("Gid", i), gid),
				"run kprobe as root")
		}
	}
	// The owner of /proc/PID is root when the process may not be dumped
	// (proc(5)): after a set-user-id exec, or by prctl.
	if _, err := os.ReadDir(p.path(pid, "map_files")); os.IsPermission(err) {
		return blocked("permission", "the process may not be dumped (it gained privileges, or asked for it), so only root may trace it",
			"run kprobe as root")
	}
	if p.refused(pid) && p.yama(pid, who).OK {
		return blocked("permission", "the system's policy forbids it (a container's limits, or a security module)",
			"run kprobe as root, or have the policy allow it")
	}
	return fine("permission", "kprobe runs as the owner of the process")
}

// refused reports whether the kernel says no to tracing the process: opening
// its memory is checked as attaching is (PTRACE_MODE_ATTACH, fs/proc/base.c),
// and does nothing to the process.
func (p Proc) refused(pid int) bool {
	f, err := os.Open(p.path(pid, "mem"))
	if err != nil {
		return os.IsPermission(err)
	}
	f.Close()
	return false
}

// yama applies the Yama security module's rule
// (Documentation/admin-guide/LSM/Yama.rst).
func (p Proc) yama(pid int, who status) output.Fact {
	text, err := os.ReadFile(filepath.Join(p.Root, "sys/kernel/yama/ptrace_scope"))
	if err != nil {
		return fine("ptrace scope", "this kernel does not restrict ptrace")
	}
	scope := strings.TrimSpace(string(text))
	const file = "/proc/sys/kernel/yama/ptrace_scope"
	switch {
	case scope == "0":
		return fine("ptrace scope", "0: a user may trace all own processes")
	case scope == "3":
		return blocked("ptrace scope", "3: nobody may trace anything until the machine is restarted",
			"restart the machine with another kernel.yama.ptrace_scope")
	case mayTraceAny(who):
		return fine("ptrace scope", scope+": kprobe is exempt by CAP_SYS_PTRACE")
	case scope == "1" && p.descends(pid):
		return fine("ptrace scope", "1: the process is a descendant of kprobe's")
	case scope == "1":
		return blocked("ptrace scope", "1: a user may trace only programs that kprobe starts",
			"let kprobe start it (-- CMD), run kprobe as root, or: echo 0 | sudo tee "+file)
	}
	return blocked("ptrace scope", scope+": only root may trace", "run kprobe as root, or: echo 0 | sudo tee "+file)
}

// descends reports whether the process is a descendant of the asking one.
func (p Proc) descends(pid int) bool {
	for range 1000 { // a chain that grows while it is read must end too
		st, err := p.status(pid)
		if err != nil {
			return false
		}
		if pid = st.number("PPid"); pid == p.Self {
			return true
		}
		if pid <= 1 {
			return false
		}
	}
	return false
}

// tracer looks at every thread: one that is traced is enough to be in the way.
func (p Proc) tracer(pid int) output.Fact {
	tasks, err := os.ReadDir(p.path(pid, "task"))
	if err != nil {
		return note("tracer", fmt.Sprintf("the threads can't be listed: %v", err), "")
	}
	for _, task := range tasks {
		st, err := readStatus(p.path(pid, "task", task.Name(), "status"))
		if err != nil {
			continue // it has just ended
		}
		if by := st.number("TracerPid"); by != 0 {
			name := "?"
			if other, err := p.status(by); err == nil {
				// It is a thread that traces: its process is what a user knows.
				if tgid := other.number("Tgid"); tgid != 0 && tgid != by {
					if whole, err := p.status(tgid); err == nil {
						by, other = tgid, whole
					}
				}
				name = other["Name"]
			}
			return blocked("tracer", fmt.Sprintf("thread %s is traced by process %d (%s); a thread has one tracer at a time", task.Name(), by, name),
				remedy(pid, by, name))
		}
	}
	return fine("tracer", "no other tracer")
}

// remedy says what to do about another tracer.
func remedy(pid, by int, name string) string {
	if name == "kprobe" {
		return fmt.Sprintf("kprobe add -p %d DEF gives that trace another probe, kprobe profile -p %d shows its counters; or end process %d", pid, pid, by)
	}
	return fmt.Sprintf("end or detach process %d", by)
}
