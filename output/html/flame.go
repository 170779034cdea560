package html

import (
	"cmp"
	"slices"

	"kprobe/output/report"
)

const (
	// smallest is the part of all below which a node of the flame graph is merged with
	// its neighbours: 0.05 %.
	smallest = 2000
	maxNodes = 20000
)

// flat is a node of the flame graph: of both recordings, where two are compared.
type flat struct {
	name       string
	value, was uint64 // with what is below
	calls      uint64
	below      []*flat
	merged     uint64 // this stands for so many
}

func (p *Page) flame(all *names, note func(string, ...any)) []uint64 {
	timed := p.Report.Timed() || p.Report.Weight != "" // nodes have more than a number of hits
	tree, cut := p.Report.Tree()
	root := &flat{}
	root.take(tree, timed, false)
	if cut > 0 {
		note("Flame graph: %s calls or hits have paths for which there was no room; they are left out.", grouped(cut))
	}
	if p.Old != nil {
		tree, cut := p.Old.Tree()
		if (p.Old.Timed() || p.Old.Weight != "") == timed {
			root.take(tree, timed, true)
		} else {
			note("Flame graph: one recording has times of calls and the other only numbers of hits: they aren't compared.")
		}
		if cut > 0 {
			note("Flame graph: of %s, %s calls or hits have paths for which there was no room; they are left out.", p.OldName, grouped(cut))
		}
	}
	part := uint64(smallest)
	for part > 1 && root.larger(root, part) > maxNodes {
		part /= 2
	}
	if nodes := root.merge(root, part); nodes > 0 {
		note("Flame graph: %s paths with less than %.3g %% of all are merged with their neighbours (“small ones”).", grouped(nodes), 100/float64(part))
	}
	var out []uint64
	var put func(n *flat, depth uint64)
	put = func(n *flat, depth uint64) {
		out = append(out, depth, uint64(all.number(n.name)), n.value, n.calls, n.was, n.merged)
		for _, b := range n.below {
			put(b, depth+1)
		}
	}
	root.name = "all"
	put(root, 0)
	return out
}

// take adds a report's tree.
func (f *flat) take(n *report.Node, timed, old bool) (value uint64) {
	value = n.Calls
	if timed {
		value = n.Self
	}
	at := map[string]*flat{}
	for _, b := range f.below {
		at[b.name] = b
	}
	for _, b := range n.Below {
		next := at[b.Name]
		if next == nil {
			next = &flat{name: b.Name}
			f.below = append(f.below, next)
		}
		value += next.take(b, timed, old)
	}
	if old {
		f.was += value
	} else {
		f.value += value
		f.calls += n.Calls
	}
	return value
}

// small reports whether a node has less than its part, in both recordings.
func (f *flat) small(root *flat, part uint64) bool {
	less := func(v, all uint64) bool { return v == 0 || float64(v)*float64(part) < float64(all) }
	return less(f.value, root.value) && less(f.was, root.was)
}

// larger counts nodes that aren't small.
func (f *flat) larger(root *flat, part uint64) int {
	n := 1
	for _, b := range f.below {
		if !b.small(root, part) {
			n += b.larger(root, part)
		}
	}
	return n
}

func (f *flat) size() uint64 {
	n := uint64(1)
	for _, b := range f.below {
		n += b.size()
	}
	return n
}

func (f *flat) allCalls() uint64 {
	n := f.calls
	for _, b := range f.below {
		n += b.allCalls()
	}
	return n
}

// merge makes small nodes below one; it gives how many there were.
func (f *flat) merge(root *flat, part uint64) (nodes uint64) {
	var rest flat
	kept := f.below[:0]
	for _, b := range f.below {
		if b.small(root, part) {
			rest.value, rest.was = rest.value+b.value, rest.was+b.was
			rest.merged, rest.calls = rest.merged+b.size(), rest.calls+b.allCalls()
			continue
		}
		nodes += b.merge(root, part)
		kept = append(kept, b)
	}
	slices.SortStableFunc(kept, func(a, b *flat) int { return cmp.Compare(a.name, b.name) })
	if rest.merged > 0 {
		nodes += rest.merged
		rest.name = "small ones"
		kept = append(kept, &rest)
	}
	f.below = kept
	return nodes
}
