//go:build linux && amd64

package tracee

import (
	"bytes"
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
