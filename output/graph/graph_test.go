package graph

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/output/calls"
	"kprobe/output/recording"
	"kprobe/probe/results"
)

// draw prints a story: "in NAME TIME SP", "out NAME TIME ENTRY RESULT", of thread 7, or
// of the thread whose number comes first.
func draw(t *testing.T, p *Printer, lines string) string {
	t.Helper()
	return drawFailed(t, p, nil, lines)
}

// drawFailed is draw with a condition for what has failed.
func drawFailed(t *testing.T, p *Printer, failed *fetch.Condition, lines string) string {
	t.Helper()
	var out bytes.Buffer
	tr := &calls.Tracker{Sink: p, Note: (&Notes{Failed: failed}).Note}
	p.W, p.Now = &out, tr.Now
	places, threads := map[string]*recording.Place{}, map[int]*recording.Thread{}
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		tid := 7
		if line[0] >= '0' && line[0] <= '9' {
			tid = int(line[0] - '0')
			line = line[2:]
		}
		var what, name string
		var time, other uint64
		ret := int64(0)
		if n, err := fmt.Sscan(line, &what, &name, &time, &other, &ret); n < 4 {
			t.Fatal(line, err)
		}
		if places[name] == nil {
			places[name] = &recording.Place{Name: name, Addr: uint64(len(places) + 1)}
		}
		if threads[tid] == nil {
			threads[tid] = &recording.Thread{PID: 1, TID: tid, Comm: "prog"}
		}
		h := &recording.Hit{Event: &recording.Event{Entry: true}, Thread: threads[tid], Time: time, Place: places[name], SP: other}
		if what == "out" {
			h.SP, h.Entry = 0, other
			h.Event = &recording.Event{Return: true, Fields: []recording.Field{{Name: Result, Type: "int", Kind: recording.Signed}}}
			h.Values = []recording.Value{{Int: uint64(ret)}}
		}
		if err := tr.Hit(h); errors.Is(err, results.ErrStop) && p.Shown == p.Limit {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Finish(); err != nil && !errors.Is(err, results.ErrStop) {
		t.Fatal(err)
	}
	return out.String()
}

const story = `in top 1000 900
in open 2000 800
in read 3000 700
out read 4000 3000 5
out open 15000 2000 -2
in quick 15100 800
out quick 15200 15100 1
out top 16000 1000 -2
in top 20000 900
in quick 20100 800
out quick 20200 20100 1
out top 21000 20000 3
in top 30000 900
in read 31000 800`

// calls without the columns before them.
func trees(text string) string {
	var b strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		if i := strings.LastIndex(line, " |  "); i >= 0 {
			line = line[i+4:]
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestLayout(t *testing.T) {
	const want = `  0)  prog-7               |               |  top() {
  0)  prog-7               |               |    open() {
  0)  prog-7               |     1.000 us  |      read(); /* ret=5 */
  0)  prog-7               | +  13.000 us  |    } /* ret=-2 (ENOENT) */
  0)  prog-7               |     0.100 us  |    quick(); /* ret=1 */
  0)  prog-7               | +  15.000 us  |  } /* ret=-2 (ENOENT) */
`
	if got := draw(t, &Printer{}, story); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestChoices(t *testing.T) {
	const (
		first  = "top() {\n  open() {\n    read(); /* ret=5 */\n  } /* ret=-2 (ENOENT) */\n  quick(); /* ret=1 */\n} /* ret=-2 (ENOENT) */\n"
		second = "top() {\n  quick(); /* ret=1 */\n} /* ret=3 */\n"
		third  = "top() {\n  read(); /* has not returned */\n} /* has not returned */\n"
	)
	for _, c := range []struct {
		name  string
		p     Printer
		want  string
		roots uint64
	}{
		{"all", Printer{}, first + second + third, 3},
		{"slower", Printer{Slower: 10_000}, first + "\n", 3},
		{"failed", Printer{Failed: true}, first + "\n", 3},
		{"depth", Printer{Depth: 1}, "top(); /* ret=-2 (ENOENT) */\ntop(); /* ret=3 */\ntop(); /* has not returned */\n", 3},
		{"not", Printer{Not: []string{"op*", "q*"}}, "top(); /* ret=-2 (ENOENT) */\ntop(); /* ret=3 */\n" + third, 3},
		{"below", Printer{Below: "open"}, "open() {\n  read(); /* ret=5 */\n} /* ret=-2 (ENOENT) */\n", 1},
		{"below, slower", Printer{Below: "open", Slower: 14_000}, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := trees(draw(t, &c.p, story)); got != c.want || c.p.Roots != c.roots {
				t.Errorf("%d roots, got\n%s\nwant\n%s", c.p.Roots, got, c.want)
			}
		})
	}
}

// TestFailedBy: a filter says what has failed, by results and by the time.
func TestFailedBy(t *testing.T) {
	for text, want := range map[string]string{
		"$retval > 2":       "top() {\n  quick(); /* ret=1 */\n} /* ret=3 */\n\n",
		"$duration >= 15us": "top() {\n  open() {\n    read(); /* ret=5 */\n  } /* ret=-2 (ENOENT) */\n  quick(); /* ret=1 */\n} /* ret=-2 (ENOENT) */\n\n",
		"$retval == 77":     "",
	} {
		c, err := fetch.ParseCondition(text, Result)
		if err != nil {
			t.Fatal(err)
		}
		if got := trees(drawFailed(t, &Printer{Failed: true}, c, story)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", text, got, want)
		}
	}
}

// No more trees are shown than Limit, whole ones, whoever else is in the midst of one.
func TestLimit(t *testing.T) {
	const two = `1 in top 1000 900
2 in top 1100 900
1 in read 1200 800
2 in other 1300 800
1 out read 1400 1200 1
1 out top 1500 1000 2
2 out other 1600 1300 1
2 out top 1700 1100 2`
	for _, test := range []struct {
		p        Printer
		story    string
		trees    uint64
		contains string
		lines    int
	}{
		{Printer{Limit: 1}, story, 1, "quick();", 6},
		{Printer{Limit: 2}, story, 2, "quick();", 9},
		{Printer{Limit: 1, Slower: 500}, story, 1, "quick();", 7},
		{Printer{Limit: 1}, two, 1, "read();", 3},
		{Printer{Limit: 1, Slower: 1}, two, 1, "read();", 4},
		{Printer{Limit: 9}, two, 2, "other();", 6},
	} {
		p := test.p
		got := draw(t, &p, test.story)
		if p.Shown != test.trees || !strings.Contains(got, test.contains) || strings.Count(got, "\n") != test.lines {
			t.Errorf("limit %d, slower %d: %d trees, %d lines, want %d and %d:\n%s", p.Limit, p.Slower, p.Shown, strings.Count(got, "\n"), test.trees, test.lines, got)
		}
	}
}

// TestThreads: lines of two threads; what was torn apart is named at its end.
func TestThreads(t *testing.T) {
	got := trees(draw(t, &Printer{}, "1 in a 10 900\n1 in b 20 800\n2 in c 30 900\n2 out c 40 30 0\n1 out b 50 20 0\n1 out a 60 10 0\n1 in d 70 900\n1 out d 80 70 0"))
	if want := "a() {\nc(); /* ret=0 */\n  b(); /* ret=0 */\n} /* a; ret=0 */\nd(); /* ret=0 */\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestCutTree: a tree of which more isn't kept has its end, and says so.
func TestCutTree(t *testing.T) {
	var b strings.Builder
	b.WriteString("in top 10 900\n")
	for i := range maxLines + 10 {
		fmt.Fprintf(&b, "in f %d 800\nout f %d %d 1\n", 100*i+100, 100*i+150, 100*i+100)
	}
	fmt.Fprintf(&b, "out top %d 10 0\n", 100*(maxLines+1000))
	p := &Printer{Slower: 1}
	got := trees(draw(t, p, b.String()))
	if n := strings.Count(got, "f();"); n != maxLines-1 || !strings.Contains(got, "\n} /* ret=0 */\n# 11 more lines of this tree are left out\n") || p.Cut != 11 {
		t.Errorf("%d lines, %d cut, end %q", n, p.Cut, got[len(got)-100:])
	}
}

func TestFailure(t *testing.T) {
	for _, c := range []struct {
		kind   recording.Kind
		typ    string
		v      uint64
		errno  string
		failed bool
	}{
		{recording.Signed, "int", ^uint64(0), "", true},
		{recording.Signed, "int", ^uint64(11), "ENOMEM", true},
		{recording.Signed, "int", 0, "", false},
		{recording.Signed, "long", ^uint64(5000), "", false},
		{recording.Hex, "x64", 0xfffffffe, "ENOENT", true},
		{recording.Hex, "x64", 0, "", false},
		{recording.Hex, "char *", 0, "", true},
		{recording.Hex, "char *", 0x7fff1000, "", false},
		{recording.Unsigned, "size_t", 0xffffffff, "", false},
		{recording.Text, "string", 0, "", false},
	} {
		errno, failed := failure(recording.Field{Type: c.typ, Kind: c.kind}, &recording.Value{Int: c.v})
		if errno != c.errno || failed != c.failed {
			t.Errorf("%s %#x: %q %v, want %q %v", c.typ, c.v, errno, failed, c.errno, c.failed)
		}
	}
}
