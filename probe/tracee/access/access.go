// Package access says whether one process may trace another and, if not, which of the kernel's
// rules forbids it and what helps. It reads /proc, and neither traces nor stops anything. It is
// the one source of such answers, both before tracing (kprobe check) and after a refusal
// (probe/tracee).
//
// The rules are those of ptrace(2), "Ptrace access mode checking", in the order of the kernel
// (kernel/ptrace.c, __ptrace_may_access and ptrace_attach; security/commoncap.c,
// cap_ptrace_access_check; Documentation/admin-guide/LSM/Yama.rst).
package access

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Rule is what forbids tracing.
type Rule uint8

// The rules, in the order in which they are applied.
const (
	RuleSeccomp  Rule = iota + 1 // the asker's own seccomp rules forbid ptrace itself
	RuleKernel                   // a thread of the kernel
	RuleUser                     // another user's, or another group's
	RuleDumpable                 // it may not be dumped
	RuleCaps                     // it has capabilities that the asker has not
	RuleScope                    // Yama
	RuleZombie                   // it has ended
	RuleTraced                   // it has a tracer
	RulePolicy                   // the kernel says no, for none of these reasons
)

// Refusal says why, as a clause about "it", and what helps.
type Refusal struct {
	Rule           Rule
	Reason, Remedy string
}

// Relation is where the user namespace of the asked lies, seen from the asker's.
type Relation uint8

// The relations. Capabilities count in one's own namespace and in those below.
const (
	Same Relation = iota
	Below
	Elsewhere
)

// Person is whom a process runs as.
type Person struct {
	UID, GID [3]string // real, effective, saved; "" is unknown
	// Effective and Permitted are sets of capabilities.
	Effective, Permitted uint64
}

// Case is all that the rules look at.
type Case struct {
	Asker, Asked Person
	UserNS       Relation
	// Owns says that the asker has made the user namespace of the asked, or one
	// above that, from its own: then it has every capability there.
	Owns bool
	// Forbidden says that the asker's seccomp rules refuse ptrace.
	Forbidden bool
	Kernel    bool // the asked is a thread of the kernel
	Zombie    bool
	// Hidden says that the asked may not be dumped: it was set-user-ID, has got
	// capabilities by its file, can't be read, or asked for it.
	Hidden bool
	// Scope is kernel.yama.ptrace_scope; "" is none.
	Scope string
	// Descends says that the asked is a descendant of the asker.
	Descends bool
	// Tracer is who traces it already, 0 is nobody.
	Tracer int
	// Denied says that the kernel refused, whatever the rules are.
	Denied bool
}

// Numbers of capabilities (capabilities(7)).
const (
	capSysPtrace = 19
	capSysAdmin  = 21
)

// MayTraceAny reports whether the asker has CAP_SYS_PTRACE where the asked lives.
func (c *Case) MayTraceAny() bool {
	return c.Owns || c.UserNS != Elsewhere && c.Asker.Effective>>capSysPtrace&1 != 0
}

// Why gives the first rule that forbids it; nil is none.
func (c *Case) Why() *Refusal {
	for _, rule := range []func() *Refusal{c.Seccomp, c.kernel, c.Person, c.Yama, c.zombie, c.traced, c.Policy} {
		if r := rule(); r != nil {
			return r
		}
	}
	return nil
}

// Seccomp applies the rules for system calls that the asker is under.
func (c *Case) Seccomp() *Refusal {
	if !c.Forbidden {
		return nil
	}
	return &Refusal{RuleSeccomp, "kprobe itself is under seccomp rules that forbid ptrace (those of a container or of a systemd unit)",
		"run kprobe outside of it, or have it allow ptrace (docker: --cap-add SYS_PTRACE; systemd: SystemCallFilter=@debug)"}
}

func (c *Case) kernel() *Refusal {
	if !c.Kernel {
		return nil
	}
	return &Refusal{RuleKernel, "it belongs to the kernel", "probe the kernel with its own kprobe_events"}
}

