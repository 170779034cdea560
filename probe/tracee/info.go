//go:build linux && amd64

package tracee

import (
	"time"

	"kprobe/internal/procfs"
)

// commFor is how long a name is taken for current: programs name their threads right after they
// start them.
const commFor = time.Millisecond

// Comm returns the thread's name, at most a millisecond old. It is "" if the thread is gone and
// its name was never read.
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
