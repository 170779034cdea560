package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/cmd/kprobe/facts"
	"kprobe/cmd/kprobe/kept"
	"kprobe/probe"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

func live(events ...string) *fakeLive {
	l := &fakeLive{}
	for i, name := range events {
		group, event, _ := strings.Cut(name, "/")
		l.probes = append(l.probes, probe.LiveProbe{
			Group: group, Event: event, Addr: symbols.Addr(reflect.ValueOf(newStore).Pointer()),
			Tactic: plan.Breakpoint, Counts: ring.Counts{Hits: uint64(100 * (i + 1)), Missed: uint64(i)},
		})
	}
	return l
}

func TestProfileOfAnotherKprobe(t *testing.T) {
	f := &fake{lives: map[int]*fakeLive{41: live("web/a", "web/b"), 42: live("web/a")}}
	r := kprobe(t, f, "", "profile", "-p", "41")
	want := fmt.Sprintf("  %-44s %15d %15d\n  %-44s %15d %15d\n", "a", 100, 0, "b", 200, 1)
	if r.status != 0 || r.out != want || r.err != "" || f.defs != nil {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, f, "", "profile", "-p", "41,42", "--json", "--total")
	if !strings.Contains(r.out, `"event":"a","places":2,"hits":200,`) || !strings.Contains(r.out, `"type":"end"`) {
		t.Errorf("%+v", r)
	}
	if f.lives[41].closed != 2 || f.lives[42].closed != 1 {
		t.Error("a session is still open")
	}
	// One of them is traced by nobody: it is attached to, and says what is wrong.
	if r := kprobe(t, f, "", "profile", "-p", "41,43"); r.status != 2 || !strings.Contains(r.err, "no kprobe is tracing process 41,43") {
		t.Errorf("%+v", r)
	}
	if r := kprobe(t, f, "", "profile", "-p", "41", "work"); r.status != 0 || names(f.defs) != "p_work_0" {
		t.Errorf("a definition was given: %+v", r)
	}
}

func TestIntervals(t *testing.T) {
	var got []string
	for range 100 {
		l := live("web/a")
		l.dies = 4
		r := kprobe(t, &fake{lives: map[int]*fakeLive{41: l}}, "", "profile", "-p", "41", "--interval", "10ms", "--total")
		got = strings.Split(strings.TrimSpace(r.out), "\n")
		if r.status != 0 || len(got) != 4*3 && len(got) != 3*3 {
			t.Fatalf("%+v", r)
		}
		if len(got) == 4*3 {
			break
		} // else the last look came so late that the end's would say the same a moment after
	}
	if len(got) != 4*3 {
		t.Fatalf("the end is never shown: %q", got)
	}
	for i, line := range got {
		want := []string{`^# \d+\.\d`, "^  a ", "^  total "}[i%3]
		if !regexp.MustCompile(want).MatchString(line) {
			t.Errorf("line %d is %q, want %q", i, line, want)
		}
	}
	if !strings.Contains(got[1], " 110 ") || !strings.Contains(got[7], " 130 ") {
		t.Errorf("%q", got)
	}
	if r := kprobe(t, &fake{lives: map[int]*fakeLive{41: live("web/a")}}, "", "profile", "-p", "41", "--interval", "1ms"); r.status != 2 || !strings.Contains(r.err, "--interval 1ms: at least 10ms") {
		t.Errorf("%+v", r)
	}
}

func TestIntervalsWhileTracing(t *testing.T) {
	f := &fake{stats: []probe.Stats{{Event: &probe.Event{Group: "g", Name: "e"}, Hits: 7}}}
	f.run = whileRunning(func() {
		for end := time.Now().Add(time.Minute); f.asked.Load() < 3 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	})
	r := kprobe(t, f, "", "profile", "-q", "--json", "--interval", "10ms", "e", "--", "true")
	if r.status != 0 || !regexp.MustCompile(`,"time":\d+\.\d`).MatchString(r.out) || !strings.HasSuffix(r.out, "{\"type\":\"end\",\"events\":0,\"lost\":0,\"filtered\":0,\"missed\":{}}\n") {
		t.Errorf("%+v", r)
	}
}

// onTerminal runs a command line with a terminal of 80 columns for output.
func onTerminal(e Engine, args ...string) (status int, out string) {
	var o, errs bytes.Buffer
	status = Execute(context.Background(), args, &Deps{
		In: strings.NewReader(""), Out: &o, Err: &errs, Terminal: true,
		Size: func() (int, int) { return 80, 24 }, Engine: e, Proc: facts.Live(),
	})
	return status, o.String()
}