// Person applies the rules about users, what may be dumped, and capabilities.
func (c *Case) Person() *Refusal {
	if c.MayTraceAny() {
		return nil
	}
	asker, asked := &c.Asker, &c.Asked
	ids := slices.Concat(asked.UID[:], asked.GID[:])
	switch {
	case slices.Contains(ids, "") || asker.UID[0] == "":
		// Unknown: the kernel knows.
	case asked.UID[1] != asked.UID[0] || asked.UID[2] != asked.UID[0]:
		return &Refusal{RuleUser, fmt.Sprintf("it runs a set-user-ID program: it belongs to user %s and acts as user %s", asked.UID[0], another(asked.UID)), c.more("")}
	case asked.UID[0] != asker.UID[0]:
		return &Refusal{RuleUser, fmt.Sprintf("it belongs to user %s, and kprobe runs as user %s", asked.UID[0], asker.UID[0]), c.more(asked.UID[0])}
	case asked.GID[1] != asked.GID[0] || asked.GID[2] != asked.GID[0]:
		return &Refusal{RuleUser, fmt.Sprintf("it runs a set-group-ID program: it belongs to group %s and acts as group %s", asked.GID[0], another(asked.GID)), c.more("")}
	case asked.GID[0] != asker.GID[0]:
		return &Refusal{RuleUser, fmt.Sprintf("it runs with group %s, and kprobe with group %s", asked.GID[0], asker.GID[0]), c.more("")}
	}
	if c.Hidden {
		return &Refusal{RuleDumpable, "the program was set-user-ID, has capabilities, can't be read by its user, or asked not to be traced (PR_SET_DUMPABLE)", c.more("")}
	}
	if c.UserNS != Same {
		return &Refusal{RuleCaps, "it is in another user namespace, in which kprobe has no capabilities", c.more("")}
	}
	if missing := asked.Permitted &^ asker.Permitted; missing != 0 {
		return &Refusal{RuleCaps, "it has capabilities that kprobe has not: " + capNames(missing), c.more("")}
	}
	return nil
}

// another is one of the ids that isn't the real one.
func another(ids [3]string) string {
	if ids[1] != ids[0] {
		return ids[1]
	}
	return ids[2]
}

// more says how kprobe gets the right. user is as whom it would have it, too; ""
// is nobody.
func (c *Case) more(user string) string {
	as := ""
	if user != "" {
		as = "run kprobe as user " + user + ", or "
	}
	switch {
	case c.UserNS == Elsewhere && c.Asker.Effective>>capSysPtrace&1 != 0:
		return as + "run kprobe outside of its container: its CAP_SYS_PTRACE is one of its own user namespace only"
	case c.Asker.UID[1] == "0":
		return as + "give kprobe CAP_SYS_PTRACE: it runs as root without (docker: --cap-add SYS_PTRACE)"
	case user == "0":
		return "run kprobe as root"
	}
	return as + "run kprobe as root"
}

// Yama applies the rule of that security module.
func (c *Case) Yama() *Refusal {
	const file = "/proc/sys/kernel/yama/ptrace_scope"
	switch {
	case c.Scope == "3":
		return &Refusal{RuleScope, "kernel.yama.ptrace_scope is 3: nobody may trace anything until the machine is restarted",
			"restart the machine with another kernel.yama.ptrace_scope"}
	case c.Scope == "" || c.Scope == "0" || c.MayTraceAny():
		return nil
	case c.Scope == "1" && c.Descends:
		return nil
	case c.Scope == "1":
		return &Refusal{RuleScope, "kernel.yama.ptrace_scope is 1: a user may trace only programs that kprobe starts",
			"let kprobe start it (-- CMD), " + c.more("") + ", or: echo 0 | sudo tee " + file}
	}
	return &Refusal{RuleScope, "kernel.yama.ptrace_scope is " + c.Scope + ": only root may trace", c.more("") + ", or: echo 0 | sudo tee " + file}
}

func (c *Case) zombie() *Refusal {
	if !c.Zombie {
		return nil
	}
	return &Refusal{RuleZombie, "it has ended, and its parent has not waited for it yet", "nothing is left of it to probe"}
}

func (c *Case) traced() *Refusal {
	if c.Tracer == 0 {
		return nil
	}
	return &Refusal{RuleTraced, fmt.Sprintf("it is traced already, by process %d", c.Tracer), fmt.Sprintf("end or detach process %d", c.Tracer)}
}

// Policy is for a kernel that says no where all of these rules say yes.
func (c *Case) Policy() *Refusal {
	if !c.Denied {
		return nil
	}
	if c.MayTraceAny() {
		return &Refusal{RulePolicy, "the system's policy forbids it even to root (a container's limits, or a security module)",
			"run kprobe outside the container, or have the policy allow it"}
	}
	return &Refusal{RulePolicy, "the system's policy forbids it (a container's limits, or a security module)", c.more("") + ", or have the policy allow it"}
}

// capabilities are the names by number (include/uapi/linux/capability.h).
var capabilities = strings.Fields(`chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap
	linux_immutable net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot
	sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write
	audit_control setfcap mac_override mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore`)

// fewCaps is how many are named.
const fewCaps = 3

func capNames(set uint64) string {
	var names []string
	more := 0
	for i := range 64 {
		switch {
		case set>>i&1 == 0:
		case len(names) == fewCaps:
			more++
		case i < len(capabilities):
			names = append(names, "cap_"+capabilities[i])
		default:
			names = append(names, "capability "+strconv.Itoa(i))
		}
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
