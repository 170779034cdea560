package probe

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/area"
	"kprobe/probe/debugreg"
	"kprobe/symbols"
)

func watchFixture(t *testing.T, flags ...string) string {
	t.Helper()
	return fixture.Build(t, "probe_watch.c", append([]string{"-O1", "-g", "-lpthread"}, flags...)...)
}

// unwatchable reports that this machine ignores debug registers, which a program finds out by
// ptrace. Then it wants a watchpoint to be refused with that reason.
func unwatchable(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command(fixture.Build(t, "debug_registers.c")).Output()
	if s := string(out); err != nil || s != "yes\n" && s != "no\n" {
		t.Fatalf("do debug registers trap here? %q, %v", out, err)
	}
	if string(out) == "yes\n" {
		return false
	}
	sub := startSubject(t, watchFixture(t), "plain", "3")
	l := attach(t, sub.pid(), Options{}, "p:a add")
	if err := l.s.Arm(t.Context(), parseDefs(t, "w:c w@counter")); !errors.Is(err, ErrNoDebugRegisters) {
		t.Errorf("a watchpoint where there are no debug registers: %v", err)
	}
	sub.work()
	l.finish(sub.pid())
	sub.end()
	return true
}

// whereSink is a collector that also keeps where hits were.
type whereSink struct {
	collector
	at []string
}

func (c *whereSink) Hit(h *Hit) error {
	name, off, _, _, _ := h.Space.Symbolize(h.IP)
	at := fmt.Sprintf("%s+%#x", name, off)
	for _, f := range h.Stack[min(1, len(h.Stack)):] {
		name, _, _, _, _ := h.Space.Symbolize(f.Addr)
		at += " < " + name
	}
	c.mu.Lock()
	c.at = append(c.at, at)
	c.mu.Unlock()
	return c.collector.Hit(h)
}

