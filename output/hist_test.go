package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/symbols"
)

func TestParseHist(t *testing.T) {
	for text, want := range map[string]string{
		"size":                        "hist:keys=size:vals=hitcount:sort=hitcount:size=2048",
		"keys=a.hex,b.sym":            "hist:keys=a.hex,b.sym:vals=hitcount:sort=hitcount:size=2048",
		"a.buckets=0x10:vals=b,c.hex": "hist:keys=a.buckets=16:vals=hitcount,b,c.hex:sort=hitcount:size=2048",
		"hist:keys=a:vals=hitcount,b:sort=b.descending,a:size=200": "hist:keys=a:vals=hitcount,b:sort=b.descending,a:size=256",
		"common_pid.execname,common_cpu,common_comm":               "hist:keys=common_pid.execname,common_cpu,common_comm:vals=hitcount:sort=hitcount:size=2048",
		"p.next.log2":        "hist:keys=p.next.log2:vals=hitcount:sort=hitcount:size=2048",
		"p.next":             "hist:keys=p.next:vals=hitcount:sort=hitcount:size=2048",
		"a:sort=a.ascending": "hist:keys=a:vals=hitcount:sort=a:size=2048",
		"a:vals=hitcount.percent,b.graph,hitcount.graph,b.percent": "hist:keys=a:vals=hitcount,hitcount.percent,b.graph,hitcount.graph,b.percent:sort=hitcount:size=2048",
		"p.percent,p.graph":     "hist:keys=p.percent,p.graph:vals=hitcount:sort=hitcount:size=2048",
		"a.sym-offset:size=128": "hist:keys=a.sym-offset:vals=hitcount:sort=hitcount:size=128",
	} {
		h, err := ParseHist(text)
		if err != nil || h.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, h, err, want)
			continue
		}
		if again, err := ParseHist(h.String()); err != nil || again.String() != want {
			t.Errorf("%s is not taken back: %v, %v", want, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                      "names nothing",
		"a,,b":                  "no name",
		"a,b,c,d":               "4 keys; 3 at most",
		"a.buckets=0":           "Invalid field modifier: a.buckets=0",
		"a.buckets=x":           "Invalid field modifier: a.buckets=x",
		"a.execname":            "Invalid field modifier: a.execname",
		"common_pid.log2":       "Invalid field modifier: common_pid.log2",
		"a:vals=b.log2":         "Invalid field modifier: b.log2",
		"a:sort=b":              "Sort field must be a key or a val: b",
		"a:sort=a.up":           "Invalid sort modifier: up",
		"a:sort=a,hitcount,a":   "Too many sort fields",
		"a:size=100":            "size 100: 128 to 131072",
		"a:size=many":           "size many",
		"a:pause=1":             "pause is none of keys, vals, sort, size",
		"stacktrace.hex":        "Invalid field modifier: stacktrace.hex",
		"a:vals=stacktrace":     "A stack is no value: stacktrace",
		"vals=a:keys=":          "names nothing",
		"hist:sort=hitcount:x=": "names nothing",
	} {
		if h, err := ParseHist(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, h, err, want)
		}
	}
}

