package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kprobe/output"
	"kprobe/probe"
	"kprobe/symbols"
)

func threeHits(_ context.Context, f *fake, sink probe.Sink) (probe.Summary, error) {
	err := f.hits(sink, 3)
	if errors.Is(err, probe.ErrStop) {
		return probe.Summary{Reason: probe.EndSink, Alive: f.pids}, nil
	}
	return probe.Summary{Alive: f.pids}, err
}

func TestTracePrintsHits(t *testing.T) {
	f := &fake{run: threeHits}
	r := kprobe(t, f, "", "trace", "-p", "41", "p:ev work n=%di:u32")
	want := "           redis-43      [000]      1.000002: ev: (0x1000) n="
	if r.status != 0 || r.out != want+"0\n"+want+"1\n"+want+"2\n" {
		t.Errorf("%+v", r)
	}
	if r.err != "kprobe: 3 events, 0 lost; process 41 runs on\n" {
		t.Errorf("summary: %q", r.err)
	}
	if f.closed != 1 {
		t.Errorf("closed %d times", f.closed)
	}
}

func TestTraceOptionsReachTheEngine(t *testing.T) {
	f := &fake{}
	kprobe(t, f, "", "trace", "a", "-f", "--no-optimize", "--maxactive", "7", "-v", "--", "true", "-n", "x")
	if !f.opts.Follow || !f.opts.NoOptimize || f.opts.MaxActive != 7 || f.opts.CountOnly || !f.opts.Log.Enabled(t.Context(), slog.LevelInfo) || !f.opts.Log.Enabled(t.Context(), slog.LevelWarn) || f.opts.Touched == nil {
		t.Errorf("options: %+v", f.opts)
	}
	if f.command == nil || !filepath.IsAbs(f.command.Path) || fmt.Sprint(f.command.Args) != "[true -n x]" {
		t.Errorf("command: %+v", f.command)
	}
	f = &fake{}
	kprobe(t, f, "", "profile", "a", "-p", "5,6", "-p", "6", "--pid=7")
	if fmt.Sprint(f.pids) != "[5 6 7]" || !f.opts.CountOnly || f.opts.Log.Enabled(t.Context(), slog.LevelInfo) {
		t.Errorf("pids %v, options %+v", f.pids, f.opts)
	}
}

func TestTraceLimitAndTimes(t *testing.T) {
	f := &fake{run: threeHits}
	r := kprobe(t, f, "", "trace", "-p", "41", "-n", "2", "--time", "rel", "ev")
	if strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "     0.000002: p_ev_0: ") || r.status != 0 {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, f, "", "trace", "-p", "41", "--time", "wall", "ev")
	if !strings.Contains(r.out, " 1700000000.000002: ") {
		t.Errorf("%+v", r)
	}
}

func TestTraceEndsAfterDuration(t *testing.T) {
	f := &fake{run: func(ctx context.Context, f *fake, _ probe.Sink) (probe.Summary, error) {
		<-ctx.Done()
		return probe.Summary{Reason: probe.EndContext, Alive: f.pids}, nil
	}}
	if r := kprobe(t, f, "", "trace", "-p", "41", "-t", "10ms", "ev"); r.status != 0 || f.closed != 1 || !strings.Contains(r.err, "41 runs on") {
		t.Errorf("%+v", r)
	}
}

func TestTraceJSON(t *testing.T) {
	f := &fake{run: threeHits, stats: []probe.Stats{{Event: &probe.Event{Group: "kprobes", Name: "ev"}, Hits: 5, Recorded: 3, Lost: 2, Missed: 4}}}
	r := kprobe(t, f, "", "trace", "-p", "41", "--format", "json", "-q", "p:ev work n=%di:u32")
	var types []string
	var last map[string]any
	for l := range strings.Lines(r.out) {
		last = nil
		if err := json.Unmarshal([]byte(l), &last); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		types = append(types, fmt.Sprint(last["type"]))
	}
	if fmt.Sprint(types) != "[hit hit hit lost end]" || last["events"] != 3.0 || last["lost"] != 2.0 {
		t.Errorf("%v, the end %v", types, last)
	}
	if !strings.Contains(r.err, "2 lost") {
		t.Errorf("-q hid a loss: %q", r.err)
	}
}

