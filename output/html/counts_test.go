package html

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/output"
	"kprobe/output/spread"
)

// countsPage is a page of hostile texts, with more of everything than is shown.
func countsPage(t testing.TB) string {
	t.Helper()
	var s spread.Spread
	for _, ns := range []uint64{0, 1, 40, 41, 50, 1000, 1001, 1200, 5_000_000, 1 << 63} {
		s.Add(ns)
	}
	times := Times{Calls: output.Calls{Func: hostile[0], Event: "e", Count: s.Count, Total: s.Sum, Min: s.Min, Max: s.Max, Average: s.Average(), P50: s.Percentile(50), P99: s.Percentile(99), Lost: 3}}
	for c := range s.Cells {
		times.Cells = append(times.Cells, c)
	}
	hist := output.HistTable{Group: "g", Event: hostile[1], Trigger: "hist:keys=n", Keys: []string{"n", "s"}, Vals: []string{"size"}, Hits: 1000, Lost: 7, All: 1007, Dropped: 2, By: 0}
	for i := range uint64(mostBars + 3) {
		hist.Rows = append(hist.Rows, output.HistRow{Keys: []string{fmt.Sprintf("%d – %d", i, i+1), hostile[0] + "\nmain"}, Count: 1, Vals: []uint64{i}})
	}
	p := &Counts{
		Title: hostile[2], Facts: []Fact{{"On", hostile[0]}, {"Nothing", ""}}, Notes: []string{hostile[1]},
		Times: []Times{times, {Calls: output.Calls{Func: "never"}}}, Tables: []output.HistTable{hist, {Event: "empty", By: -1}},
	}
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCountsPage(t *testing.T) {
	page := countsPage(t)
	for _, want := range []string{
		"default-src 'none'", "3 more entries, with 3 hits together, are left out.", "10</td>", "lost</th>", "<rect class=\"bar\"",
		"7 of 1,007 hits were lost", "2 more had values for which there was no room", "\nmain</td>", ">p99</text>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"{{", "NaN", "Inf", "%!", "<script", "<img"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if n := strings.Count(page, "<tr>"); n != 1+2+1+mostBars {
		t.Errorf("%d rows", n)
	}
}

// TestBars: bars are parts of octaves, and have all calls.
func TestBars(t *testing.T) {
	var s spread.Spread
	for v := range uint64(5000) {
		s.Add(v)
	}
	var cells []spread.Cell
	for c := range s.Cells {
		cells = append(cells, c)
	}
	all, last := uint64(0), uint64(0)
	for i, g := range bars(cells) {
		if g.from != last && i > 0 || g.to <= g.from || g.from >= 16 && g.to-g.from > g.from/8 {
			t.Errorf("from %d to %d, behind %d", g.from, g.to, last)
		}
		all, last = all+g.count, g.to
	}
	if all != 5000 {
		t.Errorf("%d of 5000", all)
	}
}
