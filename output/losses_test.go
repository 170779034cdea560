package output

import (
	"testing"
	"time"

	"kprobe/probe/results"
)

func TestLosses(t *testing.T) {
	a, b := stats("g", "a", 10, 0), stats("g", "b", 10, 0)
	var l Losses
	if got := l.Since([]results.Stats{a, b}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	a.Lost = 3
	if got := l.Since([]results.Stats{a, b}); len(got) != 1 || got[0] != (Loss{a.Event, 3, 3}) {
		t.Errorf("%+v", got)
	}
	a.Lost, b.Lost = 5, 1
	got := l.Since([]results.Stats{a, b})
	if len(got) != 2 || got[0] != (Loss{a.Event, 2, 5}) || got[1] != (Loss{b.Event, 1, 1}) {
		t.Errorf("%+v", got)
	}
	if again := l.Since([]results.Stats{a, b}); len(again) != 0 {
		t.Errorf("%+v", again)
	}
	text := string(AppendLossJSON(nil, &got[0], Clock{}, 1_500_002_999))
	if want := `{"type":"lost","time":1.500002,"group":"g","event":"a","lost":2,"total":5}` + "\n"; text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	delta, err := NewClock("delta", 0, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	text = string(AppendLossJSON(nil, &got[0], delta, 1_500_002_999))
	if want := `{"type":"lost","group":"g","event":"a","lost":2,"total":5}` + "\n"; text != want {
		t.Errorf("by distances: got %s, want %s", text, want)
	}
}
