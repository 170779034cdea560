package bench

import (
	"context"
	"fmt"
	"os"
	"slices"

	"kprobe/probe"
)

// Options say what to measure. The zero value is everything with one thread.
type Options struct {
	Threads []int // how many threads hit at once; each at most 64
	// Quick takes fewer runs: figures are rough.
	Quick bool
}

// kind is a row to be measured.
type kind struct {
	name, what string
	fn         string // of the subject
	floor      floorKind
	defs       []string
	opts       probe.Options
}

const fetched = " a=%di b=%si"

// kinds are the rows, in the order of the kernel's table
// (Documentation/trace/kprobes.rst, "Probe Overhead") as far as they exist
// here.
func kinds() []kind {
	traps := probe.Options{NoOptimize: true}
	return []kind{
		{name: "b", what: "breakpoint, boosted; 2 arguments", fn: "work", floor: floorEntry, defs: []string{"p:b work" + fetched}, opts: traps},
		{name: "o", what: "jump; 2 arguments", fn: "work", floor: floorEntry, defs: []string{"p:o work" + fetched}},
		{name: "o", what: "jump over several instructions; 2 arguments", fn: "pushed", floor: floorEntry, defs: []string{"p:o pushed" + fetched}},
		{name: "o", what: "jump; 2 arguments, a string of 12 bytes", fn: "work", floor: floorEntry, defs: []string{"p:o work" + fetched + " s=+0(%si):string"}},
		{name: "o", what: "jump; a filter that says no", fn: "work", floor: floorCount, defs: []string{"p:o work a=%di if a > 0x7fffffffffff"}},
		{name: "o", what: "jump; counted only", fn: "work", floor: floorCount, defs: []string{"p:o work"}, opts: probe.Options{CountOnly: true}},
		{name: "rb", what: "return, breakpoints", fn: "work", floor: floorReturn, defs: []string{"r:rb work v=$retval"}, opts: traps},
		{name: "ro", what: "return, optimized where it can be", fn: "work", floor: floorReturn, defs: []string{"r:ro work v=$retval"}},
		{name: "ro", what: "return, time at entry too", fn: "work", floor: floorLatency, defs: []string{"r:ro work v=$retval entry=$entrytime"}},
		{name: "krb", what: "entry and return, breakpoints", fn: "work", defs: []string{"p:k work" + fetched, "r:r work v=$retval"}, opts: traps},
		{name: "kro", what: "entry and return, optimized where they can be", fn: "work", defs: []string{"p:k work" + fetched, "r:r work v=$retval"}},
	}
}

// Run measures. Everything is measured in one process after the other, on the
// CPUs that this one may use, pinned. Nothing is left behind; a kind that can't
// be measured here is in the report's Skipped.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Threads) == 0 {
		o.Threads = []int{1}
	}
	for _, n := range o.Threads {
		if n < 1 || n > maxThreads {
			return nil, fmt.Errorf("%d threads: at least 1 and at most %d can be measured", n, maxThreads)
		}
	}
	dir, err := os.MkdirTemp("", "kprobe-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the program to measure: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, err := start(dir, slices.Max(o.Threads))
	if err != nil {
		return nil, err
	}
	defer p.end()
	m := &meter{p: p, o: o, report: &Report{Threads: o.Threads}}
	if err := m.floors(); err != nil {
		return nil, err
	}
	for _, k := range kinds() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.kind(ctx, &k); err != nil {
			return nil, fmt.Errorf("measure %s (%s): %w", k.name, k.what, err)
		}
	}
	for _, k := range uprobes() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.uprobe(&k); err != nil {
			m.skip(fmt.Sprintf("%s: %v", k.what, err))
		}
	}
	return m.report, nil
}
