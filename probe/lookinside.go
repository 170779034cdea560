package probe

import (
	"context"

	"kprobe/probe/inside"
	"kprobe/probe/results"
)

// Inside says which calls the threads of a process are in, and since when.
type Inside = results.Inside

// InsideOptions configure LookInside.
type InsideOptions = inside.Options

// LookInside reports which calls the threads of a process are in at this moment. It neither
// stops nor traces the process. Errors are symbols.ErrGone and symbols.ErrPermission.
func LookInside(ctx context.Context, pid int, o InsideOptions) (*Inside, error) {
	return inside.Look(ctx, pid, o)
}
