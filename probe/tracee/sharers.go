//go:build linux && amd64

package tracee

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
)

// Sharers lists the traced processes that use the memory of this one: vfork and
// CLONE_VM children, followed or not. It is called on the tracer's thread.
func (p *Process) Sharers() []*Process {
	var out []*Process
	for _, q := range p.tr.procs {
		if q.shares == p {
			out = append(out, q)
		}
	}
	return out
}

// seizeSharers seizes the children that the threads, which are traced by now,
// made before and that still use the process's memory. What changes in it
// concerns them as well.
func (p *Process) seizeSharers(ctx context.Context) error {
	for _, th := range p.Threads() {
		list, err := os.ReadFile(taskPath(p.pid, th.tid, "children"))
		if err != nil {
			continue // it has ended, or this kernel doesn't tell
		}
		for _, word := range strings.Fields(string(list)) {
			pid, _ := strconv.Atoi(word)
			status, err := os.ReadFile(procPath(pid, "status"))
			if err != nil || statusField(status, "TracerPid") != "0" || p.tr.procs[pid] != nil || !sharesMemory(p.pid, pid) {
				continue
			}
			q := p.tr.newProcess(pid)
			q.shares = cmp.Or(p.shares, p)
			if err := q.seizeAll(ctx); err != nil {
				if len(q.threads) > 0 {
					_ = q.Detach(context.WithoutCancel(ctx), nil) // it has ended
				}
				p.tr.drop(q)
				if !errors.Is(err, ErrGone) {
					return err
				}
			}
		}
	}
	return nil
}
