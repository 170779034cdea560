package report

import "kprobe/output/calls"

// total is what time t of a call adds to the total of its row: all of it, unless it is in the time of a
// call of the same row that this one is within.
func (r *Report) total(c *calls.Call, t uint64) uint64 {
	switch r.By {
	case "thread":
		if c.Parent != nil {
			return 0
		}
	case "func":
		for p, n := c.Parent, 0; p != nil && n < farthest; p, n = p.Parent, n+1 {
			if p.Func == c.Func {
				return 0
			}
		}
	}
	return t
}

// farthest bounds how far up a call of the same function is looked for.
const farthest = 1 << 10

// nested is, for calls that are not over, how much of their time is in the totals of rows already, by calls
// within them. Rows of values need it: the value of a call may come with its return, after the calls that
// it has made.
type nested map[*calls.Call]map[*Row]uint64

// leave is total for a call that is over, by values. row is nil if it has no value.
func (n nested) leave(c *calls.Call, row *Row, t uint64) uint64 {
	below := n[c]
	delete(n, c)
	rest := t
	if row != nil {
		rest -= min(t, below[row])
		if below == nil {
			below = map[*Row]uint64{}
		}
		below[row] = t
	}
	switch above := n[c.Parent]; {
	case c.Parent == nil || below == nil:
	case above == nil:
		n[c.Parent] = below
	default:
		for row, t := range below {
			above[row] += t
		}
	}
	return rest
}

// grow notes that a call that was over has added more time to the total of its row.
func (n nested) grow(c *calls.Call, row *Row, t uint64) {
	p := c.Parent
	if p == nil || p.Leave != 0 {
		return
	}
	if n[p] == nil {
		n[p] = map[*Row]uint64{}
	}
	n[p][row] += t
}
