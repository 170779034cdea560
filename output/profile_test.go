package output

import (
	"bytes"
	"strings"
	"testing"

	"kprobe/probe/results"
)

// places are counters of places: one in the program, one in a library, one of
// another event at the same place, one that wasn't reached.
func places() []results.Stats {
	a, b := &results.Event{Group: "g", Name: "a"}, &results.Event{Group: "g", Name: "b"}
	return []results.Stats{
		{Event: a, Place: "work", Hits: 5},
		{Event: a, Place: "work", Module: "libw.so", Hits: 70, Missed: 2, Disabled: true},
		{Event: a, Place: "work+0x4"},
		{Event: b, Place: "work", Hits: 6, Filtered: 1, Lost: 3, Unfinished: 2},
		{Event: b, Place: "0x4010", Missed: 1},
	}
}

func TestPlacesReached(t *testing.T) {
	all := places()
	reached := Reached(all)
	got := string(AppendProfile(nil, append(reached, Total(reached))))
	want := "" +
		"  a libw.so:work                                            70               2\n" +
		"  b work                                                     6               0\n" +
		"  a work                                                     5               0\n" +
		"  b 0x4010                                                   0               1\n" +
		"  total                                                     81               3\n"
	if got != want {
		t.Errorf("\n%s, want\n%s", got, want)
	}
	if all[0].Place != "work" || all[0].Module != "" || len(all) != 5 {
		t.Errorf("the counters given were changed: %v", all)
	}
	got = string(AppendProfileJSON(nil, reached[:2]))
	want = `{"type":"profile","group":"g","event":"a","place":"work","module":"libw.so","hits":70,"nmissed":2,"filtered":0,"lost":0,"disabled":true}` + "\n" +
		`{"type":"profile","group":"g","event":"b","place":"work","hits":6,"nmissed":0,"filtered":1,"lost":3,"unfinished":2}` + "\n"
	if got != want {
		t.Errorf("\n%s, want\n%s", got, want)
	}
}

func TestPlacesTables(t *testing.T) {
	var b bytes.Buffer
	if err := ProfileTable(&b, Reached(places())); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if words := strings.Fields(lines[0]); strings.Join(words, " ") != "PLACE EVENT HITS FILTERED LOST NMISSED" {
		t.Errorf("columns %q", words)
	}
	if words := strings.Fields(lines[1]); strings.Join(words, " ") != "libw.so:work [DISABLED] g/a 70 0 0 2" {
		t.Errorf("first line %q", words)
	}
	// The rate of a place is that of itself, not of another one of its event.
	before := places()
	now := places()
	now[1].Hits += 10
	now[3].Hits++
	rates := Rates(now, before, 1)
	for i, want := range []float64{0, 10, 0, 1, 0} {
		if rates[i].PerSecond != want {
			t.Errorf("%s of %s: %v hits/s, want %v", rates[i].Place, rates[i].Event.Name, rates[i].PerSecond, want)
		}
	}
	live, err := (&LiveTable{Rates: rates, Each: true, Total: true}).Lines(80, 20)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"PLACE EVENT HITS HITS/S", "libw.so:work [DISABLED] g/a 80 10", "work g/b 7 1"} {
		if got := strings.Join(strings.Fields(live[i+1]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d: %q, want %q", i, got, want)
		}
	}
	if last := strings.Fields(live[len(live)-1]); last[0] != "total" || last[1] != "92" {
		t.Errorf("total %q", last)
	}
}

// Events of one name are told apart by their groups, and the sum from an event that is called so.
func TestProfileOfGroups(t *testing.T) {
	got := string(AppendProfile(nil, []results.Stats{
		stats("a", "x", 1, 0), stats("b", "x", 2, 0), stats("a", "y", 3, 0), stats("a", "total", 4, 0), Total(nil),
	}))
	var names []string
	for line := range strings.Lines(got) {
		names = append(names, strings.Fields(line)[0])
	}
	if want := "a/x b/x y a/total total"; strings.Join(names, " ") != want {
		t.Errorf("%q, want %s", names, want)
	}
}