// watchIn runs a mode of the program under definitions and gives the hits, and where
// they were; the program must print what it prints otherwise.
func watchIn(t *testing.T, prog, mode, n string, o Options, defs ...string) *whereSink {
	t.Helper()
	want := plain(t, prog, mode, n)
	sub := startSubject(t, prog, mode, n)
	sink := &whereSink{}
	l := engageInto(t, sub.pid(), o, sink, defs...)
	if mode == "blocked" { // it lays an action of its own over the fallback handler
		l.fallbacks = l.s.engine.Targets[sub.pid()].Area.Fallbacks
	}
	if got := sub.work(); got != want {
		t.Errorf("watched, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	return sink
}

// TestWatchWrites: each write of a variable is a hit, in order, with the values before
// and after it, the instruction that wrote, and its callers. Reads are none.
func TestWatchWrites(t *testing.T) {
	if unwatchable(t) {
		return
	}
	prog := watchFixture(t)
	got := watchIn(t, prog, "plain", "3", Options{}, "w:c w@counter old=$old new=$value a=$addr stack=3")
	var want []string
	last := 0
	add := func(v int) {
		want = append(want, fmt.Sprintf("c old=%d new=%d", last, v))
		last = v
	}
	for i := range 3 {
		add(last + 2)
		add(i) // set
		add(i) // same
		add(i) // pop
	}
	lines := got.all()
	for i := range lines {
		lines[i], _, _ = strings.Cut(lines[i], " a=")
	}
	if !slices.Equal(lines, want) {
		t.Errorf("hits:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	for i, fn := range []string{"add", "set", "same", "push"} {
		if i < len(got.at) && (!strings.HasPrefix(got.at[i], fn+"+") || !strings.Contains(got.at[i], " < main")) {
			t.Errorf("write %d is at %s, want in %s, called by main", i, got.at[i], fn)
		}
	}
	checkWrites(t, prog, got.at)
}

// checkWrites sees that the instructions at places write memory.
func checkWrites(t *testing.T, prog string, at []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, place := range at {
		place, _, _ = strings.Cut(place, " ")
		if seen[place] {
			continue
		}
		seen[place] = true
		fn, off, _ := strings.Cut(place, "+")
		for _, l := range inspectFile(t, prog, fn) {
			for _, in := range l.Lines {
				if fmt.Sprintf("%#x", in.Offset) == off && !strings.Contains(in.Text, "[") && !strings.Contains(in.Text, "counter") && !strings.HasPrefix(in.Text, "push") {
					t.Errorf("at %s is %q, which accesses no memory", place, in.Text)
				}
			}
		}
	}
}

// TestWatchReads: with rw reads are hits, too; with r writes alone are filtered.
func TestWatchReads(t *testing.T) {
	if unwatchable(t) {
		return
	}
	prog := watchFixture(t)
	where := func(access string) map[string]int {
		n := map[string]int{}
		for _, at := range watchIn(t, prog, "plain", "5", Options{}, "w:c "+access+"@counter").at {
			fn, _, _ := strings.Cut(at, "+")
			n[fn]++
		}
		return n
	}
	both, reads, writes := where("rw"), where("r"), where("w")
	for _, c := range []struct {
		got  map[string]int
		name string
		want map[string]int
	}{
		{both, "rw", map[string]int{"add": 10, "get": 5, "set": 5, "same": 10, "push": 10, "load": 5}},
		{reads, "r", map[string]int{"add": 5, "get": 5, "same": 5, "push": 5, "load": 5}},
		{writes, "w", map[string]int{"add": 5, "set": 5, "same": 5, "push": 5}},
	} {
		for fn, n := range c.want {
			if c.got[fn] != n {
				t.Errorf("%s: %d in %s, want %d; all %v", c.name, c.got[fn], fn, n, c.got)
			}
		}
		if len(c.got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

// TestWatchTypes: values print as the variable's type says, of members and elements too,
// and lengths are the variable's.
func TestWatchTypes(t *testing.T) {
	if unwatchable(t) {
		return
	}
	prog := watchFixture(t)
	for _, c := range []struct{ def, want string }{
		{"w:e w@first.state $old $value", "e arg1=1 arg2=0; e arg1=0 arg2=1"},
		{"w:e w@head->state v=$value", "e v=0; e v=1"},
		{"w:e w@flags[1] v=$value", "e v=1"},
		{"w:e w@byte v=$value x=$value:x8", "e v=0 x=0x0; e v=-1 x=0xff"},
		{"w:e w@paint v=$value:s32", "e v=0; e v=7"},
		{"w:e w@hidden v=$value", "e v=0; e v=1"},
		{"w:e w@text+8:8 v=+0($addr):string", `e v="i"`},
	} {
		got := strings.Join(watchIn(t, prog, "plain", "2", Options{}, c.def).all(), "; ")
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.def, got, c.want)
		}
	}
}

// TestWatchThreads: writes of every thread are hits, of those that come, too.
func TestWatchThreads(t *testing.T) {
	if unwatchable(t) {
		return
	}
	prog := watchFixture(t)
	got := watchIn(t, prog, "threads", "200", Options{}, "w:c w@counter")
	if n := len(got.all()); n != 7*200+1 {
		t.Errorf("%d hits, want %d", n, 7*200+1)
	}
	if len(got.tids) != 8 {
		t.Errorf("hits of %d threads, want 8", len(got.tids))
	}
}

// TestWatchSignals: a thread that blocks SIGTRAP is not harmed, and the program has its
// own SIGTRAPs.
func TestWatchSignals(t *testing.T) {
	if unwatchable(t) {
		return
	}
	got := watchIn(t, watchFixture(t), "blocked", "20", Options{}, "w:c w@counter")
	if n := len(got.all()); n != 40 {
		t.Errorf("%d hits, want 40", n)
	}
}

// TestWatchChildren: a forked child isn't watched unless it is followed; one that uses
// the memory is.
func TestWatchChildren(t *testing.T) {
	if unwatchable(t) {
		return
	}
	prog := watchFixture(t)
	for _, c := range []struct {
		follow bool
		want   int
	}{{false, 3 * 2}, {true, 6 * 2}} {
		got := watchIn(t, prog, "children", "6", Options{Follow: c.follow}, "w:c w@counter")
		if n := len(got.all()); n != c.want {
			t.Errorf("follow %v: %d hits, want %d", c.follow, n, c.want)
		}
	}
}

// TestWatchBesideProbes: accesses by instructions that are displaced into copies are
// those of the originals; what kprobe's own code reads for its records is none.
func TestWatchBesideProbes(t *testing.T) {
	if unwatchable(t) {
		return
	}
	prog := watchFixture(t)
	want := watchIn(t, prog, "plain", "4", Options{}, "w:c rw@counter old=$old new=$value")
	for _, o := range []Options{{}, {NoOptimize: true}} {
		var defs []string
		for _, fn := range []string{"add", "get", "set", "same", "push", "load"} {
			for i, d := range everyInstruction(t, prog, fn) {
				defs = append(defs, fmt.Sprintf("p:%s%d %s v=@counter:s64", fn, i, strings.Fields(d)[1]))
			}
		}
		sub := startSubject(t, prog, "plain", "4")
		sink := &whereSink{}
		l := engageInto(t, sub.pid(), o, sink, append(defs, "w:c rw@counter old=$old new=$value")...)
		sub.work()
		l.finish(sub.pid())
		sub.end()
		var lines, at []string
		for i, line := range sink.all() {
			if strings.HasPrefix(line, "c ") {
				lines, at = append(lines, line), append(at, sink.at[i])
			}
		}
		if !slices.Equal(lines, want.all()) {
			t.Errorf("NoOptimize %v: hits\n%s\nwant\n%s", o.NoOptimize, strings.Join(lines, "\n"), strings.Join(want.all(), "\n"))
		}
		if !slices.Equal(at, want.at) {
			t.Errorf("NoOptimize %v: at\n%s\nwant\n%s", o.NoOptimize, strings.Join(at, "\n"), strings.Join(want.at, "\n"))
		}
	}
}

// TestWatchFull: a fifth place is refused, with the names of those that have the
// registers; one that is switched off gives its own.
func TestWatchFull(t *testing.T) {
	if unwatchable(t) {
		return
	}
	prog := watchFixture(t)
	sub := startSubject(t, prog, "plain", "2")
	l := attach(t, sub.pid(), Options{}, "w:a w@counter", "w:b w@flags[0]", "w:c w@flags[1]", "w:d w@byte")
	var full *debugreg.FullError
	err := l.s.Arm(context.Background(), parseDefs(t, "w:e w@paint"))
	if !errors.As(err, &full) || full.Wanted != "kprobes/e" || strings.Join(full.Held, " ") != "kprobes/a kprobes/b kprobes/c kprobes/d" {
		t.Errorf("a fifth: %v", err)
	}
	if def := (*DefError)(nil); !errors.As(err, &def) || def.Def.Event != "e" {
		t.Errorf("a fifth: %v", def)
	}
	b := l.event("b")
	if err := l.s.Enable(false, b); err != nil {
		t.Fatal(err)
	}
	if !waitUntil(func() bool { return l.s.Arm(context.Background(), parseDefs(t, "w:e w@paint")) == nil }) {
		t.Fatal("who was switched off keeps its register")
	}
	if err := l.s.Remove(context.Background(), l.event("c")); err != nil {
		t.Fatal(err)
	}
	if err := l.s.Enable(true, b); err != nil {
		t.Fatal(err)
	}
	again := waitUntil(func() bool {
		n := 0
		_ = l.s.engine.Tracer.Do(func() error {
			for _, p := range l.s.engine.Targets[sub.pid()].Registers.Slots {
				if p != nil {
					n++
				}
			}
			return nil
		})
		return n == 4
	})
	if !again {
		t.Fatal("who was switched on again gets no register")
	}
	sub.work()
	sum := l.finish(sub.pid())
	sub.end()
	for _, st := range sum.Stats {
		want := map[string]uint64{"a": 8, "b": 1, "c": 0, "d": 2, "e": 2}[st.Event.Name]
		if st.Hits != want {
			t.Errorf("%s: %d hits, want %d", st.Event.Name, st.Hits, want)
		}
	}
}

// event finds an event of the session.
func (l *live) event(name string) *Event {
	for _, ev := range l.s.Events() {
		if ev.Name == name {
			return ev
		}
	}
	l.t.Fatalf("no event %s", name)
	return nil
}

// TestWatchRefused: what can't be watched is said before anything is touched.
func TestWatchRefused(t *testing.T) {
	prog := watchFixture(t)
	sub := startSubject(t, prog, "plain", "1")
	s, err := Attach(context.Background(), []int{sub.pid()}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ def, want string }{
		{"w w@counter+1:8", "divisible by 8"},
		{"w w@counter+2:4", "2 can be there"},
		{"w w@first", "name a member"},
		{"w w@main:4", "is code"},
		{"w w@0x10:8", "nothing is mapped"},
		{"w w@head->next->state", "nothing is mapped"},
		{"w w@mine", "each thread's own"},
		{"w w@first.nothing", "no nothing in struct conn"},
		{"w w@nothing_such", "no symbol nothing_such"},
		{"w w@counter v=nothing_such", "no variable nothing_such"},
		{"w w@counter other=first.port if other == 80 && value > 1", "Field not found"},
	} {
		var bad *fetch.SyntaxError
		if err := s.Arm(context.Background(), parseDefs(t, c.def)); !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.def, err, c.want)
		}
	}
	if m, err := area.FindMemfile(sub.pid()); m != nil || err != nil {
		t.Errorf("a memory file was laid: %v %v", m, err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	checkClean(t, sub.pid())
	sub.work()
	sub.end()
}

// TestWatchKernel: what the kernel writes for the program is no hit, and shows in the
// value before the next one.
func TestWatchKernel(t *testing.T) {
	if unwatchable(t) {
		return
	}
	got := watchIn(t, watchFixture(t), "kernel", "3", Options{}, "w:c w@counter old=$old new=$value")
	want := []string{"c old=0 new=100", "c old=100 new=101", "c old=101 new=102"}
	if !slices.Equal(got.all(), want) {
		t.Errorf("hits %q, want %q", got.all(), want)
	}
}

// TestWatchChecked: a definition is checked against a file, too.
func TestWatchChecked(t *testing.T) {
	space, err := symbols.OpenFileSpace(watchFixture(t))
	if err != nil {
		t.Fatal(err)
	}
	for def, want := range map[string]string{
		"w w@counter": "", "w w@first.rate": "", "w w@head->state": "", "w w@first": "name a member", "w w@nothing": "nothing",
	} {
		_, err := Check(space, parseDefs(t, def)[0])
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", def, err, want)
		}
	}
}
