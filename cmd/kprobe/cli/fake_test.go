package cli

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe/cmd/kprobe/facts"
	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
	"kprobe/probe"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// fake is an engine whose one session does what the test says.
type fake struct {
	ended bool  // the process ends while its probes are put in
	begin error // of Attach and Start
	arm   error
	close error
	// run plays the trace; nil ends at once.
	run   func(ctx context.Context, s *fake, sink probe.Sink) (probe.Summary, error)
	stats []probe.Stats
	asked atomic.Int32 // how often stats were
	// places are what PlaceStats gives.
	places []probe.Stats
	// processes are what ProcessStats gives.
	processes []probe.ProcessStats
	lives     map[int]*fakeLive
	// leftOut is what Detach gives.
	leftOut []probe.LeftOut

	mu      sync.Mutex
	pids    []int
	command *probe.Command
	opts    probe.Options
	defs    []*fetch.Def
	closed  int
	shown   symbols.Place
}

func (f *fake) Attach(_ context.Context, pids []int, o probe.Options) (Session, error) {
	if f.begin != nil {
		return nil, f.begin
	}
	f.pids, f.opts = pids, o
	return f, nil
}

func (f *fake) Inside(_ context.Context, pid int, o probe.InsideOptions) (*probe.Inside, error) {
	if f.begin != nil {
		return nil, f.begin
	}
	frames := []results.InsideFrame{{Name: "inner"}, {Name: "main"}}
	for i := range o.Open {
		frames[1].Open = &o.Open[i]
	}
	return &results.Inside{PID: pid, Comm: "prog", Threads: []*results.InsideThread{{
		TID: pid, Comm: "prog", State: 'S', Since: 5e9, Call: &results.SystemCall{Name: "read", Args: "fd=0"},
		Frames: frames,
	}}}, nil
}

func (f *fake) DisablePlaces(func(place, module string) bool) int { return 0 }

func (f *fake) Start(_ context.Context, c probe.Command, o probe.Options) (Session, error) {
	if f.begin != nil {
		return nil, f.begin
	}
	f.command, f.opts = &c, o
	return f, nil
}

func (f *fake) Inspect(_ *symbols.Space, p symbols.Place, each func(*probe.Listing) error) error {
	f.shown = p
	return each(&probe.Listing{Name: "work", Lines: []probe.Line{{Offset: 0, Bytes: []byte{0x90}, Text: "nop", Probe: probe.KindBreakpoint, Why: "short"}}})
}

func (f *fake) Check(space *symbols.Space, d *fetch.Def) (*probe.Checked, error) {
	return probe.Check(space, d)
}

func (f *fake) Live(pid int) (Live, error) {
	if l := f.lives[pid]; l != nil {
		return l, nil
	}
	return nil, probe.ErrNotTraced
}

func (f *fake) LivePIDs() ([]int, error) { return slices.Sorted(maps.Keys(f.lives)), nil }

func (f *fake) Arm(_ context.Context, defs []*fetch.Def) error {
	f.defs = defs
	if f.arm != nil {
		return &probe.DefError{Def: defs[0], Err: f.arm}
	}
	return nil
}

func (f *fake) Run(ctx context.Context, sink probe.Sink) (probe.Summary, error) {
	if f.run == nil {
		return probe.Summary{Reason: probe.EndTarget}, nil
	}
	return f.run(ctx, f, sink)
}

func (f *fake) CommandStatus() (syscall.WaitStatus, bool) { return 0, false }

func (f *fake) Close(ctx context.Context) error {
	if ctx.Err() != nil {
		return errors.New("closed with a context that was done")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return f.close
}

func (f *fake) Stats() []probe.Stats {
	f.asked.Add(1)
	return f.stats
}

func (f *fake) Bins() []results.Bins { return nil }

func (f *fake) PlaceStats() []probe.Stats { return f.places }

func (f *fake) ProcessStats() []probe.ProcessStats { return f.processes }

func (f *fake) Pids() []int {
	if f.ended {
		return nil
	}
	return f.pids
}

func (f *fake) Detach(context.Context) ([]probe.LeftOut, error) { return f.leftOut, nil }

func (f *fake) BlackBox(string) (Recorder, []string, error) { return nil, nil, probe.ErrNoRings }

func (f *fake) Recorder(int) (Recorder, error) { return nil, probe.ErrNoRecorder }

// hits gives n hits of the session's first definition to the sink.
func (f *fake) hits(sink probe.Sink, n int) error {
	d := f.defs[0]
	p, err := d.Compile(nothingKnown{})
	if err != nil {
		return err
	}
	for i := range n {
		regs := &fetch.Regs{}
		regs.GPR[fetch.DI] = uint64(i)
		data, _ := p.Eval(&fetch.Context{Regs: regs}, nil)
		err := sink.Hit(&probe.Hit{
			Event: &probe.Event{Def: d, Group: d.Group, Name: d.Event}, Program: p, Data: data,
			Time: 1_000_002_000, PID: 41, TID: 43, Comm: "redis", IP: 0x1000,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type nothingKnown struct{}

func (nothingKnown) AtEntry() bool { return true }

func (nothingKnown) Data(string, string) (symbols.Addr, uint64, error) {
	return 0, 0, symbols.ErrNoSymbol
}

func (nothingKnown) FileOffset(symbols.Off) (symbols.Addr, error) { return 0, symbols.ErrNotMapped }

func (nothingKnown) Variable(string) (fetch.Variable, error) {
	return fetch.Variable{}, fetch.ErrNoDebugInfo
}

func (nothingKnown) Parameters() ([]fetch.Variable, error) { return nil, fetch.ErrNoDebugInfo }

// result is what a person sees of a run.
type result struct {
	status   int
	out, err string
}

// kprobe runs a command line over an engine, with nothing kept.
func kprobe(t *testing.T, e Engine, in string, args ...string) result {
	t.Helper()
	return keeping(t, t.TempDir()+"/events", e, in, args...)
}

// keeping is kprobe with a file of kept definitions.
func keeping(t *testing.T, events string, e Engine, in string, args ...string) result {
	t.Helper()
	return inEnv(t, map[string]string{kept.Variable: events}, e, in, args...)
}

// inEnv is kprobe in an environment.
func inEnv(t *testing.T, env map[string]string, e Engine, in string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	d := &Deps{
		In: strings.NewReader(in), Out: &out, Err: &errs,
		Engine: e, Proc: facts.Live(), Getenv: func(name string) string { return env[name] },
		Now: func() (uint64, time.Time) { return 1_000_000_000, time.Unix(1_700_000_000, 0) },
	}
	status := Execute(context.Background(), args, d)
	return result{status, out.String(), errs.String()}
}

// whileRunning plays a trace that does something else meanwhile.
func whileRunning(do func()) func(context.Context, *fake, probe.Sink) (probe.Summary, error) {
	return func(context.Context, *fake, probe.Sink) (probe.Summary, error) {
		do()
		return probe.Summary{}, nil
	}
}
