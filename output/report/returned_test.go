package report

import (
	"strings"
	"testing"

	"kprobe/output/calls"
	"kprobe/output/recording"
)

// TestReturned: f calls itself by the jump of another function, so that both calls have one stack
// and return together; h runs on a stack of its own meanwhile. Each call is one call, with its time.
func TestReturned(t *testing.T) {
	in := &recording.Event{Name: "in", Entry: true, Fields: []recording.Field{{Name: "n", Kind: recording.Signed}}}
	out := &recording.Event{Name: "out", Return: true, Fields: []recording.Field{{Name: "ret", Kind: recording.Signed}}}
	f, g, h := &recording.Place{Name: "f", Addr: 1}, &recording.Place{Name: "g", Addr: 2}, &recording.Place{Name: "h", Addr: 3}
	thread := &recording.Thread{PID: 1, TID: 1}
	for by, want := range map[string]map[string]Row{
		"func": {
			"f": {Calls: 2, Total: 20, Self: 20},
			"g": {Calls: 1, Total: 30, Self: 30},
			"h": {Calls: 1, Total: 20, Self: 20},
		},
		"n":   {"7": {Calls: 4, Total: 70, Self: 70}},
		"ret": {"0": {Calls: 4, Total: 70, Self: 70}},
	} {
		r := &Report{By: by}
		r.Begin()
		for _, x := range []recording.Hit{
			{Event: in, Place: f, Time: 10, SP: 900}, {Event: in, Place: f, Time: 20, SP: 900},
			{Event: out, Place: f, Time: 30, Entry: 20}, {Event: out, Place: f, Time: 30, Entry: 10},
			{Event: in, Place: g, Time: 40, SP: 800}, {Event: in, Place: h, Time: 50, SP: 850},
			{Event: out, Place: g, Time: 70, Entry: 40}, {Event: out, Place: h, Time: 70, Entry: 50},
		} {
			x.Thread, x.Values = thread, []recording.Value{{Int: 7}}
			if x.Event == out {
				x.Values[0].Int = 0
			}
			if err := r.Hit(&x); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Tracks.Finish(); err != nil {
			t.Fatal(err)
		}
		self := uint64(0)
		for _, row := range r.Rows() {
			w := want[row.Name]
			if row.Calls != w.Calls || row.Left != 0 || row.Open != 0 || row.Total != w.Total || row.Self != w.Self || row.Times.Max != 30 && row.Name == "g" {
				t.Errorf("by %s: %s: %d calls, %d left, %d open, total %d, self %d, max %d; want %d calls, total %d, self %d",
					by, row.Name, row.Calls, row.Left, row.Open, row.Total, row.Self, row.Times.Max, w.Calls, w.Total, w.Self)
			}
			self += row.Self
		}
		if sum := folded(t, r); by == "func" && sum != self {
			t.Errorf("%d ns in rows, %d in paths", self, sum)
		}
		if r.Tracks.Lates != 0 || len(r.Rows()) != len(want) {
			t.Errorf("by %s: %d calls without an entry, %d rows", by, r.Tracks.Lates, len(r.Rows()))
		}
	}
	var _ calls.Returner = &Report{}
}

// TestOpenJSON: an object has the time of calls that haven't returned, as the table has.
func TestOpenJSON(t *testing.T) {
	in, place := &recording.Event{Name: "in", Entry: true}, &recording.Place{Name: "f", Addr: 1}
	r := &Report{By: "func"}
	r.Begin()
	for i, tid := range []int{1, 2} {
		h := recording.Hit{Event: in, Place: place, Thread: &recording.Thread{PID: 1, TID: tid}, Time: uint64(10 + 20*i), SP: 900}
		if err := r.Hit(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Tracks.Finish(); err != nil {
		t.Fatal(err)
	}
	want := `{"type":"row","by":"func","name":"f","hits":0,"calls":0,"open":2,"no_return":0,"total":20,"self":20}` + "\n"
	if got := string(r.AppendJSON(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// diffOf is the text by which two reports differ, of the hits that hits gives for the earlier one, 0, and for 1.
func diffOf(t *testing.T, hits func(i int) []recording.Hit) string {
	t.Helper()
	var two [2]*Report
	for i := range two {
		two[i] = &Report{By: "func"}
		two[i].Begin()
		for _, x := range hits(i) {
			if err := two[i].Hit(&x); err != nil {
				t.Fatal(err)
			}
		}
		if err := two[i].Tracks.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := two[1].Diff(&b, two[0], false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestDiffOpen: a function all of whose calls are open isn't gone.
func TestDiffOpen(t *testing.T) {
	in, place := &recording.Event{Name: "in", Entry: true}, &recording.Place{Name: "f", Addr: 1}
	thread := &recording.Thread{PID: 1, TID: 1}
	got := diffOf(t, func(i int) []recording.Hit {
		return []recording.Hit{
			{Event: in, Place: place, Thread: thread, Time: 10, SP: 900},
			{Event: in, Place: place, Thread: thread, Time: 20 + 10*uint64(i), SP: 800},
		}
	})
	if strings.Contains(got, "gone") || !strings.Contains(got, "+100.0%") {
		t.Errorf("got\n%s", got)
	}
}

// TestDiffHits compares recordings without calls: there are no times, and hits are compared. They are
// beside calls, too.
func TestDiffHits(t *testing.T) {
	hit, in := &recording.Event{Name: "hit"}, &recording.Event{Name: "in", Entry: true}
	f, g := &recording.Place{Name: "f", Addr: 1}, &recording.Place{Name: "g", Addr: 2}
	thread := &recording.Thread{PID: 1, TID: 1}
	diff := func(more ...recording.Hit) string {
		return diffOf(t, func(i int) (list []recording.Hit) {
			for n := range 4 + 2*i {
				list = append(list, recording.Hit{Event: hit, Place: f, Thread: thread, Time: uint64(n)})
			}
			return append(list, more...)
		})
	}
	if got, want := strings.Fields(diff()), "# func hits was change f 6 4 +50.0%"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	call := recording.Hit{Event: in, Place: g, Thread: thread, Time: 90, SP: 900}
	if got := diff(call); !strings.Contains(got, "total/ns") || !strings.Contains(got, "+50.0%") {
		t.Errorf("with calls\n%s", got)
	}
}
