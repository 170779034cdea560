//go:build linux && amd64

package tracee

import (
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// Piece is data to be written to an address.
type Piece struct {
	At symbols.Addr
	B  []byte
}

// WriteTogether writes small pieces to memory that the program may write to, one after another
// in one system call: a tracer that is killed has written all of them or none. On an error none
// is written, unless the error is io.ErrShortWrite.
func (p *Process) WriteTogether(pieces ...Piece) error {
	var local []unix.Iovec
	var remote []unix.RemoteIovec
	all := 0
	for _, x := range pieces {
		if err := p.asks(Request{Kind: RequestWrite, Addr: x.At, Len: len(x.B)}); err != nil {
			return fmt.Errorf("write memory of process %d at %v: %w", p.pid, x.At, err)
		}
		v := unix.Iovec{Base: &x.B[0]}
		v.SetLen(len(x.B))
		local = append(local, v)
		remote = append(remote, unix.RemoteIovec{Base: uintptr(x.At), Len: len(x.B)})
		all += len(x.B)
	}
	step()
	n, err := unix.ProcessVMWritev(p.pid, local, remote, 0)
	if err == syscall.ESRCH {
		if tid := procfs.Living(p.pid); tid != p.pid {
			n, err = unix.ProcessVMWritev(tid, local, remote, 0)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("write memory of process %d: %w", p.pid, err)
	case n != all:
		return fmt.Errorf("write memory of process %d: %w", p.pid, io.ErrShortWrite)
	}
	for _, x := range pieces {
		p.tr.unborn.write(p, x.B, x.At)
	}
	return nil
}