func TestQuietAndNothingLost(t *testing.T) {
	if r := kprobe(t, &fake{run: threeHits}, "", "trace", "-p", "41", "-q", "ev"); r.err != "" || r.status != 0 {
		t.Errorf("%+v", r)
	}
}

func TestCommandsStatus(t *testing.T) {
	tests := []struct {
		ws   syscall.WaitStatus
		want int
	}{{0, 0}, {3 << 8, 3}, {syscall.WaitStatus(syscall.SIGINT), 130}, {syscall.WaitStatus(syscall.SIGSEGV) | 0x80, 139}}
	for _, tt := range tests {
		for _, command := range []string{"trace", "profile"} {
			f := &fake{run: func(context.Context, *fake, probe.Sink) (probe.Summary, error) {
				return probe.Summary{Status: tt.ws, HasStatus: true}, nil
			}}
			if r := kprobe(t, f, "", command, "ev", "--", "true"); r.status != tt.want || !strings.Contains(r.err, "the target has ended") {
				t.Errorf("%s: status %#x gives %+v, want %d", command, uint32(tt.ws), r, tt.want)
			}
		}
	}
}

func TestTraceToFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	r := kprobe(t, &fake{run: threeHits}, "", "trace", "-p", "41", "-o", name, "ev")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if r.out != "" || strings.Count(string(text), "\n") != 3 {
		t.Errorf("standard output %q, file %q", r.out, text)
	}
	if r = kprobe(t, &fake{run: threeHits}, "", "trace", "-p", "41", "-o", name, "--rotate", "1M,2", "ev"); r.status != 0 {
		t.Errorf("%+v", r)
	}
	if again, err := os.ReadFile(name); err != nil || string(again) != string(text) {
		t.Errorf("with --rotate %q, %v, want %q", again, err, text)
	}
	for _, wrong := range [][]string{{"--rotate", "1M"}, {"-o", "-", "--rotate", "1M"}, {"-o", name, "--rotate", "1"}, {"-o", name, "--rotate", "1M,0"}, {"-o", name, "--rotate", "x"}} {
		if r := kprobe(t, &fake{run: threeHits}, "", append([]string{"trace", "-p", "41", "ev"}, wrong...)...); r.status != 2 || !strings.Contains(r.err, "--rotate") {
			t.Errorf("%v: %+v", wrong, r)
		}
	}
	r = kprobe(t, &fake{run: threeHits}, "", "trace", "-p", "41", "-o", name+"/no/such", "ev")
	if r.status != 1 || !strings.HasPrefix(r.err, "kprobe: output: ") {
		t.Errorf("%+v", r)
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name string
		fake *fake
		args []string
		err  string
	}{
		{"bad definition", &fake{}, []string{"p:ev work a=$argX"},
			"kprobe: Invalid argument number\n  p:ev work a=$argX\n              ^\n"},
		{"not to be attached", &fake{begin: errors.New("process 41: no")}, []string{"ev"}, "kprobe: process 41: no\n"},
		{"no such symbol", &fake{arm: &symbols.NotFoundError{What: "opnat", Where: "libc.so.6", Near: []string{"openat"}}}, []string{"p:ev libc:opnat"},
			"kprobe: Invalid probed address or symbol: no symbol opnat in libc.so.6; the closest: openat\n  p:ev libc:opnat\n       ^\n"},
		{"several of the name", &fake{arm: &symbols.AmbiguousError{Name: "f", Candidates: []symbols.Candidate{{Text: "f@a.c"}, {Text: "f@b.c"}}}}, []string{"f"},
			"kprobe: The symbol is not unique: f is the name of 2 functions; write one of: f@a.c, f@b.c\n  f\n  ^\n"},
		{"inside an instruction", &fake{arm: &probe.BoundaryError{Place: "f+1", Before: "f", After: "f+4"}}, []string{"p f+1"},
			"kprobe: Probe point is not an instruction boundary: f+1 is inside an instruction: the nearest boundaries are f and f+4\n  p f+1\n    ^\n"},
		{"refused", &fake{arm: &probe.RefusedError{Place: "f+2", Rule: "it is no instruction"}}, []string{"p f+2"},
			"kprobe: Failed to register probe event: f+2 can't be probed: it is no instruction\n  p f+2\n    ^\n"},
		{"no memory", &fake{arm: errors.New("no memory")}, []string{"p f"}, "kprobe: no memory\n  p f\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := kprobe(t, tt.fake, "", append([]string{"trace", "-p", "41"}, tt.args...)...)
			if r.status != 1 || r.out != "" || r.err != tt.err {
				t.Errorf("status %d, output %q\ngot\n%s\nwant\n%s", r.status, r.out, r.err, tt.err)
			}
			if tt.fake.arm != nil && tt.fake.closed != 1 {
				t.Errorf("closed %d times", tt.fake.closed)
			}
		})
	}
}

