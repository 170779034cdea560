//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// How a process ended that was parted with
//
// The status of a process of Start comes from wait. Any other process is another process's child. From
// Linux 6.15 on, a pidfd that was opened before has the status once the parent has collected it.
// Until then /proc has it.

// pidfd is a descriptor of a process; 0: there is none.
type pidfd int

func openPidfd(pid int) pidfd {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0
	}
	return pidfd(fd)
}

func (f *pidfd) close() {
	if *f > 0 {
		_ = unix.Close(int(*f))
	}
	*f = 0
}

// PIDFD_GET_INFO of include/uapi/linux/pidfd.h, with the struct's first version.
const (
	pidfdGetInfo  = 0xc040ff0b
	pidfdInfoExit = 1 << 3
	pidfdInfoSize = 64
	pidfdExitCode = 60
)

// exit returns the status that the parent has collected.
func (f pidfd) exit() (st syscall.WaitStatus, ok bool) {
	var info [pidfdInfoSize]byte
	binary.LittleEndian.PutUint64(info[:], pidfdInfoExit)
	if ioctl(int(f), pidfdGetInfo, info[:]) != 0 || binary.LittleEndian.Uint64(info[:])&pidfdInfoExit == 0 {
		return 0, false
	}
	return syscall.WaitStatus(binary.LittleEndian.Uint32(info[pidfdExitCode:])), true
}

// endPatience is how long the parent of a process that has ended may take to collect it.
const endPatience = 100 * time.Millisecond

// EndStatus returns how a process that was parted with ended; 0 if the kernel doesn't tell.
func (p *Process) EndStatus() syscall.WaitStatus {
	if st, ok := p.tr.reaped[p.pid]; ok {
		return st
	}
	if p.fd == 0 {
		return 0
	}
	for until := time.Now().Add(endPatience); ; time.Sleep(time.Millisecond) {
		if st, ok := p.fd.exit(); ok {
			return st
		}
		stat, err := procfs.Process(p.pid).Stat()
		if start, _ := stat.Uint(procfs.FieldStart); err == nil && start == p.start && stat.Ended() {
			if st, ok := stat.Uint(procfs.FieldExitCode); ok && st != 0 {
				return syscall.WaitStatus(st)
			}
		}
		if time.Now().After(until) {
			return 0
		}
	}
}
