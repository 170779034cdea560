package report

import (
	"slices"
	"strings"

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

// node is a path of calls, or of a recorded stack.
type node struct {
	place *recording.Place // nil: the root
	below map[string]*node
	// recent are some of below: what was looked for last.
	recent [4]*node
	turn   int
	calls  uint64
	self   uint64
}

// pathOf is a stack with the outermost first.
func pathOf(s *recording.Stack) string {
	var b strings.Builder
	for i := len(s.Frames) - 1; i >= 0; i-- {
		if b.Len() > 0 {
			b.WriteByte(';')
		}
		b.WriteString(frame(s.Frames[i]))
	}
	return b.String()
}

// frame is a function's name as it stands in a path.
func frame(p *recording.Place) string {
	if p.Name == "" {
		return p.String()
	}
	return strings.ReplaceAll(p.Name, ";", ":")
}

func callPath(c *calls.Call) string {
	path := frame(c.Func)
	for p := c.Parent; p != nil && len(path) < 1<<12; p = p.Parent {
		path = frame(p.Func) + ";" + path
	}
	return path
}

// path is the node of a call.
func (r *Report) path(c *calls.Call) *node {
	var list [MaxDepth]*recording.Place
	n := 0
	for p := c; p != nil; p = p.Parent {
		if n == len(list) {
			r.Deep++
			break
		}
		list[n] = p.Func
		n++
	}
	at := r.tree
	for i := n - 1; i >= 0 && at != nil; i-- {
		at = r.step(at, list[i])
	}
	return at
}

func (r *Report) stack(s *recording.Stack) *node {
	at := r.tree
	for i := len(s.Frames) - 1; i >= 0 && at != nil; i-- {
		at = r.step(at, s.Frames[i])
	}
	return at
}

// step is the node of a place below another; nil where there is no room.
func (r *Report) step(n *node, p *recording.Place) *node {
	for _, next := range n.recent {
		if next != nil && next.place == p {
			return next
		}
	}
	name := frame(p)
	if next := n.below[name]; next != nil {
		n.recent[n.turn%len(n.recent)] = next
		n.turn++
		return next
	}
	if r.size >= MaxPaths {
		return nil
	}
	r.size++
	if n.below == nil {
		n.below = map[string]*node{}
	}
	next := &node{place: p}
	n.below[name] = next
	return next
}

func (r *Report) add(n *node, calls, self uint64) {
	if n == nil {
		r.Cut++
		return
	}
	n.calls += calls
	n.self = sum(n.self, self)
}

// walk calls each for every node that has something of its own, in order of names,
// with the path from the outermost.
func (r *Report) walk(each func(path []*recording.Place, n *node)) {
	var down func(n *node, path []*recording.Place)
	down = func(n *node, path []*recording.Place) {
		if n.place != nil {
			path = append(path, n.place)
		}
		if n.calls != 0 || n.self != 0 {
			each(path, n)
		}
		names := make([]string, 0, len(n.below))
		for name := range n.below {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			down(n.below[name], path)
		}
	}
	down(r.tree, nil)
}