// counted counts hits of "size" and "who" in histograms.
func counted(t *testing.T, texts ...string) (*Histograms, *scene, func(size uint64, who string)) {
	t.Helper()
	g := &Histograms{}
	for _, text := range texts {
		spec, err := ParseHist(text)
		if err != nil {
			t.Fatal(err)
		}
		g.Specs = append(g.Specs, spec)
	}
	s := newScene(t)
	d, err := fetch.Parse("p:mem/alloc work size=$arg1:u64 who=+0($arg2):string at=$arg3 n=$arg1:s64")
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(noEnv{})
	if err != nil {
		t.Fatal(err)
	}
	e := &results.Event{Def: d, Group: d.Group, Name: d.Event}
	return g, s, func(size uint64, who string) {
		t.Helper()
		regs := fetch.Regs{}
		regs.GPR[fetch.DI], regs.GPR[fetch.SI], regs.GPR[fetch.DX] = size, 0x1000, uint64(s.work.Addr)+2
		data, _ := p.Eval(&fetch.Context{Regs: &regs, Mem: memory{0x1000: who + "\x00"}}, nil)
		if err := g.Hit(&results.Hit{Event: e, Program: p, Data: data, Space: s.space, TID: 43, CPU: 2, Comm: "redis"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHistText(t *testing.T) {
	g, s, hit := counted(t, "size.log2,who:vals=size:sort=size", "at.sym,common_pid.execname", "n,at.sym-offset,size.hex")
	for range 3 {
		hit(17, "a")
	}
	hit(32, "a")
	hit(1<<64-1, "b\n")
	got := string(g.AppendText(nil, nil))
	at := uint64(s.work.Addr) + 2
	_, _, size, _, _ := s.space.Symbolize(s.work.Addr)
	off := fmt.Sprintf("[%x] %-55s", at, fmt.Sprintf("work+0x2/%#x", size))
	blanks := strings.Repeat(" ", 49)
	want := `# event histogram
#
# event: mem/alloc
# trigger info: hist:keys=size.log2,who:vals=hitcount,size:sort=size:size=2048 [active]
#

{ size: ~ 2^5 , who: "a"` + blanks[2:] + ` } hitcount:          4  size:         83
{ size: ~ 2^64, who: "b\n"` + blanks[4:] + ` } hitcount:          1  size: 18446744073709551615

Totals:
    Hits: 5
    Entries: 2
    Dropped: 0


# event histogram
#
# event: mem/alloc
# trigger info: hist:keys=at.sym,common_pid.execname:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ at: [` + fmt.Sprintf("%x", at) + `] ` + fmt.Sprintf("%-45s", "work") + `, common_pid: redis           [        43] } hitcount:          5

Totals:
    Hits: 5
    Entries: 1
    Dropped: 0


# event histogram
#
# event: mem/alloc
# trigger info: hist:keys=n,at.sym-offset,size.hex:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ n:         -1, at: ` + off + `, size: ffffffffffffffff } hitcount:          1
{ n:         32, at: ` + off + `, size: 20 } hitcount:          1
{ n:         17, at: ` + off + `, size: 11 } hitcount:          3

Totals:
    Hits: 5
    Entries: 3
    Dropped: 0
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestHistRanges says what the steps of log2 and buckets are.
func TestHistRanges(t *testing.T) {
	g, _, hit := counted(t, "size.log2:sort=size", "size.buckets=10:sort=size.descending")
	for _, v := range []uint64{0, 1, 2, 3, 4, 5, 8, 9, 19, 20, 1 << 63, 1<<63 + 1} {
		hit(v, "")
	}
	type entry struct {
		Keys     map[string]map[string]any
		Hitcount int
	}
	var got []string
	for line := range strings.Lines(string(g.AppendJSON(nil, nil, -1))) {
		var o struct {
			Type    string
			Entries []entry
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Type != "hist" {
			t.Fatalf("%s: %v", line, err)
		}
		for _, e := range o.Entries {
			got = append(got, fmt.Sprint(e.Keys["size"]["from"], "-", e.Keys["size"]["to"], ":", e.Hitcount))
		}
	}
	want := "0-1:2 2-2:1 3-4:2 5-8:2 9-16:1 17-32:2 4611686018427387905-9223372036854775808:1 9223372036854775809-18446744073709551615:1 " +
		"9223372036854775800-9223372036854775809:2 20-29:1 10-19:1 0-9:8"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

// TestHistStack counts by stacks, which are shown frame by frame.
func TestHistStack(t *testing.T) {
	spec, err := ParseHist("size,stacktrace")
	if err != nil {
		t.Fatal(err)
	}
	g, s := &Histograms{Specs: []*HistSpec{spec}}, newScene(t)
	h := s.hit(t, "p:m work size=$arg1:u64", fetch.Regs{}, nil)
	_, _, work, _, _ := s.space.Symbolize(s.work.Addr)
	_, _, caller, _, _ := s.space.Symbolize(s.caller.Addr)
	// A call that is a function's last instruction returns behind it.
	end := symbols.Addr(caller)
	for _, at := range []symbols.Addr{5, end, 5} {
		h.Stack = []symbols.StackFrame{{Addr: s.work.Addr}, {Addr: s.caller.Addr + at, Call: true}, {Addr: 0x7fff00000000}}
		if err := g.Hit(h); err != nil {
			t.Fatal(err)
		}
	}
	stack := func(at symbols.Addr) string {
		return fmt.Sprintf("{ size:          0, common_stacktrace:\n         work+0x0/%#x\n         caller+%#x/%#x\n         0x7fff00000000\n}", work, uint64(at), caller)
	}
	text := string(g.AppendText(nil, nil))
	if !strings.Contains(text, "\n"+stack(end)+" hitcount:          1\n"+stack(5)+" hitcount:          2\n\nTotals:\n") {
		t.Errorf("%s", text)
	}
	var o struct {
		Entries []struct {
			Keys struct {
				Stack []struct{ Sym string } `json:"common_stacktrace"`
			}
		}
	}
	if err := json.Unmarshal(g.AppendJSON(nil, nil, -1), &o); err != nil || len(o.Entries) != 2 || o.Entries[0].Keys.Stack[1].Sym != "caller" {
		t.Errorf("%v, %+v", err, o)
	}
	if d, err := fetch.Parse("p:m work size=$arg1"); err != nil || spec.For(d) {
		t.Errorf("%v: a definition without a stack has none", err)
	}
}

// TestHistIsBounded says that a full histogram takes no entries, counts the hits
// that found none, and goes on counting those that do.
func TestHistIsBounded(t *testing.T) {
	g, _, hit := counted(t, "size:size=128")
	for i := range uint64(200) {
		hit(i, "")
	}
	hit(0, "")
	text := string(g.AppendText(nil, nil))
	if !strings.HasSuffix(text, "{ size:          0 } hitcount:          2\n\nTotals:\n    Hits: 129\n    Entries: 128\n    Dropped: 72\n") {
		t.Errorf("%s", text)
	}
}

func TestHistJSON(t *testing.T) {
	g, _, hit := counted(t, "at.sym,who,size:vals=n")
	hit(7, "x\"y\xff")
	got := string(g.AppendJSON(nil, nil, 2))
	want := `{"type":"hist","time":2.000,"group":"mem","event":"alloc","trigger":"hist:keys=at.sym,who,size:vals=hitcount,n:sort=hitcount:size=2048","hits":1,"dropped":0,` +
		`"entries":[{"keys":{"at":"work","who":"x\"y\ufffd","size":7},"hitcount":1,"vals":{"n":7}}]}` + "\n"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A key in two forms is two keys of the object.
func TestHistJSONKeys(t *testing.T) {
	g, _, hit := counted(t, "size,size.log2,size.hex")
	hit(7, "")
	got := string(g.AppendJSON(nil, nil, -1))
	if want := `"keys":{"size":7,"size#2":{"from":5,"to":8},"size#3":7}`; !strings.Contains(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestHistOfNothing says that an event without a hit has an empty histogram.
func TestHistOfNothing(t *testing.T) {
	g, s, _ := counted(t, "size")
	has, lacks := s.hit(t, "p:a work size=$arg1", fetch.Regs{}, nil), s.hit(t, "p:b work n=$arg1", fetch.Regs{}, nil)
	text := string(g.AppendText(nil, []results.Stats{{Event: has.Event}, {Event: lacks.Event}}))
	if !strings.Contains(text, "# event: kprobes/a\n") || strings.Contains(text, "kprobes/b") || !strings.Contains(text, "Entries: 0") {
		t.Errorf("%s", text)
	}
}

// TestHistLimit says that the trace ends with the hit that -n allows.
func TestHistLimit(t *testing.T) {
	g, s, _ := counted(t, "size")
	g.Limit = 2
	h := s.hit(t, "p:a work size=$arg1", fetch.Regs{}, nil)
	for i, want := range []error{nil, results.ErrStop, results.ErrStop} {
		if err := g.Hit(h); !errors.Is(err, want) {
			t.Errorf("hit %d: %v, want %v", i, err, want)
		}
	}
	if text := string(g.AppendText(nil, nil)); !strings.Contains(text, "Hits: 2\n") {
		t.Errorf("%s", text)
	}
}

// TestHistCostsNothing says that counting a value that was there before
// allocates nothing.
func TestHistCostsNothing(t *testing.T) {
	g, s, _ := counted(t, "size.log2,who")
	h := s.hit(t, "p:a work size=$arg1 who=+0($arg2):string", fetch.Regs{}, memory{0: "me\x00"})
	if n := testing.AllocsPerRun(100, func() {
		if err := g.Hit(h); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a hit", n)
	}
}

// TestHistPercent has values in per cent of their sum and as bars, in the
// kernel's form (hist_trigger_print_val).
func TestHistPercent(t *testing.T) {
	g, _, hit := counted(t, "who:vals=hitcount.percent,hitcount.graph,size.percent,size.graph,size:sort=size")
	for range 3 {
		hit(1, "a")
	}
	hit(0, "b")
	hit(997, "c")
	got := string(g.AppendText(nil, nil))
	pad := strings.Repeat(" ", 49)
	want := "{ who: \"b\"" + pad[2:] + " } hitcount:          1  hitcount (%):  20.00  hitcount: ######                size (%):   0.00  size:                       size:          0\n" +
		"{ who: \"a\"" + pad[2:] + " } hitcount:          3  hitcount (%):  60.00  hitcount: ####################  size (%):   0.30  size:                       size:          3\n" +
		"{ who: \"c\"" + pad[2:] + " } hitcount:          1  hitcount (%):  20.00  hitcount: ######                size (%):  99.70  size: ####################  size:        997\n"
	if _, got, _ = strings.Cut(got, "#\n\n"); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	var o struct {
		Entries []struct{ Vals map[string]uint64 }
	}
	text := g.AppendJSON(nil, nil, -1)
	if err := json.Unmarshal(text, &o); err != nil || len(o.Entries) != 3 || o.Entries[2].Vals["size"] != 997 || len(o.Entries[2].Vals) != 2 || strings.Count(string(text), `"size":`) != 3 {
		t.Errorf("%v: %s", err, text)
	}

	// Sums may wrap around.
	for _, c := range []struct {
		v, all, part uint64
		ok           bool
	}{
		{0, 0, 0, true}, {1, 0, 0, false}, {1, 3, 3333, true}, {3, 3, 10000, true}, {1 << 63, 1<<64 - 1, 5000, true}, {1 << 63, 5, 0, false}, {7, 3, 10000, true},
	} {
		if part, ok := hundredths(c.v, c.all); part != c.part || ok != c.ok {
			t.Errorf("%d of %d: %d, %v", c.v, c.all, part, ok)
		}
	}
}
