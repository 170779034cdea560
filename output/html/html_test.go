package html

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"kprobe/output/recording"
	"kprobe/output/report"
)

// hostile are names as a program could have them, to break out of where they stand.
var hostile = []string{"</script><script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "<!--", "{{data}}", "a\x1b[31m\xff\u202eb", "\u2028", "std::map<int, char&>"}

// recorded is a recording of hits.
func recorded(t testing.TB, write func(hit func(recording.Hit))) *recording.Reader {
	t.Helper()
	var b bytes.Buffer
	w, err := recording.NewWriter(&b, &recording.Header{Calls: true, Host: hostile[0], Command: []string{hostile[1]}, Definitions: hostile, PIDs: []int{1}, Wall: 1})
	if err != nil {
		t.Fatal(err)
	}
	write(func(h recording.Hit) {
		if err := w.Hit(&h); err != nil {
			t.Fatal(err)
		}
	})
	if err := w.Close(&recording.End{Events: []recording.Count{{Event: "in", Lost: 1}}, Overwritten: 12345}); err != nil {
		t.Fatal(err)
	}
	r, err := recording.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// events are those of a recording: a writer numbers them.
func events() (entry, leave *recording.Event) {
	return &recording.Event{Name: "in", Entry: true}, &recording.Event{Name: "out", Return: true}
}

// requests is a recording of threads in each of which main calls each name in turn, which
// calls another, so many times.
func requests(t testing.TB, threads, times int) *recording.Reader {
	t.Helper()
	var places []*recording.Place
	for i, name := range append(hostile, "work") {
		places = append(places, &recording.Place{Name: name, Addr: uint64(0x2000 + i)})
	}
	top := &recording.Place{Name: "main", Addr: 0x1000}
	entry, leave := events()
	random := rand.New(rand.NewPCG(1, 1))
	return recorded(t, func(hit func(recording.Hit)) {
		now := uint64(1e9)
		call := func(th *recording.Thread, p *recording.Place, sp uint64, in func()) {
			from := now
			hit(recording.Hit{Event: entry, Thread: th, Place: p, SP: sp, Time: now})
			now += random.Uint64N(1000) + 1
			in()
			hit(recording.Hit{Event: leave, Thread: th, Place: p, Caller: top, Time: now, Entry: from})
			now += 3
		}
		for tid := range threads {
			th := &recording.Thread{PID: 1, TID: tid + 1, Comm: hostile[0]}
			call(th, top, 9000, func() {
				for i := range times {
					call(th, places[i%len(places)], 8000, func() {
						call(th, places[len(places)-1], 7000, func() { now += random.Uint64N(1 << (i % 20)) })
					})
				}
			})
		}
	})
}

// stacks is a recording of ten hits with a stack.
func stacks(t testing.TB) *recording.Reader {
	return recorded(t, func(hit func(recording.Hit)) {
		at, top := &recording.Place{Name: "work", Addr: 0x2000}, &recording.Place{Name: "main", Addr: 0x1000}
		e, th := &recording.Event{Name: "at"}, &recording.Thread{PID: 1, TID: 1, Comm: "t"}
		s := &recording.Stack{Frames: []*recording.Place{at, top}}
		for i := range 10 {
			hit(recording.Hit{Event: e, Thread: th, Place: at, Time: 1e9 + uint64(i), Stack: s})
		}
	})
}

func made(t testing.TB, in, old *recording.Reader) string {
	t.Helper()
	r := &report.Report{By: "func"}
	p := &Page{Name: hostile[0], In: in, Report: r, Calls: &Collector{Report: r}}
	r.Also = p.Calls
	if err := r.Read(in); err != nil {
		t.Fatal(err)
	}
	if old != nil {
		p.Old, p.OldName = &report.Report{By: "func"}, "old.kprobe"
		if err := p.Old.Read(old); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var dataOf = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

func contentOf(t testing.TB, page string) (c content) {
	t.Helper()
	m := dataOf.FindStringSubmatch(page)
	if m == nil {
		t.Fatal("the page has no data")
	}
	d := json.NewDecoder(strings.NewReader(m[1]))
	if err := d.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("behind the data: %v", err)
	}
	return c
}

// TestHostileNames: names stay text, wherever they stand.
func TestHostileNames(t *testing.T) {
	page := made(t, requests(t, 2, 100), nil)
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d elements are scripts, want 2", n)
	}
	for _, bad := range []string{"<img", "<!--", "alert(1)</script>", "\x1b", "\u202e", "\u2028", "\xff"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, out := range []string{"http://", "https://", "src=", "@import", "url("} {
		if at := strings.Index(strings.ReplaceAll(page, "img src=x", ""), out); at >= 0 {
			t.Errorf("the page leads out: %q", out)
		}
	}
	c := contentOf(t, page)
	for _, name := range []string{hostile[0], hostile[1], "{{data}}", "std::map<int, char&>"} {
		found := false
		for _, n := range c.Names {
			// A path has : where a name has ;.
			found = found || n == name
		}
		if !found {
			t.Errorf("no %q among %q", name, c.Names)
		}
	}
	if !strings.Contains(page, "1 hits were lost") || !strings.Contains(page, "12,345 older hits were overwritten before") {
		t.Error("losses aren't told")
	}
}

// TestSums: what is drawn is all that was recorded, where nothing needs to be cut.
func TestSums(t *testing.T) {
	c := contentOf(t, made(t, requests(t, 2, 100), requests(t, 1, 100)))
	if !c.Diff || !c.Timed {
		t.Errorf("diff %v, timed %v", c.Diff, c.Timed)
	}
	calls, top := uint64(0), uint64(0)
	for i := 0; i < len(c.Flame); i += 6 {
		calls += c.Flame[i+3]
		if c.Flame[i] == 1 {
			top += c.Flame[i+2]
		}
	}
	if calls != 402 || top != c.Flame[2] || c.Flame[4] == 0 {
		t.Errorf("flame graph: %d calls, %d ns of %d, before %d", calls, top, c.Flame[2], c.Flame[4])
	}
	if len(c.Threads) != 2 || len(c.Threads[0].Bars) != 5*201 || c.Threads[0].Depth != 3 {
		t.Errorf("timeline: %d threads", len(c.Threads))
	}
	for i, m := range c.Heat.Maps {
		n := uint64(0)
		for j := 2; j < len(m.Cells); j += 3 {
			n += m.Cells[j]
		}
		if i == 0 && n != 402 || n == 0 {
			t.Errorf("heat map of %s: %d calls", m.Name, n)
		}
	}
}

// TestBounds: what is embedded has bounds, and the page says what it leaves out.
func TestBounds(t *testing.T) {
	in := recorded(t, func(hit func(recording.Hit)) {
		top := &recording.Place{Name: "main", Addr: 0x1000}
		now := uint64(1e9)
		_, leave := events()
		for i := range 60000 {
			th := &recording.Thread{PID: 1, TID: i/12 + 1, Comm: "t"}
			p := &recording.Place{Name: fmt.Sprintf("f%d", i), Addr: uint64(0x2000 + i)}
			hit(recording.Hit{Event: leave, Thread: th, Place: p, Caller: top, Time: now, Entry: now - uint64(i)})
			now += 1e6
		}
	})
	page := made(t, in, nil)
	c := contentOf(t, page)
	bars := 0
	for _, th := range c.Threads {
		bars += len(th.Bars) / 5
	}
	if n := len(c.Flame) / 6; n > maxNodes || len(c.Threads) != maxShown || bars > maxBars || len(c.Heat.Maps) > heatFuncs+1 || len(page) > 2<<20 {
		t.Errorf("%d nodes, %d threads, %d bars, %d heat maps, %d bytes", n, len(c.Threads), bars, len(c.Heat.Maps), len(page))
	}
	total, n := uint64(0), len(c.Flame)/6
	for i := range n {
		total += c.Flame[i*6+3]
	}
	if total != 60000 {
		t.Errorf("the flame graph has %d calls", total)
	}
	for _, want := range []string{
		"paths with less than 0.05 % of all are merged",
		"of more than 4,096 threads and goroutines the 200 with the most time in calls are drawn",
		"Table: of 60,000 rows the first 2,000 are shown",
		"Heat map: 24 of 60,000 functions",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page doesn't say %q", want)
		}
	}
}

// TestLongest: of many calls the longest are drawn.
func TestLongest(t *testing.T) {
	page := made(t, requests(t, 1, 20000), nil)
	c := contentOf(t, page)
	if n := len(c.Threads[0].Bars) / 5; n != maxPer {
		t.Errorf("%d bars, want %d", n, maxPer)
	}
	if c.Threads[0].Bars[1] != c.Span[1] || !strings.Contains(page, "38,001 shorter ones aren&#39;t") {
		t.Errorf("the longest, of %d ns, isn't drawn, or it isn't said how many aren't: %d", c.Span[1], c.Threads[0].Bars[1])
	}
}

func TestRowsOfHeat(t *testing.T) {
	for _, v := range []uint64{0, 1, 2, 3, 5, 6, 1000, 1<<40 + 1, 1<<63 - 1} {
		if r := row(v); v > 0 && low(r) > v || low(r+1) <= v {
			t.Errorf("%d is in row %d, from %d to %d", v, r, low(r), low(r+1))
		}
	}
}
