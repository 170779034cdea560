package output

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"kprobe/probe/results"
)

func TestRates(t *testing.T) {
	before := []results.Stats{stats("g", "a", 100, 0), stats("g", "b", 50, 0)}
	now := []results.Stats{stats("g", "a", 300, 0), stats("g", "b", 10, 0), stats("h", "a", 40, 0)}
	got := Rates(now, before, 2)
	for i, want := range []float64{100, 5, 20} {
		if got[i].PerSecond != want || got[i].Hits != now[i].Hits {
			t.Errorf("%s: %v a second, want %v", eventName(&now[i]), got[i].PerSecond, want)
		}
	}
	if r := Rates(now, before, 0); r[0].PerSecond != 0 {
		t.Errorf("in no time %v", r[0].PerSecond)
	}
}

func TestTotal(t *testing.T) {
	a, b := stats("g", "a", 3, 1), stats("g", "b", 4, 2)
	a.Lost, b.Filtered, b.Recorded = 1, 2, 2
	got := Total([]results.Stats{a, b})
	if got.Hits != 7 || got.Missed != 3 || got.Lost != 1 || got.Filtered != 2 || got.Recorded != 5 || got.Places != 2 || got.Event.Name != "total" {
		t.Errorf("%+v", got)
	}
	if text := string(AppendProfile(nil, []results.Stats{got})); !strings.HasPrefix(text, "  total  ") {
		t.Errorf("%q", text)
	}
}

func lines(t *testing.T, table *LiveTable, width, height int) []string {
	t.Helper()
	got, err := table.Lines(width, height)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i] = strings.TrimRight(got[i], " ")
	}
	return got
}

func TestLiveTable(t *testing.T) {
	slow, quick := stats("web", "slow", 500, 2), stats("web", "quick", 20, 0)
	slow.Disabled, quick.Filtered = true, 7
	table := &LiveTable{Title: "process 4711", Total: true, Rates: []Rate{
		{Stats: slow, PerSecond: 10}, {Stats: stats("web", "idle", 0, 0)}, {Stats: quick, PerSecond: 40},
	}}
	got := strings.Join(lines(t, table, 80, 24), "\n")
	want := "process 4711\n" +
		"EVENT                HITS  HITS/S  FILTERED  LOST  NMISSED\n" +
		"web/quick              20      40         7     0        0  ####################\n" +
		"web/slow [DISABLED]   500      10         0     0        2  #####\n" +
		"web/idle                0       0         0     0        0\n" +
		"total                 520      50         7     0        2"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLiveTableFits(t *testing.T) {
	var table LiveTable
	for i := range 40 {
		name := fmt.Sprintf("event_%d_%s", i, strings.Repeat("x", i))
		table.Rates = append(table.Rates, Rate{Stats: stats("group", name, uint64(i)*1e9, 0), PerSecond: float64(40 - i)})
	}
	for _, width := range []int{60, 80, 132, 200} {
		for _, height := range []int{3, 10, 24, 60} {
			got := lines(t, &table, width, height)
			for _, line := range got {
				if n := utf8.RuneCountInString(line); n > width {
					t.Errorf("at %dx%d a line has %d columns: %q", width, height, n, line)
				}
			}
			if len(got) > max(height-1, 4) {
				t.Errorf("at %dx%d there are %d lines", width, height, len(got))
			}
			if more := strings.HasPrefix(got[len(got)-1], "and "); more != (height < 45) {
				t.Errorf("at %dx%d the last line is %q", width, height, got[len(got)-1])
			}
			if !strings.HasPrefix(got[2], "group/event_0_") {
				t.Errorf("at %dx%d the fastest is not the first: %q", width, height, got[2])
			}
			if bar := strings.Contains(got[2], "##"); width == 200 && !bar || width == 60 && height > 20 && bar {
				t.Errorf("at %dx%d: bar %v: %q", width, height, bar, got[2])
			}
		}
	}
	if got := lines(t, &LiveTable{Title: "nothing"}, 80, 24); len(got) != 2 {
		t.Errorf("without events it is %q", got)
	}
}

// TestNarrowTable leaves whole columns out: none is cut.
func TestNarrowTable(t *testing.T) {
	rates := []Rate{{Stats: results.Stats{Event: &results.Event{Group: "kprobes", Name: "a_long_name_of_an_event"}, Hits: 123456789}, PerSecond: 1000}}
	for width := 8; width <= 120; width++ {
		lines, err := (&LiveTable{Title: "t", Rates: rates}).Lines(width, 24)
		if err != nil {
			t.Fatal(err)
		}
		heads := strings.Fields(lines[1])
		if !slices.Equal(heads, []string{"EVENT", "HITS", "HITS/S", "FILTERED", "LOST", "NMISSED"}[:len(heads)]) {
			t.Errorf("at %d columns: %q", width, lines[1])
		}
		if n := utf8.RuneCountInString(strings.TrimRight(lines[2], " ")); width > minName+12 && n > width {
			t.Errorf("a line of %d columns at %d: %q", n, width, lines[2])
		}
		if width >= 60 && len(heads) != 6 {
			t.Errorf("at %d columns there are only %q", width, heads)
		}
	}
}
