//go:build linux && amd64

package tracee

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"kprobe/internal/procfs"
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

// bequeath makes one of the children that share the memory of a process, which has
// none any more, the one whose memory the others share.
func (p *Process) bequeath() {
	list := p.Sharers()
	if len(list) == 0 {
		return
	}
	heir := slices.MinFunc(list, func(a, b *Process) int { return cmp.Compare(a.pid, b.pid) })
	for _, q := range list {
		q.shares = heir
	}
	heir.shares = nil
}

// seizeSharers seizes the children that the threads, which are traced by now,
// made before and that still use the process's memory. What changes in it
// concerns them as well.
func (p *Process) seizeSharers(ctx context.Context) error {
	for _, th := range p.Threads() {
		kids, _ := procfs.Thread(p.pid, th.tid).Children() // none where this kernel doesn't tell
		for _, pid := range kids {
			st, _ := procfs.Process(pid).Status()
			if st.Field("TracerPid") != "0" || p.tr.procs[pid] != nil || !sharesMemory(th.tid, pid) {
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
