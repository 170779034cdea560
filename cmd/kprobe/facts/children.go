package facts

import (
	"slices"

	"kprobe/internal/procfs"
)

// Descendants lists the processes that a process has made, and those that they
// have, that run now, by number; the process itself is not among them. What can't
// be read, or ends meanwhile, is left out.
func (p Proc) Descendants(pid int) []int {
	pids, err := procfs.FS(p.Root).Processes()
	if err != nil {
		return nil
	}
	kids := map[int][]int{}
	for _, kid := range pids {
		if st, err := p.process(kid).Status(); err == nil && st.State() != 'Z' {
			parent := st.Int("PPid")
			kids[parent] = append(kids[parent], kid)
		}
	}
	var out []int
	seen := map[int]bool{pid: true}
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, kid := range kids[todo[0]] {
			if !seen[kid] { // parents change while they are read
				seen[kid] = true
				out, todo = append(out, kid), append(todo, kid)
			}
		}
	}
	slices.Sort(out)
	return out
}
