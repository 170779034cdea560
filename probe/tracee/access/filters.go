package access

// InheritedFilters reports whether n seccomp filters of a thread of process pid are
// none of its program's own, but those that process self has as well: they judge a
// system call that self makes in it as they judge self's own calls. root is where
// /proc is.
//
// Filters are only ever added, and inherited: they are common where a common ancestor
// has as many. In a container that self was put into later (docker exec, nsenter)
// there is none: the ancestors of both end at processes without a parent that can be
// seen, which have what the container's runtime gave them. How many there are is told
// since Linux 5.9; where it isn't, the answer is no.
func InheritedFilters(root string, self, pid, n int) bool {
	p := proc{root}
	mine, theirs := p.ancestry(self), p.ancestry(pid)
	if n <= 0 || len(mine) == 0 || len(theirs) == 0 || mine[0].filters < n {
		return false
	}
	for _, a := range mine {
		for _, b := range theirs {
			if a.pid == b.pid {
				return a.filters == n
			}
		}
	}
	top, their := mine[len(mine)-1], theirs[len(theirs)-1]
	return top.parent == 0 && their.parent == 0 && top.filters == n && their.filters == n
}

// ancestor is a process with its parent and the filters of its first thread.
type ancestor struct{ pid, parent, filters int }

// ancestry lists a process and what it descends from, as far as that can be seen.
func (p proc) ancestry(pid int) (out []ancestor) {
	const most = 1000 // should a number be used again while they are looked at
	for len(out) < most && pid > 0 {
		st := p.status(pid)
		if st == nil {
			return out
		}
		parent := st.Int("PPid")
		filters := st.Int("Seccomp_filters") // not told before Linux 5.9: 0
		out = append(out, ancestor{pid, parent, filters})
		pid = parent
	}
	return out
}

// SuspendsSeccomp reports whether process self may suspend the seccomp rules of who
// it traces (PTRACE_O_SUSPEND_SECCOMP): who has CAP_SYS_ADMIN in the first user
// namespace may, and is under no rules itself (kernel/seccomp.c, ptrace_check of
// kernel/ptrace.c).
func SuspendsSeccomp(root string, self int) bool {
	p := proc{root}
	st := p.status(self)
	caps, _ := st.Set("CapEff")
	return caps>>capSysAdmin&1 != 0 && st.Int("Seccomp") == 0 && !p.inUserNamespace(self)
}
