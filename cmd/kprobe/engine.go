package main

import (
	"context"

	"kprobe/cmd/kprobe/cli"
	"kprobe/fetch"
	"kprobe/probe"
	"kprobe/symbols"
)

// engine is the one that probes processes.
type engine struct{}

// Attach implements cli.Engine.
func (engine) Attach(ctx context.Context, pids []int, o probe.Options) (cli.Session, error) {
	s, err := probe.Attach(ctx, pids, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Start implements cli.Engine.
func (engine) Start(ctx context.Context, c probe.Command, o probe.Options) (cli.Session, error) {
	s, err := probe.Start(ctx, c, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Inspect implements cli.Engine.
func (engine) Inspect(space *symbols.Space, p symbols.Place, each func(*probe.Listing) error) error {
	return probe.Inspect(space, p, each)
}

// Check implements cli.Engine.
func (engine) Check(space *symbols.Space, d *fetch.Def) (*probe.Checked, error) {
	return probe.Check(space, d)
}

// Live implements cli.Engine.
func (engine) Live(pid int) (cli.Live, error) {
	l, err := probe.OpenLive(pid)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// LivePIDs implements cli.Engine.
func (engine) LivePIDs() ([]int, error) { return probe.LivePIDs() }

// Inside implements cli.Engine.
func (engine) Inside(ctx context.Context, pid int, o probe.InsideOptions) (*probe.Inside, error) {
	return probe.LookInside(ctx, pid, o)
}

// Recorder implements cli.Engine.
func (engine) Recorder(pid int) (cli.Recorder, error) {
	r, err := probe.OpenRecorder(pid)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// BlackBox implements cli.Engine.
func (engine) BlackBox(name string) (cli.Recorder, []string, error) {
	r, missing, err := probe.OpenBlackBox(name)
	if err != nil {
		return nil, nil, err
	}
	return r, missing, nil
}
