package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// measured is what a program knows of a function's calls: their times from
// inside and from outside, in nanoseconds.
type measured struct {
	name         string
	count        uint64
	inner, outer struct{ sum, min, max uint64 }
}

// latency is an object of kprobe profile --latency.
type latency struct {
	Type, Func                            string
	Count, Total, Min, Max, Avg, P50, P99 uint64
	Events, Lost                          uint64
	Missed                                map[string]uint64
	Histogram                             []struct{ From, To, Count uint64 }
}

// TestLatency profiles a program that knows how long its calls take, on eight
// threads, within each other, by jumps and by breakpoints. Every call is there
// once, and what was measured is between the program's own measurements from
// inside and from outside the call.
func TestLatency(t *testing.T) {
	kprobe, prog := program(t), fixture.Build(t, "latency_calls.c", "-O1")
	for _, c := range []struct {
		name                   string
		flags                  []string
		threads, rounds, depth int
	}{
		{"jumps", nil, 8, 100, 60},
		{"breakpoints", []string{"--no-optimize"}, 8, 10, 10},
		{"alone", nil, 1, 50, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "objects")
			args := append([]string{"profile", "--latency", "--json", "-o", file}, c.flags...)
			cmd := exec.Command(kprobe, append(args, "-q", "spin", "recurse", "--", prog, fmt.Sprint(c.threads), fmt.Sprint(c.rounds), fmt.Sprint(c.depth))...)
			var out, said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &said
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, said.String())
			}
			if warned := strings.Contains(said.String(), "breakpoints follow"); warned != (c.flags != nil) {
				t.Errorf("it said %q", said.String())
			}
			objects, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := decode(t, string(objects))
			for line := range strings.Lines(out.String()) {
				var m measured
				if _, err := fmt.Sscan(line, &m.name, &m.count, &m.inner.sum, &m.inner.min, &m.inner.max, &m.outer.sum, &m.outer.min, &m.outer.max); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				want := c.threads * c.rounds
				if m.name == "recurse" {
					want *= c.depth + 1
				}
				if m.count != uint64(want) {
					t.Fatalf("the program made %d calls of %s, want %d", m.count, m.name, want)
				}
				m.check(t, got[m.name])
			}
			if end := got["end"]; len(got) != 3 || end.Lost != 0 || len(end.Missed) != 0 || end.Events != got["spin"].Count+got["recurse"].Count {
				t.Errorf("it ended with %+v", end)
			}
		})
	}
}

func decode(t *testing.T, text string) map[string]latency {
	t.Helper()
	got := map[string]latency{}
	for line := range strings.Lines(text) {
		var l latency
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l.Type == "latency" {
			got[l.Func] = l
		} else {
			got[l.Type] = l
		}
	}
	return got
}

// check compares. The two clocks run at rates that differ by less than a
// thousandth, and the counter counts in steps of up to 20 ns.
func (m *measured) check(t *testing.T, l latency) {
	t.Helper()
	between := func(what string, v, low, high, steps uint64) {
		slack := 40 * steps
		if v+v/1000+slack < low || v > high+high/1000+slack {
			t.Errorf("%s: %s %d ns, the program says %d to %d", m.name, what, v, low, high)
		}
	}
	if l.Count != m.count {
		t.Errorf("%s: %d calls, the program made %d", m.name, l.Count, m.count)
	}
	between("total", l.Total, m.inner.sum, m.outer.sum, m.count)
	between("min", l.Min, m.inner.min, m.outer.min, 1)
	between("max", l.Max, m.inner.max, m.outer.max, 1)
	if l.Count > 0 && l.Avg != (l.Total+l.Count/2)/l.Count || l.P50 < l.Min || l.P99 < l.P50 || l.Max < l.P99 {
		t.Errorf("%s: %+v makes no sense", m.name, l)
	}
	sum := uint64(0)
	for _, s := range l.Histogram {
		sum += s.Count
	}
	if sum != l.Count {
		t.Errorf("%s: %d calls are in the histogram of %d", m.name, sum, l.Count)
	}
}
