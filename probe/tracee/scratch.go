//go:build linux && amd64

package tracee

// DropScratch forgets the areas that SetScratch named, so that they can be
// unmapped: unused bytes of the process serve again.
func (p *Process) DropScratch() { p.code, p.frame = 0, 0 }
