package cli

import (
	"context"
	"errors"

	"kprobe/output"
	"kprobe/probe"
)

// recorder gives the recorder in the process of -p, where no definition is given and
// there is one; nil is none.
func (o *traceOptions) recorder(d *Deps) Recorder {
	if len(o.pids) != 1 || len(o.defs.args) > 0 || len(o.defs.files) > 0 || len(o.specs) > 0 || o.named || o.controls() {
		return nil
	}
	r, err := d.Engine.Recorder(o.pids[0])
	if err != nil {
		return nil // what is wrong with the process attaching says
	}
	return r
}

// runFollow prints what the probes that were left in a process have recorded, and then
// their hits as they come. It leaves them where they are.
func runFollow(ctx context.Context, d *Deps, m *messages, o *traceOptions, r Recorder) error {
	defer r.Close()
	sink, file, done, err := o.printer(d)
	if err != nil {
		return err
	}
	run, _, stop := watchSignals(ctx, d.Link)
	defer stop()
	if o.duration > 0 {
		timed, cancel := context.WithTimeout(run, o.duration)
		defer cancel()
		run = timed
	}
	run, _ = watchReader(run, file)
	err = r.Follow(run, sink)
	if errors.Is(err, output.ErrClosed) || errors.Is(err, probe.ErrStop) {
		err = nil
	}
	held, herr := r.Held()
	if o.form == output.JSON {
		err = both(err, closeJSON(sink.Writer, sink.Printed(), held.Stats, err))
	}
	if derr := done(); derr != nil && !errors.Is(derr, output.ErrClosed) && err == nil {
		err = derr
	}
	if err != nil {
		return fail(err)
	}
	if !o.quiet {
		held.Gone = herr != nil
		m.say("%s", held.Line(sink.Printed()))
	}
	return nil
}