func TestLiveTableOnATerminal(t *testing.T) {
	l := live("web/a", "web/b")
	l.dies = 2
	f := &fake{lives: map[int]*fakeLive{41: l}}
	status, out := onTerminal(f, "profile", "-p", "41", "--interval", "10ms")
	if status != 0 || !strings.Contains(out, "process 41, 0 s, 2 events, ") || !strings.Contains(out, "EVENT") || !strings.Contains(out, "\x1b[4A\r") {
		t.Errorf("status %d: %q", status, out)
	}
	// A command has the terminal to itself, and the table comes at the end.
	f = &fake{stats: []probe.Stats{{Event: &probe.Event{Group: "g", Name: "e"}, Hits: 7}}}
	status, out = onTerminal(f, "profile", "e", "--", "true")
	if status != 0 || strings.Contains(out, "\x1b") || !strings.Contains(out, "g/e") {
		t.Errorf("status %d: %q", status, out)
	}
}

// What another kprobe counted before is no rate of what is seen now.
func TestRatesOfAnotherKprobe(t *testing.T) {
	l := live("web/a")
	const before = 1e15
	l.probes[0].Counts.Hits = before // each look adds 10
	l.dies = 2
	f := &fake{lives: map[int]*fakeLive{41: l}}
	r := kprobe(t, f, "", "profile", "-p", "41", "--json", "--interval", "10ms")
	var first struct {
		Hits      uint64
		PerSecond float64 `json:"per_second"`
	}
	if err := json.NewDecoder(strings.NewReader(r.out)).Decode(&first); err != nil || r.status != 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	if first.Hits != before+10 || first.PerSecond <= 0 || first.PerSecond > 10/0.01 {
		t.Errorf("10 hits in 10 ms or more: %+v", first)
	}

	l.reads = 0
	status, out := onTerminal(f, "profile", "-p", "41", "--interval", "10ms")
	titles := regexp.MustCompile(`, (\d+) hits/s`).FindAllStringSubmatch(out, -1)
	if status != 0 || len(titles) < 2 {
		t.Fatalf("status %d: %q", status, out)
	}
	// Two looks may follow each other closely on a busy machine, but not so closely.
	if rate, err := strconv.Atoi(titles[len(titles)-1][1]); err != nil || rate > before/1e4 {
		t.Errorf("in the end: %d hits/s, %v", rate, err)
	}
}

// The counters of the end are those of the end, not of the last interval.
func TestLastLookAtAnotherKprobe(t *testing.T) {
	l := live("web/a")
	f := &fake{lives: map[int]*fakeLive{41: l}}
	r := kprobe(t, f, "", "profile", "-p", "41", "--interval", "1h", "-t", "10ms")
	if want := fmt.Sprintf("  %-44s %15d %15d\n", "a", 110, 0); r.status != 0 || l.reads != 1 || !strings.HasSuffix(r.out, want) {
		t.Errorf("after %d looks: %+v", l.reads, r)
	}
}

