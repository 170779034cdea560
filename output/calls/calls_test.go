package calls

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/output/recording"
)

// story makes hits of lines and gives the calls as text: "THREAD in NAME TIME SP",
// "THREAD out NAME TIME ENTRY".
func story(t *testing.T, lines string) (string, *Tracker) {
	t.Helper()
	var out strings.Builder
	places, threads := map[string]*recording.Place{}, map[int]*recording.Thread{}
	tr := &Tracker{}
	tr.Sink = &writer{&out, tr, map[*Call]bool{}}
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		var tid int
		var what, name string
		var time, other uint64
		if _, err := fmt.Sscan(line, &tid, &what, &name, &time, &other); err != nil {
			t.Fatal(line, err)
		}
		if places[name] == nil {
			places[name] = &recording.Place{Name: name, Addr: uint64(len(places) + 1)}
		}
		if threads[tid] == nil {
			threads[tid] = &recording.Thread{PID: 1, TID: tid}
		}
		g := uint64(0)
		if tid > 100 { // a goroutine, on one thread or another
			g, threads[tid] = uint64(tid), &recording.Thread{PID: 1, TID: int(time % 3)}
		}
		h := &recording.Hit{G: g, Event: &recording.Event{Entry: what == "in", Return: what == "out"}, Thread: threads[tid], Time: time, Place: places[name]}
		if what == "in" {
			h.SP = other
		} else {
			h.Entry = other
		}
		if err := tr.Hit(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Finish(); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String()), tr
}

type writer struct {
	b    *strings.Builder
	tr   *Tracker
	back map[*Call]bool // that returned although they were told to have been left
}

func (w *writer) Returned(c *Call, at uint64, again bool) error {
	w.back[c] = true
	fmt.Fprintf(w.b, "%d<%v ", at, again)
	return w.Leave(c)
}

func (w *writer) Enter(c *Call) error { return nil }

func (w *writer) Leave(c *Call) error {
	path := c.Func.Name
	for p := c.Parent; p != nil; p = p.Parent {
		path = p.Func.Name + ";" + path
	}
	fmt.Fprintf(w.b, "%d %s %d-%d self %d", c.Thread.TID, path, c.Entry, c.Leave, c.Self(w.tr.Now()))
	switch {
	case c.End == Left:
		w.b.WriteString(" left")
	case c.End == Open:
		w.b.WriteString(" open")
	case c.Late:
		w.b.WriteString(" late")
	case w.back[c]:
		w.b.WriteString(" back")
	}
	w.b.WriteString("\n")
	return nil
}

