package probe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/detour"
	"kprobe/probe/engine"
	"kprobe/probe/planner"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// TestAbsentPages: a breakpoint's fetch of a page that the program fills itself has
// its value, where the program can fill it meanwhile; it is (fault) where the thread
// that fills it stops at a breakpoint itself. The program goes on either way, and so
// it does where the thread that fills is the one that fetches.
func TestAbsentPages(t *testing.T) {
	prog := fixture.Build(t, "absent_pages.c", "-pthread")
	start := func() *subject {
		cmd := startSubjectSaying(t, prog, "ready", "no userfaultfd")
		if cmd == nil {
			fixture.Missing(t, "userfaultfd is forbidden")
		}
		return cmd
	}
	for _, c := range []struct {
		name string
		defs []string
		want string // in each of touch's lines
	}{
		{"filled", []string{"p:touch touch v=+0($arg1):u64"}, " v=10"},
		{"filler stops", []string{"p:touch touch v=+0($arg1):u64", "p:fill fill"}, " v=(fault)"},
		{"filler fetches", []string{"p:fill fill v=+0($arg1):u64"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := start()
			l := attach(t, sub.pid(), Options{NoOptimize: true}, c.defs...)
			if got := sub.work(); got != "done 406" {
				t.Errorf("the program printed %q", got)
			}
			l.finish(sub.pid())
			sub.end()
			touched, filled := 0, 0
			for _, line := range l.sink.all() {
				if strings.HasPrefix(line, "touch") {
					touched++
					if !strings.Contains(line, c.want) {
						t.Errorf("%s, want %s", line, c.want)
					}
				} else if filled++; strings.Contains(line, "v=") && !strings.Contains(line, "v=(fault)") {
					t.Errorf("%s: there was nothing to fetch yet", line)
				}
			}
			if touched != 4 && c.want != "" || filled != 4 && c.name != "filled" {
				t.Errorf("%d and %d hits, want 4", touched, filled)
			}
		})
	}
}

// TestAbsentPagesLeft: a detached probe's fetch of a page that the program fills itself waits as the program's own load
// does, and has its value. If the program fills only what its own code asks for, the question of the detour is
// refused, and the value is (fault). The program gets its pages either way.
func TestAbsentPagesLeft(t *testing.T) {
	prog := fixture.Build(t, "absent_pages.c", "-pthread")
	for how, want := range map[string]int{"all": 406, "user": 0} {
		t.Run(how, func(t *testing.T) {
			sub := startSubjectSaying(t, prog, "ready", "no userfaultfd", how)
			if sub == nil {
				fixture.Missing(t, "userfaultfd is forbidden")
			}
			leaveIn(t, sub.pid(), Options{Detach: true}, "p:touch touch v=+0($arg1):u64")
			if got := sub.work(); got != "done 406" {
				t.Errorf("the program printed %q", got)
			}
			_, live, _ := snapshotsIn(t, sub.pid())
			sum, faults := 0, 0
			for _, line := range live {
				var v int
				if _, err := fmt.Sscanf(line, "touch %d", &v); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if sum += v; v == 0 {
					faults++
				}
			}
			if len(live) != 4 || sum != want || want == 0 && faults != 4 {
				t.Errorf("%q: the values are %d in all, want %d", live, sum, want)
			}
			sub.takenOut()
			sub.end()
		})
	}
}

// TestLatePageIsNotGone: what can't be read because its page doesn't come is not
// taken for memory that is unmapped, when kprobe leaves and when it looks for calls
// that were left: nothing is undone, and nothing forgotten.
func TestLatePageIsNotGone(t *testing.T) {
	sub := startSubjectSaying(t, fixture.Build(t, "absent_pages.c", "-pthread"), "ready", "no userfaultfd")
	if sub == nil {
		fixture.Missing(t, "userfaultfd is forbidden")
	}
	at, err := strconv.ParseUint(strings.TrimPrefix(sub.ready, "ready "), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	l := attach(t, sub.pid(), Options{}, "r:touch touch")
	err = l.s.engine.Tracer.Do(func() error {
		tg := l.s.engine.Targets[sub.pid()]
		return tg.WithStopped(t.Context(), func([]*tracee.Thread) error {
			if err := tg.Area.RestoreSlot(symbols.Addr(at)); !errors.Is(err, symbols.ErrLatePage) {
				t.Errorf("a return address in it: %v", err)
			}
			c := []engine.Change{{At: at, Old: []byte{1}, New: []byte{2}}}
			if err := tg.Rewrite(c); !errors.Is(err, symbols.ErrLatePage) || c[0].Done {
				t.Errorf("a write of it that is to be undone: %v, done %v", err, c[0].Done)
			}
			if !tg.Holds(symbols.Addr(at), []byte{int3}) {
				t.Error("a breakpoint in it is taken for gone")
			}
			if !tg.UnderWay(&planner.ExitWay{}, detour.Instance{Slot: at, Return: 1}, nil) {
				t.Error("a call whose slot is in it is taken for left")
			}
			const none = 8 // never mapped
			if err := tg.Area.RestoreSlot(none); err != nil || tg.UnderWay(&planner.ExitWay{}, detour.Instance{Slot: none, Return: 1}, nil) {
				t.Errorf("a slot without memory: %v, or its call is under way", err)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	if got := sub.work(); got != "done 406" {
		t.Errorf("the program printed %q", got)
	}
	l.finish(sub.pid())
	sub.end()
}

// TestAbsentFile: TestAbsentPages with pages of a file whose file system the program
// serves itself (FUSE), by breakpoints and by jumps.
func TestAbsentFile(t *testing.T) {
	fixture.NeedFile(t, "/dev/fuse")
	fixture.NeedFile(t, "/usr/include/fuse3/fuse.h")
	prog := fixture.Build(t, "fuse_pages.c", "-O2", "-pthread", "-I/usr/include/fuse3", "-lfuse3")
	for _, c := range []struct {
		name string
		o    Options
		defs []string
		want string // in each of touch's lines
	}{
		{"filled", Options{NoOptimize: true}, []string{"p:touch touch v=+0($arg1):u64"}, " v=1"},
		{"filled by jumps", Options{}, []string{"p:touch touch v=+0($arg1):u64", "p:fill fill", "r:filled fill"}, " v=1"},
		{"filler stops", Options{NoOptimize: true}, []string{"p:touch touch v=+0($arg1):u64", "p:fill fill", "r:filled fill"}, " v="},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := startSubjectSaying(t, prog, "ready", "no fuse")
			if sub == nil {
				fixture.Missing(t, "a file system can't be mounted")
			}
			l := attach(t, sub.pid(), c.o, c.defs...)
			if got := sub.work(); got != "done 46" {
				t.Errorf("the program printed %q", got)
			}
			l.finish(sub.pid())
			sub.end()
			hits := map[string]int{}
			for _, line := range l.sink.all() {
				name, _, _ := strings.Cut(line, " ")
				if hits[name]++; name == "touch" && !strings.Contains(line, c.want) {
					t.Errorf("%s, want %s", line, c.want)
				}
			}
			if hits["touch"] != 4 || len(c.defs) > 1 && (hits["fill"] < 4 || hits["filled"] != hits["fill"]) {
				t.Errorf("hits %v", hits)
			}
		})
	}
}