func TestFailureInJSON(t *testing.T) {
	f := &fake{run: func(context.Context, *fake, probe.Sink) (probe.Summary, error) {
		return probe.Summary{}, errors.New("memory of the target is full")
	}}
	r := kprobe(t, f, "", "trace", "-p", "41", "--json", "ev")
	want := `{"type":"error","message":"memory of the target is full"}` + "\n" + `{"type":"end","events":0,"lost":0,"filtered":0,"missed":{}}` + "\n"
	if r.status != 1 || r.out != want || r.err != "kprobe: memory of the target is full\n" {
		t.Errorf("%+v", r)
	}
}

func TestProbesThatStay(t *testing.T) {
	f := &fake{run: threeHits, close: errors.New("the process does not answer")}
	r := kprobe(t, f, "", "trace", "-p", "41", "ev")
	if r.status != 1 || r.err != "kprobe: take the probes out: probes are left in the process: the process does not answer\n" {
		t.Errorf("%+v", r)
	}
}

func TestReaderThatHasGoneIsNoFailure(t *testing.T) {
	f := &fake{run: func(_ context.Context, f *fake, _ probe.Sink) (probe.Summary, error) {
		return probe.Summary{Alive: f.pids}, fmt.Errorf("sink: %w", output.ErrClosed)
	}}
	if r := kprobe(t, f, "", "trace", "-p", "41", "ev"); r.status != 0 || strings.Contains(r.err, "closed") {
		t.Errorf("%+v", r)
	}
}

func TestIdleTraceSeesTheReaderGo(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, closed := watchReader(t.Context(), w)
	if closed() || ctx.Err() != nil {
		t.Fatal("closed too soon")
	}
	r.Close()
	<-ctx.Done()
	if !closed() {
		t.Errorf("the cause is %v", context.Cause(ctx))
	}
}

func TestProfile(t *testing.T) {
	stats := []probe.Stats{{Event: &probe.Event{Group: "kprobes", Name: "ev"}, Places: 1, Hits: 12, Recorded: 12, Missed: 3}}
	f := &fake{stats: stats}
	r := kprobe(t, f, "", "profile", "-p", "41", "ev")
	if r.status != 0 || r.out != "  ev                                                        12               3\n" {
		t.Errorf("%+v", r)
	}
	r = kprobe(t, f, "", "profile", "--json", "-p", "41", "ev")
	lines := strings.Split(r.out, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], `{"type":"armed","events":1,"jumps":1,`) ||
		!strings.HasPrefix(lines[1], `{"type":"profile","group":"kprobes","event":"ev",`) || !strings.HasPrefix(lines[2], `{"type":"end","events":12,`) {
		t.Errorf("%+v", r)
	}
}

// TestEndedWhileArming: a process that ends while its probes are put in is said to have
// ended, and not to lack what could no longer be looked up.
func TestEndedWhileArming(t *testing.T) {
	r := kprobe(t, &fake{arm: symbols.ErrNoSymbol, ended: true}, "", "trace", "-p", "41", "ev")
	if r.err != "kprobe: process 41 ended before the probes were in\n" || r.status != 1 {
		t.Errorf("status %d, %q", r.status, r.err)
	}
	r = kprobe(t, &fake{arm: symbols.ErrNoSymbol}, "", "trace", "-p", "41", "ev")
	if strings.Contains(r.err, "ended") || r.status != 1 {
		t.Errorf("of a process that lives: status %d, %q", r.status, r.err)
	}
}
