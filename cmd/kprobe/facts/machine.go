package facts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/output"
)

// Machine says what this machine has that kprobe can use: nothing in it stands
// in the way of tracing a process. It changes nothing.
func (p Proc) Machine() []output.Fact {
	return []output.Fact{p.kernel(), rseqFact(unix.RawSyscall(unix.SYS_RSEQ, 0, 0, 0)), p.tracefs(), p.userNamespaces()}
}

func (p Proc) kernel() output.Fact {
	release, err := os.ReadFile(filepath.Join(p.Root, "sys/kernel/osrelease"))
	if err != nil {
		return note("kernel", fmt.Sprintf("its release can't be read: %v", err), "mount -t proc proc /proc")
	}
	return fine("kernel", "Linux "+strings.TrimSpace(string(release)))
}

// rseqFact judges the answer to rseq(2) with an area of no bytes, which
// registers nothing: EINVAL from a kernel that has restartable sequences,
// ENOSYS from one that has none.
func rseqFact(_, _ uintptr, errno unix.Errno) output.Fact {
	if errno == unix.ENOSYS || errno == unix.EPERM {
		return note("rseq", fmt.Sprintf("no restartable sequences (%v)", errno), "Linux has them since 4.18, if its configuration says CONFIG_RSEQ")
	}
	return fine("rseq", "the kernel has restartable sequences")
}

// tracefs looks for the kernel's own uprobes, which kprobe bench compares with.
func (p Proc) tracefs() output.Fact {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		f, err := os.OpenFile(filepath.Join(dir, "uprobe_events"), os.O_RDWR|unix.O_NONBLOCK, 0)
		if err == nil {
			f.Close()
			return fine("tracefs", "the kernel's uprobes are at "+dir)
		}
		if os.IsPermission(err) {
			return note("tracefs", "the kernel's uprobes are at "+dir+", for root only", "only kprobe bench wants them: run it as root")
		}
	}
	return note("tracefs", "the kernel's uprobes are not available", "only kprobe bench wants them: mount -t tracefs nodev /sys/kernel/tracing")
}

func (p Proc) userNamespaces() output.Fact {
	text, err := os.ReadFile(filepath.Join(p.Root, "sys/user/max_user_namespaces"))
	if _, nerr := os.Stat(filepath.Join(p.Root, "self/ns/user")); err != nil || nerr != nil {
		return note("user namespaces", "this kernel has none", "nothing that kprobe does needs them")
	}
	if strings.TrimSpace(string(text)) == "0" {
		return note("user namespaces", "switched off by user.max_user_namespaces", "nothing that kprobe does needs them")
	}
	return fine("user namespaces", "users may create them")
}
