package access

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// Look gathers the case of two processes from a /proc at root: self asks for pid.
// What can't be read is left unknown.
func Look(root string, self, pid int) *Case {
	p := proc{root}
	mine, its := p.status(self), p.status(pid)
	c := &Case{Asker: person(mine), Asked: person(its)}
	c.UserNS, c.Owns = p.relation(self, pid, c.Asker.UID[1])
	state := its.State()
	c.Zombie = state == 'Z' || state == 'X'
	c.Kernel = its != nil && its.Field("VmSize") == "" && !c.Zombie && its.Field("Kthread") != "0" && !p.hasMemory(pid)
	if scope, err := os.ReadFile(filepath.Join(p.Root, "sys/kernel/yama/ptrace_scope")); err == nil {
		c.Scope = strings.TrimSpace(string(scope))
	}
	c.Descends = c.Scope == "1" && p.descends(self, pid)
	c.Tracer = its.Int("TracerPid")
	// The owner of /proc/PID is root where the process may not be dumped (proc(5)).
	if st, err := os.Stat(p.path(pid)); err == nil && root == "/proc" {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && c.Asked.UID[1] != "" {
			c.Hidden = strconv.Itoa(int(sys.Uid)) != c.Asked.UID[1]
		}
	}
	if _, err := os.ReadDir(p.path(pid, "map_files")); os.IsPermission(err) && c.Asked.UID == c.Asker.UID {
		c.Hidden = true
	}
	c.Denied = p.denied(pid)
	c.Forbidden = root == "/proc" && mine.Int("Seccomp") == 2 && ptraceForbidden()
	return c
}

// proc is a /proc to look at.
type proc struct{ Root string }

func (p proc) path(pid int, name ...string) string {
	return filepath.Join(append([]string{p.Root, strconv.Itoa(pid)}, name...)...)
}

// hasMemory reports whether a thread of the process has memory of a program: the
// first may have ended.
func (p proc) hasMemory(pid int) bool {
	process := procfs.FS(p.Root).Process(pid)
	tids, _ := process.Threads()
	for _, tid := range tids {
		if st, _ := process.Thread(tid).Status(); st.Field("VmSize") != "" {
			return true
		}
	}
	return false
}

// denied asks the kernel: opening a process's memory is checked as attaching is
// (PTRACE_MODE_ATTACH, fs/proc/base.c), and does nothing to the process.
func (p proc) denied(pid int) bool {
	f, err := os.Open(p.path(pid, "mem"))
	if err != nil {
		return os.IsPermission(err)
	}
	f.Close()
	return false
}

// status reads a process's status; what can't be read is left unknown.
func (p proc) status(pid int) procfs.Status {
	st, _ := procfs.FS(p.Root).Process(pid).Status()
	return st
}

func person(st procfs.Status) (p Person) {
	for i, word := range strings.Fields(st.Field("Uid")) {
		if i < len(p.UID) {
			p.UID[i] = word
		}
	}
	for i, word := range strings.Fields(st.Field("Gid")) {
		if i < len(p.GID) {
			p.GID[i] = word
		}
	}
	p.Effective, _ = st.Set("CapEff")
	p.Permitted, _ = st.Set("CapPrm")
	return p
}

// initialUser is the first user namespace (PROC_USER_INIT_INO of
// include/linux/proc_ns.h): all others are below it.
const initialUser = "user:[4026531837]"

// relation compares user namespaces. Those that can't be told are taken for the
// same, and the kernel's word decides. owns reports whether user euid of mine has
// made its, or one above that, from mine.
func (p proc) relation(mine, its int, euid string) (r Relation, owns bool) {
	a, err1 := os.Readlink(p.path(mine, "ns/user"))
	b, err2 := os.Readlink(p.path(its, "ns/user"))
	if err1 != nil || err2 != nil || a == b {
		return Same, false
	}
	if below, owner := p.below(a, its); below {
		return Below, owner == euid
	}
	if a == initialUser {
		return Below, false // it can't be opened
	}
	return Elsewhere, false
}

// inUserNamespace reports whether a process is in another user namespace than the
// first; one that can't be told is taken for the first.
func (p proc) inUserNamespace(pid int) bool {
	ns, err := os.Readlink(p.path(pid, "ns/user"))
	return err == nil && ns != initialUser
}

// below reports whether the user namespace of a process has mine among those
// above it, and who made the one right below mine (ioctl_ns(2)).
func (p proc) below(mine string, its int) (is bool, owner string) {
	fd, err := unix.Open(p.path(its, "ns/user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for err == nil {
		up, uerr := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		by, oerr := unix.IoctlGetUint32(fd, unix.NS_GET_OWNER_UID)
		_ = unix.Close(fd)
		if uerr != nil {
			return false, "" // there is none, or it is none of ours
		}
		if name, nerr := os.Readlink("/proc/self/fd/" + strconv.Itoa(up)); nerr == nil && name == mine {
			_ = unix.Close(up)
			if oerr == nil {
				owner = strconv.FormatUint(uint64(by), 10)
			}
			return true, owner
		}
		fd = up
	}
	return false, ""
}

// descends reports whether a process is a descendant of another.
func (p proc) descends(of, pid int) bool {
	for range 1000 { // a chain that grows while it is read must end too
		if pid = p.status(pid).Int("PPid"); pid == of {
			return true
		}
		if pid <= 1 {
			return false
		}
	}
	return false
}
