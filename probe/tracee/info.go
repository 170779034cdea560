//go:build linux && amd64

package tracee

import (
	"time"

	"kprobe/internal/procfs"
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
	if comm, err := procfs.Thread(t.p.pid, t.tid).Comm(); err == nil {
		t.commAt, t.comm = now, comm
	}
	return t.comm
}
