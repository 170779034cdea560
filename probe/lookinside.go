package probe

import (
	"context"

	"kprobe/probe/inside"
	"kprobe/probe/results"
)

// Inside is what the threads of a process are inside of, and since when.
type Inside = results.Inside

// InsideOptions are what LookInside takes into account.
type InsideOptions = inside.Options

// LookInside tells what the threads of a process are inside of at this moment. The
// process is neither stopped nor traced. Errors are symbols.ErrGone and
// symbols.ErrPermission.
func LookInside(ctx context.Context, pid int, o InsideOptions) (*Inside, error) {
	return inside.Look(ctx, pid, o)
}
