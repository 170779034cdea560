package output

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// called gives a Latency calls of functions that took those times, by their
// own definition's hits.
func called(t *testing.T, s *scene, times map[string][]uint64) (*Latency, []results.Stats) {
	t.Helper()
	l := &Latency{}
	h := s.hit(t, "r:web/called work code=$retval "+Took, fetch.Regs{}, nil)
	for _, fn := range []string{"open", "close", "read"} {
		for _, ns := range times[fn] {
			h.Func = fn
			binary.LittleEndian.PutUint64(h.Data[len(h.Data)-8:], ns)
			if err := l.Hit(h); err != nil {
				t.Fatal(err)
			}
		}
	}
	idle := s.hit(t, "r:web/idle idle "+Took, fetch.Regs{}, nil)
	return l, []results.Stats{{Event: h.Event}, {Event: idle.Event}}
}

func TestLatencyText(t *testing.T) {
	l, stats := called(t, newScene(t), map[string][]uint64{"open": {3, 1000, 1023, 70}, "close": {5_000_000}})
	calls := l.Calls(stats, true)
	got := string(AppendCalls(nil, calls))
	for i := range calls {
		got = string(AppendSteps([]byte(got), &calls[i]))
	}
	want := `# function                                               calls           min           avg           p50           p99        max/ns
  close                                                      1       5000000       5000000       5000000       5000000       5000000
  open                                                       4             3           524            70          1023          1023
  idle                                                       0             0             0             0             0             0
  total                                                      5             3       1000419          1003       5000000       5000000

# latency histogram of close, nanoseconds

{ latency: ~ 4194304-8388607 } hitcount:          1

# latency histogram of open, nanoseconds

{ latency: ~ 2-3 } hitcount:          1
{ latency: ~ 4-7 } hitcount:          0
{ latency: ~ 8-15 } hitcount:          0
{ latency: ~ 16-31 } hitcount:          0
{ latency: ~ 32-63 } hitcount:          0
{ latency: ~ 64-127 } hitcount:          1
{ latency: ~ 128-255 } hitcount:          0
{ latency: ~ 256-511 } hitcount:          0
{ latency: ~ 512-1023 } hitcount:          2
`
	got, _, _ = strings.Cut(got, "\n# latency histogram of total")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLatencyJSON(t *testing.T) {
	l, stats := called(t, newScene(t), map[string][]uint64{"open": {3, 9}})
	got := string(AppendCallsJSON(nil, l.Calls(stats, false), -1))
	want := `{"type":"latency","group":"web","event":"called","func":"open","count":2,"total":12,"min":3,"avg":6,"p50":3,"p99":9,"max":9,` +
		`"histogram":[{"from":2,"to":3,"count":1},{"from":4,"to":7,"count":0},{"from":8,"to":15,"count":1}]}` + "\n" +
		`{"type":"latency","group":"web","event":"idle","func":"idle","count":0,"total":0,"min":0,"avg":0,"p50":0,"p99":0,"max":0,"histogram":[]}` + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(string(AppendCallsJSON(nil, l.Calls(stats, false), 1.5))) {
		var o struct{ Time float64 }
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Time != 1.5 {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestLatencyTable(t *testing.T) {
	var some []uint64
	for i := range uint64(50) {
		some = append(some, 900+20*i)
	}
	l, stats := called(t, newScene(t), map[string][]uint64{"open": some, "close": {30_000, 1_234_000, 2}})
	table := &LatencyTable{Title: "process 4711", Calls: l.Calls(stats, true)}
	got, err := table.Lines(80, 24)
	if err != nil {
		t.Fatal(err)
	}
	want := `process 4711
FUNCTION  CALLS    TOTAL     MIN      AVG      P50      P99      MAX
close         3  1.26 ms    2 ns   421 µs  30.1 µs  1.23 ms  1.23 ms
open         50  69.5 µs  900 ns  1.39 µs  1.38 µs  1.88 µs  1.88 µs
idle          0        -       -        -        -        -        -
total        53  1.33 ms    2 ns  25.2 µs  1.40 µs  1.23 ms  1.23 ms

close (14 of 20 steps)
`
	text := strings.Join(got, "\n")
	if !strings.HasPrefix(text, want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	for height := 2; height < 60; height++ {
		if lines, err := table.Lines(80, height); err != nil || len(lines) > max(height-1, 4) {
			t.Errorf("%d lines on a terminal of %d, %v", len(lines), height, err)
		}
	}
	all, err := table.All(100)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(all, "\n"); !strings.Contains(text, "\n\nopen\n") || !strings.Contains(text, "\n 512 ns      7  ##########\n1.02 µs     43  ####") {
		t.Errorf("at the end\n%s", text)
	}
}

func TestNanoseconds(t *testing.T) {
	for ns, want := range map[uint64]string{
		0: "0 ns", 999: "999 ns", 1000: "1.00 µs", 1234: "1.23 µs", 9996: "10.0 µs", 99_960: "100 µs", 999_400: "999 µs",
		999_500: "1.00 ms", 12_345_678: "12.3 ms", 999_600_000: "1.00 s", 1_500_000_000: "1.50 s", 3_600_000_000_000: "3600 s",
	} {
		if got := nanoseconds(ns); got != want {
			t.Errorf("%d is %q, want %q", ns, got, want)
		}
	}
}

// TestLatencyRefuses says that a record that doesn't end with a time is an
// error, not a number.
func TestLatencyRefuses(t *testing.T) {
	h := newScene(t).hit(t, "p work", fetch.Regs{}, nil)
	if err := (&Latency{}).Hit(h); err == nil {
		t.Error("a record without a time was counted")
	}
}

// TestUncalled names events that were never hit: of another kprobe's session the
// definition isn't known.
func TestUncalled(t *testing.T) {
	for want, e := range map[string]*results.Event{
		"ev":       {Name: "ev"},
		"work":     {Name: "ev", Def: &fetch.Def{Place: symbols.Place{Symbol: "work"}}},
		"0x401000": {Name: "ev", Def: &fetch.Def{Place: symbols.Place{Kind: symbols.PlaceAddr, Value: 0x401000}}},
	} {
		if got := uncalled(e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLatencyLost: calls that were lost stand beside those that were counted,
// also of a function all of whose calls were.
func TestLatencyLost(t *testing.T) {
	l, stats := called(t, newScene(t), map[string][]uint64{"open": {3, 5, 7}})
	l.Lose([]results.Stats{
		{Event: stats[0].Event, Place: "open", Lost: 2},
		{Event: stats[0].Event, Place: "open", Module: "libc.so.6", Lost: 4},
		{Event: stats[0].Event, Place: "read", Lost: 1},
	})
	calls := l.Calls(stats, true)
	got := string(AppendCalls(nil, calls))
	for _, want := range []string{"max/ns          lost\n", "7             6\n", "\n  read                                                       0             0             0             0             0             0             1\n", "  total                                                      3 "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	lines, err := (&LatencyTable{Calls: calls}).All(100)
	if err != nil || !strings.Contains(lines[0], "LOST  TOTAL") || !strings.Contains(lines[1], "6 (66.7 %)") {
		t.Errorf("%v\n%s", err, strings.Join(lines, "\n"))
	}
	if got := string(AppendCallsJSON(nil, calls, -1)); !strings.Contains(got, `"max":7,"lost":6,"lost_percent":66.66,"histogram"`) {
		t.Errorf("%s", got)
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		part, all uint64
		want      string
	}{
		{0, 0, "0.0 %"}, {0, 10, "0.0 %"}, {1, 10, "10.0 %"}, {384, 1000, "38.4 %"}, {1, 1 << 40, "below 0.1 %"},
		{1<<40 - 1, 1 << 40, "over 99.9 %"}, {7, 7, "100.0 %"},
	} {
		if got := percent(c.part, c.all); got != c.want {
			t.Errorf("%d of %d: %s, want %s", c.part, c.all, got, c.want)
		}
	}
}
