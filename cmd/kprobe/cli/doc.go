// Package cli is kprobe's command line. Each command has a struct of options, a function that
// turns flags into it, and a function that does the work. There is no probing logic here.
//
// Commands get everything external through Deps, so that tests of flags run no work and tests
// of the work parse no flags.
package cli

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"

	"kprobe/cmd/kprobe/facts"
	"kprobe/cmd/kprobe/pair"
	"kprobe/fetch"
	"kprobe/probe"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// Session is what the commands need of a probe.Session.
type Session interface {
	Arm(ctx context.Context, defs []*fetch.Def) error
	Run(ctx context.Context, sink probe.Sink) (probe.Summary, error)
	Close(ctx context.Context) error
	Stats() []probe.Stats
	PlaceStats() []probe.Stats
	DisablePlaces(pick func(place, module string) bool) int
	ProcessStats() []probe.ProcessStats
	Bins() []results.Bins
	Pids() []int
	// Detach leaves the processes with the probes in them.
	Detach(ctx context.Context) ([]probe.LeftOut, error)
	// CommandStatus tells, behind Close, how a started command ended, if it has.
	CommandStatus() (status syscall.WaitStatus, ended bool)
}

// Engine is package probe.
type Engine interface {
	Attach(ctx context.Context, pids []int, o probe.Options) (Session, error)
	Start(ctx context.Context, c probe.Command, o probe.Options) (Session, error)
	// Inspect lists the functions of a place, as probe.Inspect does.
	Inspect(space *symbols.Space, p symbols.Place, each func(*probe.Listing) error) error
	// Check says whether a definition can be armed, as probe.Check does.
	Check(space *symbols.Space, d *fetch.Def) (*probe.Checked, error)
	// Live finds the session of another kprobe, as probe.OpenLive does.
	Live(pid int) (Live, error)
	// LivePIDs lists the processes that have one, as probe.LivePIDs does.
	LivePIDs() ([]int, error)
	// Inside says what a process is inside of, as probe.LookInside does.
	Inside(ctx context.Context, pid int, o probe.InsideOptions) (*probe.Inside, error)
	// Recorder opens what probes that were left alone have recorded, as
	// probe.OpenRecorder does.
	Recorder(pid int) (Recorder, error)
	// BlackBox opens a kept memory file or a core dump, as probe.OpenBlackBox does.
	BlackBox(name string) (r Recorder, missing []string, err error)
}

// Deps are what commands touch of the world.
type Deps struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // Out is a terminal
	// Watched says that Err is a terminal that can write over a line.
	Watched bool
	// Size is that of the terminal, in columns and lines; nil where Out is none.
	Size   func() (width, height int)
	Stdio  [3]*os.File // what a traced command inherits; nil is /dev/null
	Engine Engine
	Proc   facts.Proc
	Link   *pair.Link // nil: no supervisor watches
	// Getenv reads the environment; nil is an empty one.
	Getenv func(name string) string
	// Now is the moment: CLOCK_MONOTONIC in nanoseconds, and the time of day.
	Now func() (mono uint64, wall time.Time)
}

// width is that of the terminal that Out is, in columns; 0 where it is none.
func (d *Deps) width() int {
	if !d.Terminal || d.Size == nil {
		return 0
	}
	width, _ := d.Size()
	return width
}
