//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
)

// Call is a system call as seccomp rules see it. An argument that is nil can be anything, and
// so can the address that the call is made from.
type Call struct {
	Number uint32
	Args   [6]*uint64
}

// Allows reports whether the seccomp rules of a stopped thread are known to allow a call. They
// are if there are no rules; or if kprobe is under the same rules and makes the call itself
// (ours); or if the rules can be read (PTRACE_SECCOMP_GET_FILTER, which takes CAP_SYS_ADMIN and
// a kernel with CONFIG_CHECKPOINT_RESTORE) and allow it, whatever the unknown parts of the call
// are.
func (t *Thread) Allows(c *Call, ours bool) bool {
	st, err := procfs.Thread(t.p.pid, t.tid).Status()
	if err != nil {
		return true // it has ended
	}
	switch st.Field("Seccomp") {
	case "0", "":
		return true
	case "1":
		return false
	}
	if ours && t.inherits(st.Int("Seccomp_filters")) {
		return true
	}
	for n := 0; ; n++ {
		rules, e := seccompFilter(t.tid, n)
		if e == syscall.ENOENT && n > 0 {
			return true // all have been asked
		}
		if e != 0 || !c.passes(rules) {
			return false
		}
	}
}

// mayRestart reports whether seccomp rules are known to let the thread make restart_syscall.
func (t *Thread) mayRestart() bool {
	if _, e := seccompFilter(t.tid, 0); e == syscall.EINVAL {
		return true // there are no rules
	}
	return t.Allows(&Call{Number: unix.SYS_RESTART_SYSCALL}, true)
}

// data returns struct seccomp_data, and which words of it are known.
func (c *Call) data() (b [64]byte, known [16]bool) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], c.Number)
	le.PutUint32(b[4:], unix.AUDIT_ARCH_X86_64)
	known[0], known[1] = true, true
	for i, a := range c.Args {
		if a != nil {
			le.PutUint64(b[16+8*i:], *a)
			known[4+2*i], known[5+2*i] = true, true
		}
	}
	return b, known
}

// passes reports whether a filter lets the call through. A filter that looks at unknown words,
// or that isn't understood, doesn't.
func (c *Call) passes(rules []unix.SockFilter) bool {
	data, known := c.data()
	var a, x uint32
	var mem [16]uint32
	for pc := 0; pc < len(rules); pc++ {
		r := &rules[pc]
		operand := r.K
		if r.Code&unix.BPF_X != 0 {
			operand = x
		}
		switch r.Code & 7 {
		case unix.BPF_LD, unix.BPF_LDX:
			to := &a
			if r.Code&7 == unix.BPF_LDX {
				to = &x
			}
			switch mode := r.Code & 0xe0; {
			case mode == unix.BPF_IMM:
				*to = r.K
			case mode == unix.BPF_LEN:
				*to = uint32(len(data))
			case mode == unix.BPF_MEM && r.K < uint32(len(mem)):
				*to = mem[r.K]
			case mode == unix.BPF_ABS && r.K%4 == 0 && r.K < uint32(len(data)) && known[r.K/4]:
				*to = binary.LittleEndian.Uint32(data[r.K:])
			default:
				return false
			}
		case unix.BPF_ST, unix.BPF_STX:
			if r.K >= uint32(len(mem)) {
				return false
			}
			if mem[r.K] = a; r.Code&7 == unix.BPF_STX {
				mem[r.K] = x
			}
		case unix.BPF_ALU:
			var ok bool
			if a, ok = arithmetic(r.Code&0xf0, a, operand); !ok {
				return false
			}
		case unix.BPF_JMP:
			if r.Code&0xf0 == unix.BPF_JA {
				if r.K >= uint32(len(rules)) {
					return false
				}
				pc += int(r.K)
				continue
			}
			yes, ok := compare(r.Code&0xf0, a, operand)
			if !ok {
				return false
			}
			if pc += int(r.Jf); yes {
				pc += int(r.Jt) - int(r.Jf)
			}
		case unix.BPF_RET:
			action := r.K
			if r.Code&0x18 == unix.BPF_A {
				action = a
			}
			action &= unix.SECCOMP_RET_ACTION_FULL
			return action == unix.SECCOMP_RET_ALLOW || action == unix.SECCOMP_RET_LOG
		case unix.BPF_MISC:
			if r.Code&0xf8 == unix.BPF_TXA {
				a = x
			} else {
				x = a
			}
		}
	}
	return false
}

// arithmetic is an operation of a filter.
func arithmetic(op uint16, a, b uint32) (out uint32, ok bool) {
	switch op {
	case unix.BPF_ADD:
		return a + b, true
	case unix.BPF_SUB:
		return a - b, true
	case unix.BPF_MUL:
		return a * b, true
	case unix.BPF_DIV:
		if b == 0 {
			return 0, false
		}
		return a / b, true
	case unix.BPF_AND:
		return a & b, true
	case unix.BPF_OR:
		return a | b, true
	case unix.BPF_XOR:
		return a ^ b, true
	case unix.BPF_LSH:
		return a << b, b < 32
	case unix.BPF_RSH:
		return a >> b, b < 32
	case unix.BPF_NEG:
		return -a, true
	}
	return 0, false
}

// compare is the condition of a filter's jump.
func compare(op uint16, a, b uint32) (yes, ok bool) {
	switch op {
	case unix.BPF_JEQ:
		return a == b, true
	case unix.BPF_JGT:
		return a > b, true
	case unix.BPF_JGE:
		return a >= b, true
	case unix.BPF_JSET:
		return a&b != 0, true
	}
	return false, false
}
