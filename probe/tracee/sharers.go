//go:build linux && amd64

package tracee

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"kprobe/internal/procfs"
)

// Sharers lists the traced processes that use the memory of this one: vfork and CLONE_VM
// children, followed or not. It must be called on the tracer's thread.
func (p *Process) Sharers() []*Process {
	var out []*Process
	for _, q := range p.tr.procs {
		if q.shares == p {
			out = append(out, q)
		}
	}
	return out
}

// StillSharers is Sharers without those that are known to have memory of their own by now,
// because they have executed a program that the handler wasn't told about yet.
func (p *Process) StillSharers() []*Process {
	return slices.DeleteFunc(p.Sharers(), func(q *Process) bool {
		same, known := compareMemory(p.pid, q.pid)
		return known && !same
	})
}

// bequeath is for a process that no longer has its memory. It makes one of the children that
// share the memory the one whose memory the others share.
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

// seizeSharers seizes the children that the process's threads made before they were traced, and
// that still use its memory. Changes of that memory concern them as well.
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

// WithSharers calls fn with the stopped threads of the process and of the children that share
// its memory, which it stops for that. Threads of children that can't be stopped are among
// those of AllLate.
func (p *Process) WithSharers(ctx context.Context, stopped []*Thread, fn func([]*Thread) error) error {
	for _, q := range p.Sharers() {
		err := q.StopAll(ctx)
		defer func() { _ = q.ResumeAll() }() // fails only for threads that are gone
		if err := IgnoreLate(err); err != nil && !errors.Is(err, ErrGone) {
			return err
		}
		for _, t := range q.Threads() {
			if t.Stopped() {
				stopped = append(stopped, t)
			}
		}
	}
	return fn(stopped)
}

// AllLate lists the threads in the process's memory that could not be stopped.
func (p *Process) AllLate() []*Thread {
	all := p.Late()
	for _, q := range p.Sharers() {
		all = append(all, q.Late()...)
	}
	return all
}

// IgnoreLate removes from a stop's error the part about threads that didn't stop
// (*NotStoppedError). They wait in the kernel, and execute no code before they have stopped. A
// caller that writes over the place where they continue must ask AllLate.
func IgnoreLate(err error) error {
	var late *NotStoppedError
	if errors.As(err, &late) {
		return nil
	}
	return err
}
