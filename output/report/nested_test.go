package report

import (
	"slices"
	"testing"

	"kprobe/output/calls"
)

// TestNestedValues: the time of calls within calls with the same value is in the value's total once. In
// the sample each thread has a value of its own.
func TestNestedValues(t *testing.T) {
	totals := func(by string) []uint64 {
		r, _ := readAll(t, by, nil)
		rows := map[string]uint64{}
		for _, row := range r.Rows() {
			rows[row.Name[len(row.Name)-1:]] = row.Total
		}
		return []uint64{rows["1"], rows["2"]}
	}
	if value, thread := totals("n"), totals("thread"); !slices.Equal(value, thread) || thread[0] == 0 {
		t.Errorf("the values' totals are %d, those of their threads %d", value, thread)
	}
}

// TestNested: the value of a call comes with its return, after the calls that it made.
func TestNested(t *testing.T) {
	n, a, b := nested{}, &Row{}, &Row{}
	top := &calls.Call{}
	mid := &calls.Call{Parent: top}
	leaf := &calls.Call{Parent: mid}
	other := &calls.Call{Parent: top}
	for i, x := range []struct {
		c    *calls.Call
		row  *Row
		t    uint64
		want uint64
	}{
		{leaf, a, 5, 5},
		{mid, nil, 10, 10}, // it has no value
		{other, b, 30, 30},
		{top, a, 100, 95},
	} {
		if i == 2 {
			n.grow(leaf, a, 7) // its caller is over
			n.grow(mid, b, 2)
		}
		if got := n.leave(x.c, x.row, x.t); got != x.want {
			t.Errorf("call %d adds %d, want %d", i, got, x.want)
		}
		x.c.Leave = 1
	}
	if len(n) != 0 {
		t.Errorf("%d calls are kept", len(n))
	}
	if got := n.leave(&calls.Call{}, b, 50); got != 50 {
		t.Errorf("a call by itself adds %d of 50", got)
	}
}
