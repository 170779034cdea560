package probe

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/ring"
)

// TestLeftSecond has several commands leave probes in one process: the hits of all are taken in sequences, each call is a
// hit, and they go in any order. What the first has laid beside system calls stays until the last is gone.
func TestLeftSecond(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "trigger_calls.c", "-O1", "-pthread"), "2")
	defs := map[string]string{"one": "p:one hit n=$arg1", "two": "p:two up n=$arg1", "three": "p:three named s=+0($arg1):string"}
	for _, order := range [][]string{
		{"+one", "+two", "+three", "-one", "-two", "-three"},
		{"+one", "+two", "-two", "+three", "-one", "+one", "-three", "-one"},
		{"+three", "+one", "-three", "+two", "+three", "-three", "-one", "-two"},
	} {
		hits := map[string]uint64{}
		for i, step := range order {
			name := step[1:]
			if step[0] == '+' {
				once := false
				leaveIn(t, sub.pid(), Options{Detach: true, Log: slog.New(logOf{slog.LevelInfo, func(msg string) {
					once = once || strings.Contains(msg, "hits ask the kernel once for each page")
				}})}, defs[name])
				if name == "three" && !once {
					t.Errorf("%q, step %d: hits ask the kernel before each page", order, i)
				}
				hits[name] = 0
			} else {
				if err := openedLive(t, sub.pid()).Remove(t.Context(), []string{"kprobes/" + name}); err != nil {
					t.Fatalf("%q, step %d: %v", order, i, err)
				}
				delete(hits, name)
			}
			sub.says("go 10")
			sub.says("turn 10")
			sub.says("obj 3") // threads come and go
			sub.says("name abc")
			if len(hits) == 0 {
				checkClean(t, sub.pid())
				continue
			}
			l := openedLive(t, sub.pid())
			for name := range hits {
				hits[name] += map[string]uint64{"one": 20, "two": 20, "three": 1}[name]
				if got := hitsOf(t, l.Stats(), name); got != hits[name] {
					t.Errorf("%q, step %d: %s has %d hits, want %d", order, i, name, got, hits[name])
				}
			}
			if got := l.HitsLocked(); slices.ContainsFunc(got, func(why string) bool { return why != "" }) {
				t.Errorf("%q, step %d: hits take locked instructions: %q", order, i, got)
			}
		}
		if t.Failed() {
			t.Fatal(order)
		}
	}
	sub.end()
}

// TestLeftSecondUnderLoad does so while threads, signals, forks and children of posix_spawn are there: no hit is torn,
// each call of either is a hit or a counted one.
func TestLeftSecondUnderLoad(t *testing.T) {
	for _, how := range []string{"paced", "storm", "jumps"} {
		t.Run(how, func(t *testing.T) {
			s := startRecorded(t, 3, how)
			s.left(Options{}, "p:rec/first libc:getppid")
			leaveIn(t, s.pid(), Options{Detach: true}, recordedHit)
			before := s.begun()
			if !waitUntil(func() bool { return s.begun() > before+2000 }) {
				t.Fatalf("the program makes no calls any more: %s", endOf(s.pid()))
			}
			s.look()
			l := openedLive(t, s.pid())
			if err := l.Remove(t.Context(), []string{"rec/first"}); err != nil {
				t.Fatal(err)
			}
			before = s.begun()
			if !waitUntil(func() bool { return s.begun() > before+2000 }) {
				t.Fatalf("the program makes no calls any more: %s", endOf(s.pid()))
			}
			s.look()
			// While a child of posix_spawn is there, none are taken in sequences.
			var got []string
			if !waitUntil(func() bool {
				got = l.HitsLocked()
				return !slices.ContainsFunc(got, func(why string) bool { return why != "" })
			}) {
				t.Errorf("hits take locked instructions: %q", got)
			}
			s.work()
			if err := l.takeOut(t.Context(), nil, func(*ring.ProbeState) bool { return true }); err != nil {
				t.Fatal(err)
			}
			checkLeft(t, s.pid(), true)
			s.end()
		})
	}
}

// leaveFirst leaves a probe that reads nothing in a program, so that the next command is a guest of this one; with "emptied"
// the probe is removed when a guest is there. With "alone" it does nothing.
func leaveFirst(t *testing.T, sub *subject, static bool, how string) {
	t.Helper()
	if how == "alone" {
		return
	}
	place := "libc:getpid"
	if static {
		place = "getpid"
	}
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:first/none "+place)
	if how != "emptied" {
		return
	}
	leaveIn(t, sub.pid(), Options{Detach: true}, "p:first/guest "+strings.Replace(place, "getpid", "exit", 1))
	if err := openedLive(t, sub.pid()).Remove(t.Context(), []string{"first/none"}); err != nil {
		t.Fatal(err)
	}
}
