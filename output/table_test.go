package output

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/symbols"
)

func TestTable(t *testing.T) {
	table := Table{
		Columns: []Column{{"name", Left}, {"COUNT", Right}, {"Why", Left}},
		Rows: [][]string{
			{"a", "1", "short"},
			{"longer name", "12345", "a reason that is longer than any line of a terminal would be: " + strings.Repeat("x", 100)},
			{"  blanks ", "0", ""},
		},
	}
	var b strings.Builder
	if err := table.Render(&b); err != nil {
		t.Fatal(err)
	}
	want := "name         COUNT  Why\n" +
		"a                1  short\n" +
		"longer name  12345  a reason that is longer than any line of a terminal would be: " + strings.Repeat("x", 100) + "\n" +
		"  blanks         0\n"
	if got := trimRight(b.String()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// trimRight drops the blanks at the ends of lines, which nobody sees.
func trimRight(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n"))
		b.WriteByte('\n')
	}
	return b.String()
}

func stats(group, name string, hits, missed uint64) results.Stats {
	return results.Stats{
		Event:  &results.Event{Group: group, Name: name},
		Places: 1, Hits: hits, Recorded: hits, Missed: missed,
	}
}

func TestAppendProfileIsTheKernels(t *testing.T) {
	got := string(AppendProfile(nil, []results.Stats{
		stats("kprobes", "open", 12, 3),
		stats("kprobes", strings.Repeat("n", 50), 1, 0),
	}))
	// "  %-44s %15lu %15lu\n" of probes_profile_seq_show.
	want := "  open                                                      12               3\n" +
		"  " + strings.Repeat("n", 50) + "               1               0\n"
	if got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestProfileJSONAndEnd(t *testing.T) {
	s := []results.Stats{stats("g", "a", 1<<60, 0), stats("g", "b", 7, 2)}
	s[1].Lost, s[1].Filtered, s[1].Disabled = 1, 3, true
	text := AppendEnd(AppendProfileJSON(nil, s), 4, s)
	var objects []map[string]any
	for line := range strings.Lines(string(text)) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		objects = append(objects, o)
	}
	if len(objects) != 3 {
		t.Fatalf("%d objects", len(objects))
	}
	a, b, end := objects[0], objects[1], objects[2]
	if a["hits"] != "1152921504606846976" || a["type"] != "profile" || a["event"] != "a" {
		t.Errorf("first event: %v", a)
	}
	if b["hits"] != 7.0 || b["nmissed"] != 2.0 || b["lost"] != 1.0 || b["filtered"] != 3.0 || b["disabled"] != true {
		t.Errorf("second event: %v", b)
	}
	missed, _ := end["missed"].(map[string]any)
	if end["type"] != "end" || end["events"] != 4.0 || end["lost"] != 1.0 || len(missed) != 1 || missed["g/b"] != 2.0 {
		t.Errorf("end: %v", end)
	}
	if got, want := string(AppendEnd(nil, 4, append(s, stats("g", "b", 9, 5)))), `"missed":{"g/b":7}}`; !strings.Contains(got, want) {
		t.Errorf("an event that two commands have left: got %s, want %s", got, want)
	}
}

func TestProfileTable(t *testing.T) {
	var b strings.Builder
	s := []results.Stats{stats("kprobes", "open", 12, 3)}
	s[0].Disabled = true
	if err := ProfileTable(&b, s); err != nil {
		t.Fatal(err)
	}
	want := "EVENT                    PLACES  HITS  FILTERED  LOST  NMISSED\n" +
		"kprobes/open [DISABLED]       1    12         0     0        3\n"
	if got := trimRight(b.String()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEndLine(t *testing.T) {
	lossy := stats("g", "e", 10, 4)
	lossy.Lost, lossy.Filtered, lossy.Recorded = 2, 3, 5
	tests := []struct {
		name   string
		events uint64
		stats  []results.Stats
		alive  []int
		killed []results.Death
		want   string
	}{
		{"nothing", 0, nil, nil, nil, "0 events, 0 lost; the target has ended"},
		{"one", 1, []results.Stats{stats("g", "e", 1, 0)}, []int{42}, nil, "1 event, 0 lost; process 42 runs on"},
		{"all that can be told", 5, []results.Stats{lossy}, []int{1, 2}, []results.Death{{PID: 3, Signal: syscall.SIGSEGV}},
			"5 events, 3 filtered out, 2 lost (the buffer was full, or the trace ended before they were read: 28.6 % of all; a larger --ring helps), " +
				"4 missed (no free return instance: a larger --maxactive helps, but not always where functions jump to one another in a circle); 2 processes run on"},
		{"killed", 0, nil, nil, []results.Death{{PID: 3, Signal: syscall.SIGTERM}, {PID: 4, Signal: syscall.SIGSEGV}}, "0 events, 0 lost; process 4 was killed by SIGSEGV"},
		{"killed by a signal without a name", 0, nil, nil, []results.Death{{PID: 3, Signal: 40}}, "0 events, 0 lost; process 3 was killed by signal 40"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := EndLine(tt.events, tt.stats, tt.alive, tt.killed); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestUnarmedLine(t *testing.T) {
	waits := &results.Event{Group: "g", Name: "late", Def: &fetch.Def{Place: symbols.Place{Module: "libz"}}}
	plain := &results.Event{Group: "g", Name: "e"}
	for _, tt := range []struct {
		events []*results.Event
		want   string
	}{
		{[]*results.Event{waits}, "g/late (libz was not loaded) was never armed"},
		{[]*results.Event{plain, waits}, "g/e, g/late (libz was not loaded) were never armed"},
		{[]*results.Event{plain, plain, plain, plain, waits, waits}, "g/e, g/e, g/e, g/e and 2 more were never armed"},
	} {
		if got := UnarmedLine(tt.events); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestAppendError(t *testing.T) {
	if got := string(AppendError(nil, `no "x"`)); got != "{\"type\":\"error\",\"message\":\"no \\\"x\\\"\"}\n" {
		t.Errorf("got %s", got)
	}
}

func listing() *results.Listing {
	return &results.Listing{
		Func:   symbols.Func{Start: 0x1130, End: 0x1136},
		Module: &symbols.Module{Name: "prog"},
		Name:   "work", Asked: 1,
		Lines: []results.Line{
			{Addr: 0x1130, Offset: 0, Bytes: []byte{0x55}, Text: "push rbp", Probe: results.KindGuarded},
			{Addr: 0x1131, Offset: 1, Bytes: []byte{0x48, 0x89, 0xe5}, Text: "mov rbp, rsp", Probe: results.KindBreakpoint, Why: "no room"},
			{Addr: 0x1134, Offset: 4, Bytes: []byte{0xf0, 0x90}, Text: "?", Probe: results.KindRefused, Why: "undefined"},
		},
	}
}

func TestListingText(t *testing.T) {
	var b strings.Builder
	if err := ListingText(&b, listing(), 0); err != nil {
		t.Fatal(err)
	}
	want := "work (prog) at 0x1130, 0x6 bytes:\n" +
		"   OFFSET  BYTES   INSTRUCTION   PROBE         WHY\n" +
		"     +0x0  55      push rbp      guarded-jump\n" +
		">    +0x1  4889e5  mov rbp, rsp  breakpoint    no room\n" +
		"     +0x4  f090    ?             refused       undefined\n"
	if got := trimRight(b.String()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestListingJSON(t *testing.T) {
	l := listing()
	l.Lines[1].Source = "t.c:12"
	text := strings.Split(string(AppendListingJSON(nil, l)), "\n")
	want := `{"addr":"0x1131","off":1,"size":3,"bytes":"4889e5","asm":"mov rbp, rsp","line":"t.c:12","probe":"breakpoint","why":"no room","func":"work"}`
	if len(text) != 4 || text[1] != want {
		t.Errorf("got %q", text)
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(text[0]), &o); err != nil {
		t.Fatal(err)
	}
	if _, there := o["why"]; there {
		t.Errorf("an instruction at its best has a reason: %s", text[0])
	}
}

func TestFunctionAndFactJSON(t *testing.T) {
	fn := Function{Module: "libc.so.6", Name: "openat", Vaddr: 0x10, Addr: 0x7f0010, Size: 5}
	if got, want := string(AppendFunctionJSON(nil, &fn)), `{"name":"openat","module":"libc.so.6","vaddr":"0x10","addr":"0x7f0010","size":5}`+"\n"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	tests := []struct {
		fact       Fact
		json, text string
	}{
		{Fact{Name: "state", OK: true, Text: "fine"},
			`{"fact":"state","state":"ok","text":"fine"}`, "ok      state: fine\n"},
		{Fact{Name: "tracer", Blocks: true, Text: "gdb", Remedy: "end it"},
			`{"fact":"tracer","state":"problem","text":"gdb","remedy":"end it"}`, "problem tracer: gdb\n        → end it\n"},
		{Fact{Name: "seccomp", Text: "filters"},
			`{"fact":"seccomp","state":"note","text":"filters"}`, "note    seccomp: filters\n"},
	}
	for _, tt := range tests {
		if got := string(AppendFactJSON(nil, &tt.fact)); got != tt.json+"\n" {
			t.Errorf("got %s want %s", got, tt.json)
		}
		if got := string(AppendFact(nil, &tt.fact)); got != tt.text {
			t.Errorf("got %q want %q", got, tt.text)
		}
	}
}

func TestInterposedLine(t *testing.T) {
	e := &results.Event{Group: "g", Name: "e", Def: &fetch.Def{Place: symbols.Place{Module: "libc", Symbol: "malloc"}}}
	for _, c := range []struct {
		in   results.Interposed
		want string
	}{
		{results.Interposed{Event: e, By: "libjemalloc.so.2"}, "g/e had no hit: malloc of this program is libjemalloc.so.2's, not libc's; write malloc without libc:"},
		{results.Interposed{Event: e, By: "server", Main: true}, "g/e had no hit: malloc of this program is the program's own, not libc's; write malloc without libc:"},
	} {
		if got := InterposedLine(&c.in); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestFilteredLines(t *testing.T) {
	with, without := stats("g", "e", 10, 0), stats("g", "none", 10, 0)
	with.Filtered = 7
	idle := stats("g", "idle", 0, 0)
	idle.Event.Def = &fetch.Def{Filter: &fetch.Filter{}}
	got := FilteredLines([]results.Stats{with, without, idle})
	if want := []string{"g/e: 3 of 10 hits passed its filter", "g/idle: 0 of 0 hits passed its filter"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := FilteredLines(slices.Repeat([]results.Stats{with}, saidFilters+2)); len(got) != saidFilters+1 || got[saidFilters] != "and 2 more events have filters" {
		t.Errorf("%q", got)
	}
}

// Names of C++ are shortened to what a terminal has room for, and only there.
func TestTerminalFits(t *testing.T) {
	long := strings.Repeat("a_namespace::", 20) + "f(int)"
	table := func() *Table {
		return &Table{Columns: []Column{{"func", Left}, {"calls", Right}}, Rows: [][]string{{long, "123456789"}, {"main", "1"}}}
	}
	site := &Site{Addr: 0x1000, Symbol: long, Module: "prog", Optimized: true}
	lines := &results.Listing{Lines: []results.Line{{Text: "call " + long}}}
	var last string
	for _, width := range []int{0, 80, 60} {
		var b bytes.Buffer
		tb := table()
		tb.Fit(0, width)
		if err := tb.Render(&b); err != nil {
			t.Fatal(err)
		}
		b.Write(AppendSiteWithin(nil, site, width))
		if err := ListingText(&b, lines, width); err != nil {
			t.Fatal(err)
		}
		last = b.String()
		if width == 0 {
			if n := strings.Count(last, long); n != 3 {
				t.Errorf("the name is whole %d times where there is no terminal:\n%s", n, last)
			}
			continue
		}
		for line := range strings.Lines(last) {
			most := width
			if strings.Contains(line, "call ") || strings.Contains(line, "INSTRUCTION") {
				most = max(width/2, minInstruction) + 40 // what stands before and behind it
			}
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > most {
				t.Errorf("at %d columns a line has %d:\n%s", width, n, line)
			}
		}
		if !strings.Contains(last, "123456789") || !strings.Contains(last, "[OPTIMIZED]") || !strings.Contains(last, "…") {
			t.Errorf("at %d columns:\n%s", width, last)
		}
	}
}
