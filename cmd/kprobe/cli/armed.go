package cli

import (
	"context"
	"errors"
	"time"

	"kprobe/output"
	"kprobe/probe"
)

// sayArmed tells the person and the reader of the stream that the probes are in.
// Those of a command are when in is closed, which is waited for beside the trace
// until told is called.
func (o *sessionOptions) sayArmed(m *messages, in <-chan struct{}, stats func() []probe.Stats) (told func(), err error) {
	if o.quiet {
		return func() {}, nil
	}
	if len(o.command) == 0 {
		return func() {}, o.tellArmed(m, stats())
	}
	return beside(func(ctx context.Context) error {
		select {
		case <-in:
			return o.tellArmed(m, stats())
		case <-ctx.Done():
		}
		select {
		case <-in:
			return o.tellArmed(m, stats())
		default:
			return nil
		}
	}), nil
}

func (o *sessionOptions) tellArmed(m *messages, stats []probe.Stats) error {
	o.sayInjected(m)
	a := output.CountArmed(stats, time.Since(o.begun))
	if a.Events == 0 {
		return nil
	}
	m.say("%s", a.Line())
	if o.armed == nil || o.form != output.JSON {
		return nil
	}
	if err := o.armed(a); !errors.Is(err, output.ErrClosed) {
		return err
	}
	return nil // a reader that has left is noticed by the trace itself
}

// sayInjected tells what is done to calls from now on.
func (o *sessionOptions) sayInjected(m *messages) {
	if o.does != "" {
		m.say("%s", o.does)
	}
}

// writeArmed makes armed of the stream's writer.
func writeArmed(w *output.Writer) func(output.Armed) error {
	return func(a output.Armed) error {
		_, err := w.Write(a.AppendJSON(nil))
		return err
	}
}
