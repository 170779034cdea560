package cli

import (
	"strings"
	"testing"
	"time"

	"kprobe/cmd/kprobe/bench"
)

func benchReport() *bench.Report {
	return &bench.Report{
		Threads: []int{1, 2},
		Rows: []bench.Row{
			{Kind: "floor", What: "by hand: return", NS: []float64{17.25}, Bare: 1.5},
			{Kind: "o", What: "jump", NS: []float64{13, 14.06}, Bare: 1.5, Floor: 10, Sequence: 8, Kernel: 910},
			{Kind: "b", What: "breakpoint", NS: []float64{13700, 28000}, Bare: 1.5, Floor: 10, Lost: 0.25},
		},
	}
}

func TestBenchTable(t *testing.T) {
	var b strings.Builder
	if err := benchTable(benchReport()).Render(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"KIND WHAT NS, 1 THREAD NS, 2 THREADS FLOOR RATIO RSEQ RATIO KERNEL",
		"floor by hand: return 17.2",
		"o jump 13.0 14.1 10.0 1.30 8.0 1.62 70.00 x",
		"b breakpoint (25.0 % lost) 13700 28000 10.0 1370",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestBenchWork: the figures of bench --all, in both forms.
func TestBenchWork(t *testing.T) {
	rep := &bench.Report{Threads: []int{1}, Work: []bench.Work{{What: "lines", Value: 4086150.4, Unit: "1/s"}, {What: "1 probes: armed", Value: 22.37, Unit: "ms"}}}
	var b strings.Builder
	if err := workTable(rep).Render(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if want := "WORK VALUE UNIT\nlines 4086150 1/s\n1 probes: armed 22.370 ms"; strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	text, err := benchJSON(rep)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"type":"work","what":"lines","value":4086150.4,"unit":"1/s"}` + "\n" + `{"type":"work","what":"1 probes: armed","value":22.37,"unit":"ms"}` + "\n"; string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// TestBenchCosts: what bench --all says of programs that hit no probe, in both forms.
func TestBenchCosts(t *testing.T) {
	with := [bench.Withs]bench.Dearer{bench.WithText: {NS: 104, Ratio: 1.05}, bench.WithLeft: {NS: 108, Ratio: 1.08}, bench.WithTrace: {NS: 250, Ratio: 2.5}, bench.WithBreakpoint: {NS: 1234, Ratio: 12}}
	rep := &bench.Report{Threads: []int{1}, Costs: []bench.Cost{{What: "a fork", NS: 99.5, With: with}}}
	var b strings.Builder
	if err := costTable(rep).Render(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if want := "COST OF NS TEXT RATIO LEFT RATIO TRACED RATIO BREAKPOINT RATIO\na fork 99.5 104 1.05 108 1.08 250 2.50 1234 12.00"; strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	text, err := benchJSON(rep)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"type":"cost","what":"a fork","ns":99.5,"text_ns":104,"text_ratio":1.05,"left_ns":108,"left_ratio":1.08,"traced_ns":250,"traced_ratio":2.5,"breakpoint_ns":1234,"breakpoint_ratio":12}` + "\n"; string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestBenchJSON(t *testing.T) {
	text, err := benchJSON(benchReport())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines, want a line for each figure: %q", len(lines), lines)
	}
	if want := `{"type":"bench","kind":"o","what":"jump","threads":1,"ns":13,"bare_ns":1.5,"floor_ns":10,"ratio":1.3,"rseq_ns":8,"rseq_ratio":1.625,"kernel_ns":910}`; lines[1] != want {
		t.Errorf("got %s\nwant %s", lines[1], want)
	}
	if strings.Contains(lines[0], "ratio") {
		t.Errorf("the floor has a ratio to itself: %s", lines[0])
	}
}

// TestBenchPrograms: the figures of bench --program, in both forms.
func TestBenchPrograms(t *testing.T) {
	rep := &bench.Report{Programs: []bench.Program{{
		Name: "redis-server", Work: "GET", Probes: "returns", Places: 3997, Trapped: 25, Hits: 72.5, NS: 812.4,
		CPU: 0.413, Throughput: 0.5, Armed: 1234 * time.Millisecond, Longest: 2345 * time.Microsecond, Memory: 3_210_000,
	}}}
	var b strings.Builder
	if err := programTable(rep).Render(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := "PROGRAM WORK PROBES CPU RATE HITS NS PLACES TRAPS ARMED STOP MB\nredis-server GET returns 41 % 50 % 72.5 812 3997 25 1.23s 2.35ms 3.2"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	text, err := benchJSON(rep)
	if err != nil {
		t.Fatal(err)
	}
	want = `{"type":"program","program":"redis-server","work":"GET","probes":"returns","cpu":0.413,"rate":0.5,"hits":72.5,"ns":812.4,"places":3997,"traps":25,"armed_ms":1234,"stop_ms":2.345,"memory_bytes":3210000}` + "\n"
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
