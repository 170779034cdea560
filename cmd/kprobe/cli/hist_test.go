package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"kprobe/output"
	"kprobe/probe"
)

// calls gives n hits of the first definition.
func calls(n int) func(context.Context, *fake, probe.Sink) (probe.Summary, error) {
	return func(_ context.Context, f *fake, sink probe.Sink) (probe.Summary, error) {
		err := f.hits(sink, n)
		f.stats = []probe.Stats{{Event: &probe.Event{Def: f.defs[0], Name: "w"}, Hits: uint64(n), Recorded: uint64(n)}}
		return probe.Summary{Stats: f.stats, Alive: []int{41}}, err
	}
}

func TestHist(t *testing.T) {
	r := kprobe(t, &fake{run: calls(3)}, "", "trace", "-p", "41", "--hist", "n.buckets=2", "p:w work n=$arg1:u32")
	if r.status != 0 || strings.Contains(r.out, "redis") || r.err != "kprobe: 3 events, 0 lost; process 41 runs on\n" ||
		!strings.Contains(r.out, "{ n: ~ 2-3 } hitcount:          1\n{ n: ~ 0-1 } hitcount:          2\n\nTotals:\n    Hits: 3\n") {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, &fake{run: calls(3)}, "", "trace", "-p", "41", "--hist", "n", "--hist", "common_cpu", "--lines", "p:w work n=$arg1:u32")
	if r.status != 0 || strings.Count(r.out, "redis-43") != 3 || strings.Count(r.out, "# event histogram") != 2 ||
		strings.Index(r.out, "# event") < strings.LastIndex(r.out, "redis") {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, &fake{run: calls(2)}, "", "trace", "-p", "41", "--json", "-q", "--hist", "n", "p:w work n=$arg1:u32")
	if r.status != 0 || !strings.HasPrefix(r.out, `{"type":"hist",`) || !strings.HasSuffix(r.out, "\n"+`{"type":"end","events":2,"lost":0,"filtered":0,"missed":{}}`+"\n") || r.err != "" {
		t.Errorf("%+v", r)
	}
}

// TestCountersOfLeftBehind: what was counted is shown although the probes could not be removed.
func TestCountersOfLeftBehind(t *testing.T) {
	for _, c := range []struct {
		run  func(context.Context, *fake, probe.Sink) (probe.Summary, error)
		args []string
		want string
	}{
		{calls(3), []string{"profile", "-p", "41", "p:w work"}, " 3 "},
		{calls(3), []string{"trace", "-p", "41", "--hist", "n", "p:w work n=$arg1:u32"}, "    Hits: 3\n"},
		{returns(t, 10, 20, 900), []string{"profile", "-q", "--latency", "-p", "41", "work"}, "{ latency: ~ 512-1023 } hitcount:          1\n"},
	} {
		r := kprobe(t, &fake{run: c.run, close: errors.New("the process does not answer")}, "", c.args...)
		if r.status != 1 || !strings.Contains(r.out, c.want) || r.err != "kprobe: take the probes out: probes are left in the process: the process does not answer\n" {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}

func TestHistErrors(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--hist", "size", "p:w work n=$arg1 m=$arg2"}, ExitFailure, "kprobe: histogram size: Couldn't find field: size; the values are n, m\n"},
		{[]string{"--hist", "n,m", "p:a work n=$arg1", "p:b work m=$arg1"}, ExitFailure, "kprobe: histogram n,m: Couldn't find field: n, m; no one definition has all of them\n"},
		{[]string{"--hist", "n", "work"}, ExitFailure, "kprobe: histogram n: Couldn't find field: n; no definition fetches a value\n"},
		{[]string{"--hist", "stacktrace", "p work"}, ExitFailure, "Couldn't find field: common_stacktrace; end a definition with stack=N to record N frames\n"},
		{[]string{"--hist", "n.execname", "p work n=$arg1"}, ExitMisuse, "Invalid field modifier: n.execname\n"},
		{[]string{"--lines", "work"}, ExitMisuse, "--lines and --interval go with --hist\n"},
		{[]string{"--interval", "1s", "work"}, ExitMisuse, "--lines and --interval go with --hist\n"},
		{[]string{"--hist", "n", "--interval", "1ms", "p work n=$arg1"}, ExitMisuse, "--interval 1ms: at least 10ms\n"},
	} {
		r := kprobe(t, &fake{}, "", append([]string{"trace", "-p", "41"}, c.args...)...)
		if r.status != c.status || !strings.Contains(r.err, c.want) || r.out != "" {
			t.Errorf("%v: %+v, want %s", c.args, r, c.want)
		}
	}
	r := kprobe(t, &fake{}, "", "trace", "-p", "41", "--json", "--hist", "n", "work")
	if r.status != ExitFailure || !strings.HasPrefix(r.out, `{"type":"error",`) {
		t.Errorf("%+v", r)
	}
}

// TestHistOfAllArguments says that what $arg* and jprobes fetch is known only
// when they are armed.
func TestHistOfAllArguments(t *testing.T) {
	for _, def := range []string{"p work $arg*", "j work"} {
		spec, err := output.ParseHist("size")
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{}
		if r := kprobe(t, f, "", "trace", "-p", "41", "--hist", "size", def); r.status != 0 || len(f.defs) != 1 || !spec.For(f.defs[0]) {
			t.Errorf("%s: %+v", def, r)
		}
	}
}