func TestSites(t *testing.T) {
	a := live("web/a", "web/b")
	a.probes[1].Return, a.probes[1].Optimized = true, true
	a.probes[0].Disabled = true
	f := &fake{lives: map[int]*fakeLive{41: a, 42: live("kprobes/c")}}
	r := kprobe(t, f, "", "list", "--sites", "-p", "41")
	at := fmt.Sprintf("%016x", uint64(a.probes[0].Addr))
	want := at + "  k  kprobe/cmd/kprobe/cli.newStore+0x0    [DISABLED]\n" + at + "  r  kprobe/cmd/kprobe/cli.newStore+0x0    [OPTIMIZED]\n"
	if r.status != 0 || r.out != want {
		t.Errorf("%+v, want\n%s", r, want)
	}
	r = kprobe(t, f, "", "list", "--sites", "--json", "b")
	if strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, `"pid":41,"group":"web","event":"b"`) || !strings.Contains(r.out, `"tactic":"breakpoint"`) {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, f, "", "list", "--sites")
	if strings.Count(r.out, "\n") != 5 || !strings.HasPrefix(r.out, "# process 41\n") || !strings.Contains(r.out, "\n# process 42\n") {
		t.Errorf("%+v", r)
	}
	if r := kprobe(t, f, "", "list", "--sites", "-p", "43"); r.status != 1 || r.err != "kprobe: process 43: no kprobe is tracing this process, and it has no detached probes\n" {
		t.Errorf("%+v", r)
	}
	if r := kprobe(t, f, "", "list", "-p", "41"); r.status != 2 {
		t.Errorf("%+v", r)
	}
	// Of what was left it is said which way hits go, once for each way.
	a.locked = []string{"it is so", "", "it is so"}
	r = kprobe(t, f, "", "list", "--sites", "-p", "41,42")
	want = "kprobe: hits of the detached probes in process 41 are taken in restartable sequences\n" +
		"kprobe: hits of the detached probes in process 41 take locked instructions: it is so\n"
	if r.status != 0 || r.err != want {
		t.Errorf("%+v, want\n%s", r, want)
	}
	// Of a session that lets go of the process it is said whether, and why not.
	a.locked, a.letsGo = nil, true
	r = kprobe(t, f, "", "list", "--sites", "-p", "41,42")
	if want = "kprobe: process 41 is let go of: nothing traces it while nothing changes\n"; r.status != 0 || r.err != want {
		t.Errorf("%+v, want\n%s", r, want)
	}
	a.traced = "it is so"
	r = kprobe(t, f, "", "list", "--sites", "-p", "41,42")
	if want = "kprobe: process 41 stays traced for now: it is so\n"; r.status != 0 || r.err != want {
		t.Errorf("%+v, want\n%s", r, want)
	}
}

func TestSwitchingLiveEvents(t *testing.T) {
	s := newStore(t)
	s.ok("add", "p:web/a libc:read", "p:kept libc:write")
	f := &fake{lives: map[int]*fakeLive{41: live("web/a", "web/b"), 42: live("web/a")}}
	disabled := func() string {
		out := ""
		for _, pid := range []int{41, 42} {
			for _, p := range f.lives[pid].probes {
				if p.Disabled {
					out += fmt.Sprint(pid, p.Event, " ")
				}
			}
		}
		l, err := (&kept.File{Path: s.path}).Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"web/a", "kprobes/kept"} {
			if l.Disabled(name) {
				out += name + " "
			}
		}
		return strings.TrimSpace(out)
	}
	steps := []struct {
		args   []string
		status int
		say    string
		want   string
	}{
		{[]string{"disable", "a"}, 0, "", "41a 42a web/a"},
		{[]string{"enable", "-p", "42", "a"}, 0, "", "41a web/a"},
		{[]string{"disable", "b"}, 0, "", "41a 41b web/a"},
		{[]string{"disable", "kept", "nothing"}, 1, "no event matches nothing", "41a 41b web/a"},
		{[]string{"enable", "web/*"}, 0, "", ""},
		{[]string{"disable", "-p", "42", "b"}, 1, "no event matches b", ""},
		{[]string{"disable", "-p", "43", "b"}, 1, "process 43: no kprobe is tracing this process, and it has no detached probes", ""},
		{[]string{"disable", "*"}, 0, "", "41a 41b 42a web/a kprobes/kept"},
	}
	for _, step := range steps {
		s.run(f, "", step.status, step.say, step.args...)
		if got := disabled(); got != step.want {
			t.Errorf("after %q disabled are %q, want %q", step.args, got, step.want)
		}
	}
	// What could not be done for semaphores is said, and everything else is done.
	f.lives[41].blind = &probe.SemaphoreError{On: true, Err: errors.New("gdb traces it")}
	s.run(f, "", 1, "the events are enabled, but the program may skip their statically defined probes, as semaphores could not be raised: gdb traces it", "enable", "*")
	if got := disabled(); got != "" {
		t.Errorf("%q are still disabled", got)
	}
}

// A process that ends between the look for it and the look at it has nothing to
// list, whoever says so.
func TestEnded(t *testing.T) {
	d := &Deps{Engine: &fake{}}
	if _, err := d.live(1 << 22); err == nil || !ended(err) {
		t.Errorf("the process of %v has not ended", err)
	}
	for err, want := range map[error]bool{&tracee.NoProcessError{PID: 7}: true, symbols.ErrGone: true, probe.ErrNotTraced: true, symbols.ErrPermission: false} {
		if err := fmt.Errorf("process 7: %w", err); ended(err) != want {
			t.Errorf("%v: ended %v", err, !want)
		}
	}
}
