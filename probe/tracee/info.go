//go:build linux && amd64

package tracee

import (
	"bytes"
	"strconv"
	"time"
)

// commFor is how long a name is believed: programs name their threads right
// after they started them.
const commFor = time.Millisecond

// Comm gives the thread's name, as of a millisecond ago at most; "" if it is
// gone and was never asked for.
func (t *Thread) Comm() string {
	now := time.Now()
	if now.Sub(t.commAt) < commFor {
		return t.comm
	}
	var buf [64]byte // TASK_COMM_LEN, of kernel threads a little more
	if b, err := readSmall(taskPath(t.p.pid, t.tid, "comm"), buf[:]); err == nil {
		t.commAt = now
		if b = bytes.TrimSuffix(b, []byte{'\n'}); string(b) != t.comm {
			t.comm = string(b)
		}
	}
	return t.comm
}

// CPU gives the CPU that the thread last ran on; -1 if it can't be known.
//
// The kernel writes it to the thread's rseq area, where one is registered (C
// libraries of our days do), each time that it returns to user mode on another
// CPU; else /proc knows.
func (t *Thread) CPU() int {
	if area := t.rseqArea(); area != 0 && t.stopped {
		// Half the price of process_vm_readv.
		if w, e := peek(t.tid, area); e == 0 {
			if n := int32(w >> (8 * rseqCPU)); n >= 0 {
				return int(n)
			}
		}
	}
	const processor = 39 - 3 // field 39 of proc_pid_stat(5)
	f, err := statFields(taskPath(t.p.pid, t.tid, "stat"))
	if err != nil || len(f) <= processor {
		return -1
	}
	n, err := strconv.Atoi(f[processor])
	if err != nil {
		return -1
	}
	return n
}
