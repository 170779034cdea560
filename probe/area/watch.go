package area

import (
	"errors"
	"fmt"

	"kprobe/probe/memory"
	"kprobe/probe/tracee"
)

// unwatch clears the debug registers of the stopped threads, if threads may have any set. A
// thread that could not be stopped and may have some is an error.
func (a *Area) unwatch(stopped []*tracee.Thread) error {
	noted, err := a.File.Get64(a.File.Layout.Header.Off + memory.HeaderWatched)
	if err != nil || noted == 0 {
		return err
	}
	if a.found {
		a.Proc.DropWatched()
	}
	for _, t := range stopped {
		if err := t.ClearWatches(); err != nil && !errors.Is(err, tracee.ErrGone) {
			return fmt.Errorf("take the watchpoints of thread %d: %w", t.TID(), err)
		}
	}
	for _, t := range a.Proc.AllLate() {
		if t.MayWatch() {
			return fmt.Errorf("thread %d did not stop: its watchpoints stay", t.TID())
		}
	}
	return nil
}
