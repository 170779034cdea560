//go:build linux && amd64

package tracee

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
