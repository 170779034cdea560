//go:build linux

package procfs

import (
	"bytes"
	"strconv"
	"syscall"
)

// Position is where a thread stands (proc_pid_syscall(5)).
type Position struct {
	Running bool      // it runs: where isn't told
	InCall  bool      // it is in a system call
	Nr      int64     // of the system call; -1: none, but a fault or another exception
	Args    [6]uint64 // of the system call
	SP, PC  uint64    // of the program: behind the system call, or at the instruction that faulted
}

// Position reads where a thread stands, for whoever may trace it.
func (t Task) Position() (Position, error) {
	var buf [256]byte
	text, err := Read(t.Path("syscall"), buf[:])
	if err != nil {
		return Position{}, err
	}
	return ParsePosition(text)
}

// ParsePosition reads the text of a syscall file. The error is EINVAL.
func ParsePosition(text []byte) (p Position, err error) {
	f := bytes.Fields(text)
	if len(f) == 1 && string(f[0]) == "running" {
		return Position{Running: true}, nil
	}
	if len(f) != 3 && len(f) != 9 { // NR [ARG…] SP PC
		return Position{}, syscall.EINVAL
	}
	p.InCall = len(f) == 9
	if p.Nr, err = strconv.ParseInt(string(f[0]), 10, 64); err != nil {
		return Position{}, syscall.EINVAL
	}
	var v [8]uint64
	for i, w := range f[1:] {
		if v[i], err = strconv.ParseUint(string(w), 0, 64); err != nil {
			return Position{}, syscall.EINVAL
		}
	}
	n := len(f) - 3
	copy(p.Args[:], v[:n])
	p.SP, p.PC = v[n], v[n+1]
	return p, nil
}