func TestCalls(t *testing.T) {
	for _, c := range []struct{ name, hits, want string }{
		{"recursion", "1 in f 10 900\n1 in f 20 800\n1 in g 30 700\n1 out g 35 30\n1 out f 50 20\n1 out f 90 10",
			"1 f;f;g 30-35 self 5\n1 f;f 20-50 self 25\n1 f 10-90 self 50"},
		{"threads", "1 in f 10 900\n2 in f 20 900\n1 out f 30 10\n2 out f 40 20",
			"1 f 10-30 self 20\n2 f 20-40 self 20"},
		{"open", "1 in f 10 900\n1 in g 20 800", "1 f;g 20-0 self 0 open\n1 f 10-0 self 10 open"},
		{"left by longjmp", "1 in f 10 900\n1 in g 20 800\n1 in h 30 700\n1 out f 40 10",
			"1 f;g;h 30-40 self 10 left\n1 f;g 20-40 self 10 left\n1 f 10-40 self 10"},
		{"left, seen by the stack", "1 in f 10 900\n1 in g 20 800\n1 in f 30 900\n1 out f 40 30",
			"1 f;g 20-30 self 10 left\n1 f 10-30 self 10 left\n1 f 30-40 self 10"},
		{"a tail call", "1 in f 10 900\n1 in g 20 900\n1 out g 30 20\n1 out f 31 10",
			"1 f;g 20-30 self 10\n1 f 10-31 self 11"},
		{"tail calls whose outermost return comes first", "1 in f 10 900\n1 in g 20 900\n1 in h 25 900\n1 out f 30 10\n1 out g 30 20\n1 out h 30 25",
			"1 f;g;h 25-30 self 5\n1 f;g 20-30 self 5\n1 f 10-30 self 10"},
		{"tail calls of a circle in another order", "1 in f 10 900\n1 in g 20 900\n1 in f 25 900\n1 out f 30 10\n1 out f 30 25\n1 out g 30 20",
			"1 f;g;f 25-30 self 5\n1 f;g 20-30 self 5\n1 f 10-30 self 10"},
		{"a tail call that was left, and the next call", "1 in f 10 900\n1 in g 20 900\n1 out f 30 10\n1 in g 40 900\n1 out g 50 40",
			"1 f;g 20-30 self 10 left\n1 f 10-30 self 10\n1 g 40-50 self 10"},
		{"a tail call that was left, and the caller's return", "1 in m 5 950\n1 in f 10 900\n1 in g 20 900\n1 out f 30 10\n1 out m 40 5",
			"1 m;f;g 20-30 self 10 left\n1 m;f 10-30 self 10\n1 m 5-40 self 15"},
		{"a tail call that was left, at the end", "1 in f 10 900\n1 in g 20 900\n1 out f 30 10",
			"1 f;g 20-30 self 10 left\n1 f 10-30 self 10"},
		{"a circle of tail calls", "1 in m 5 950\n1 in f 10 900\n1 in f 20 900\n1 out f 30 20\n1 out f 30 10\n1 in f 40 900\n1 in f 50 900\n1 out f 60 50\n1 out f 60 40\n1 out m 70 5",
			"1 m;f 10-20 self 10 left\n1 m;f 20-30 self 10\n20<true 1 m;f 10-30 self 20 back\n1 m;f;f 50-60 self 10\n1 m;f 40-60 self 10\n1 m 5-70 self 25"},
		{"a circle of two", "1 in f 10 900\n1 in g 20 900\n1 in f 30 900\n1 out f 40 30\n1 out g 40 20\n1 out f 40 10",
			"1 f;g;f 30-40 self 10\n1 f;g 20-40 self 10\n1 f 10-40 self 10"},
		{"a circle within a call of its function", "1 in f 10 900\n1 in f 20 800\n1 in f 30 800\n1 out f 40 30\n1 out f 40 20\n1 out f 50 10",
			"1 f;f 20-30 self 10 left\n1 f;f 30-40 self 10\n30<true 1 f;f 20-40 self 20 back\n1 f 10-50 self 20"},
		{"a loop that is left each time", "1 in m 5 950\n1 in f 10 900\n1 in f 20 900\n1 in f 30 900\n1 out m 50 5",
			"1 m;f 10-20 self 10 left\n1 m;f 20-30 self 10 left\n1 m;f 30-50 self 20 left\n1 m 5-50 self 5"},
		{"a call beside one that was left", "1 in m 5 950\n1 in f 10 900\n1 in f 20 800\n1 in g 30 900\n1 out g 40 30\n1 out m 50 5",
			"1 m;f;f 20-30 self 10 left\n1 m;f 10-30 self 10 left\n1 m;g 30-40 self 10\n1 m 5-50 self 15"},
		{"coroutines", "1 in f 10 800\n1 in g 20 900\n1 out f 30 10\n1 out g 40 20",
			"1 f 10-20 self 10 left\n20<false 1 f 10-30 self 20 back\n1 g 20-40 self 20"},
		{"an entry was lost after one that was left", "1 in f 10 900\n1 in f 15 900\n1 out f 20 15\n1 out f 50 40",
			"1 f 10-15 self 5 left\n1 f 15-20 self 5\n1 f 40-50 self 10 late"},
		{"an entry was lost", "1 in f 10 900\n1 out g 30 20\n1 out f 40 10",
			"1 f;g 20-30 self 10 late\n1 f 10-40 self 20"},
		{"a signal on another stack", "1 in f 10 900\n1 in g 20 990000000\n1 out g 30 20\n1 out f 40 10",
			"1 f;g 20-30 self 10\n1 f 10-40 self 20"},
		{"goroutines", "101 in f 10 900\n102 in f 20 950\n102 in g 30 940\n101 out f 31 10\n102 out g 41 30\n102 out f 50 20",
			"1 f 10-31 self 21\n0 f;g 30-41 self 11\n2 f 20-50 self 19"},
		{"a goroutine's stack moves", "101 in f 10 900\n101 in g 20 990\n101 out g 30 20\n101 out f 40 10",
			"2 f;g 20-30 self 10\n1 f 10-40 self 20"},
		{"returns only", "1 out g 30 20\n1 out g 38 32\n1 out f 40 10\n2 out f 50 45\n1 out f 60 55",
			"1 f;g 20-30 self 10 late\n1 f;g 32-38 self 6 late\n1 f 10-40 self 14 late\n1 f 55-60 self 5 late\n2 f 45-50 self 5 late"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := story(t, c.hits)
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// counting counts calls.
type counting struct{ entered, left, roots, open int }

func (c *counting) Enter(*Call) error {
	c.entered++
	return nil
}

func (c *counting) Leave(x *Call) error {
	if c.left++; x.Parent == nil {
		c.roots++
	}
	if x.End == Open {
		c.open++
	}
	return nil
}

// TestManyReturns: where only returns are seen, no more than a bounded number of calls waits
// for callers that may come; those that have none then are counted.
func TestManyReturns(t *testing.T) {
	event, thread := &recording.Event{Name: "r", Return: true}, &recording.Thread{PID: 1, TID: 1}
	outer, inner := &recording.Place{Name: "outer", Addr: 1}, &recording.Place{Name: "inner", Addr: 2}
	sink := &counting{}
	tr := &Tracker{Sink: sink}
	const n = 3 * maxHeld / 2
	for i := range uint64(n / 2) {
		for _, h := range []recording.Hit{
			{Event: event, Thread: thread, Place: inner, Caller: outer, Entry: 100*i + 20, Time: 100*i + 30},
			{Event: event, Thread: thread, Place: outer, Caller: outer, Entry: 100*i + 10, Time: 100*i + 40},
		} {
			if err := tr.Hit(&h); err != nil {
				t.Fatal(err)
			}
		}
	}
	if waiting := n - sink.left; waiting > maxHeld || sink.left == 0 {
		t.Errorf("%d calls wait", waiting)
	}
	if err := tr.Finish(); err != nil || sink.entered != n || sink.left != n || sink.roots != n/2 {
		t.Errorf("%+v, %v", sink, err)
	}
	if tr.Cut != maxHeld/2 {
		t.Errorf("%d may lack a caller, want %d", tr.Cut, maxHeld/2)
	}
}

// TestDeep: of a deep recursion each call is counted once, and fast.
func TestDeep(t *testing.T) {
	in, out, thread := &recording.Event{Entry: true}, &recording.Event{Return: true}, &recording.Thread{PID: 1, TID: 1}
	f, sink := &recording.Place{Name: "f", Addr: 1}, &counting{}
	tr := &Tracker{Sink: sink}
	const n = 1 << 16 // as deep as return probes follow
	for i := range uint64(2 * n) {
		h := recording.Hit{Event: in, Thread: thread, Place: f, Time: i + 1, SP: 1<<30 - 16*i}
		if i >= n {
			h = recording.Hit{Event: out, Thread: thread, Place: f, Time: i + 1, Entry: 2*n - i}
		}
		if err := tr.Hit(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Finish(); err != nil || sink.entered != n || sink.left != n || sink.roots != 1 || tr.Lates != 0 {
		t.Errorf("%+v, %d without an entry, %v", sink, tr.Lates, err)
	}
}

// TestCircleOrLoop: calls of a function whose calls were seen to wait for each other are left one after
// another now. They are not taken for calls that wait.
func TestCircleOrLoop(t *testing.T) {
	in, out, thread := &recording.Event{Entry: true}, &recording.Event{Return: true}, &recording.Thread{PID: 1, TID: 1}
	f, sink := &recording.Place{Name: "f", Addr: 1}, &counting{}
	tr := &Tracker{Sink: sink}
	hits := []recording.Hit{{Event: in, Time: 1, SP: 9}, {Event: in, Time: 2, SP: 9}, {Event: out, Time: 3, Entry: 2}, {Event: out, Time: 3, Entry: 1}}
	const loops = 1000
	for i := range uint64(loops) {
		hits = append(hits, recording.Hit{Event: in, Time: 10 + i, SP: 9})
	}
	for _, h := range hits {
		h.Place, h.Thread = f, thread
		if err := tr.Hit(&h); err != nil {
			t.Fatal(err)
		}
	}
	if len(tr.threads[Track{PID: 1, TID: 1}].lapsed) > maxLapsed {
		t.Error("calls that were left are kept without a bound")
	}
	if err := tr.Finish(); err != nil || sink.entered != loops+2 || sink.left != loops+2 || sink.open > maxRun {
		t.Errorf("%+v, %v", sink, err)
	}
}
