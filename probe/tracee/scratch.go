//go:build linux && amd64

package tracee

// DropScratch forgets the areas of SetScratch, so that they can be unmapped. Injected calls use
// unused bytes of the process again.
func (p *Process) DropScratch() { p.code, p.frame = 0, 0 }
