package report

import (
	"slices"

	"kprobe/output/calls"
	"kprobe/output/recording"
)

// Node is a path of calls, or of recorded stacks, and what was spent there.
type Node struct {
	Name  string // of the innermost; the root's is empty
	Calls uint64 // that end here; or hits
	Self  uint64 // ns without what is below; with Report.Weight the sum of that value
	Below []*Node
}

// Tree gives the paths, those below a node in order of names, and how many calls and
// hits have none, as there was no room.
func (r *Report) Tree() (root *Node, cut uint64) {
	var copied func(name string, n *node) *Node
	copied = func(name string, n *node) *Node {
		out := &Node{Name: name, Calls: n.calls, Self: n.self}
		names := make([]string, 0, len(n.below))
		for name := range n.below {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			out.Below = append(out.Below, copied(name, n.below[name]))
		}
		return out
	}
	return copied("", r.tree), r.Cut
}

// Timed reports whether paths have times, and not only numbers of hits.
func (r *Report) Timed() bool { return r.timed() }

// FrameName is a function's name as it stands in a path.
func FrameName(p *recording.Place) string { return frame(p) }

// TrackName is what a call's thread or goroutine is called.
func TrackName(c *calls.Call) string { return trackName(c) }
