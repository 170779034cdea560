//go:build linux

package starts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The proc connector's protocol (linux/cn_proc.h, linux/connector.h): a netlink header of
// 16 bytes, a connector's of 20, then struct proc_event: u32 what, u32 cpu, u64 time, and for
// exec s32 thread, s32 process.
const (
	cnIdxProc   = 1
	cnValProc   = 1
	mcastListen = 1
	eventExec   = 2
	netlinkSize = 16
	connSize    = 20
	eventHeader = 16
)

// news tells of each execve.
type news struct{ f *os.File }

// firstPIDNamespace is the number of the namespace in which the kernel sends news
// (PROC_PID_INIT_INO of linux/proc_ns.h); elsewhere a socket is taken and stays silent.
const firstPIDNamespace = "pid:[4026531836]"

func openNews() (*news, error) {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != firstPIDNamespace {
		return nil, errNone
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, fmt.Errorf("proc connector: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: cnIdxProc}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("proc connector: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) // the default holds fewer
	b := make([]byte, netlinkSize+connSize+4)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint16(b[4:], unix.NLMSG_DONE)
	binary.LittleEndian.PutUint32(b[12:], uint32(os.Getpid()))
	binary.LittleEndian.PutUint32(b[16:], cnIdxProc)
	binary.LittleEndian.PutUint32(b[20:], cnValProc)
	binary.LittleEndian.PutUint16(b[32:], 4)
	binary.LittleEndian.PutUint32(b[36:], mcastListen)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("proc connector: %w", err)
	}
	return &news{os.NewFile(uintptr(fd), "proc connector")}, nil
}

func (n *news) close() { _ = n.f.Close() }

// read tells of processes that have executed a program, and when news were lost.
func (n *news) read(executed func(pid int), lost func()) {
	conn, err := n.f.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, 1<<12)
	for {
		var size int
		var from unix.Sockaddr
		var rerr error
		err := conn.Read(func(fd uintptr) bool {
			size, from, rerr = unix.Recvfrom(int(fd), b, 0)
			return !errors.Is(rerr, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return // closed
		case errors.Is(rerr, unix.ENOBUFS):
			lost()
			continue
		case errors.Is(rerr, unix.EINTR):
			continue
		case rerr != nil:
			time.Sleep(LookEvery)
			continue
		}
		if k, ok := from.(*unix.SockaddrNetlink); !ok || k.Pid != 0 {
			continue // not the kernel
		}
		if pid, ok := execIn(b[:size]); ok {
			executed(pid)
		}
	}
}

// execIn gives the process of a message about an execve.
func execIn(b []byte) (pid int, ok bool) {
	const at = netlinkSize + connSize
	if len(b) < at+eventHeader+8 || binary.LittleEndian.Uint32(b[16:]) != cnIdxProc || binary.LittleEndian.Uint32(b[at:]) != eventExec {
		return 0, false
	}
	return int(int32(binary.LittleEndian.Uint32(b[at+eventHeader+4:]))), true
}
