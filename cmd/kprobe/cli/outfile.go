package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kprobe/output"
)

// open gives the file to write to: that of -o, or standard output; file is nil
// where it is not known which one that is.
func (o *sessionOptions) open(d *Deps) (w *output.Writer, file *os.File, done func() error, err error) {
	if o.outputFile == "" || o.outputFile == "-" {
		file, _ = d.Out.(*os.File)
		w = output.NewWriter(d.Link.Output(d.Out))
		return w, file, w.Close, nil
	}
	if o.rotate.size > 0 {
		r, err := output.NewRotating(o.outputFile, o.rotate.size, o.rotate.keep)
		if err != nil {
			return nil, nil, nil, fail(fmt.Errorf("output: %w", err))
		}
		w = output.NewWriter(r)
		return w, nil, func() error { return errors.Join(w.Close(), r.Close()) }, nil
	}
	file, err = os.Create(o.outputFile)
	if err != nil {
		return nil, nil, nil, fail(fmt.Errorf("output: %w", err))
	}
	w = output.NewWriter(file)
	return w, file, func() error { return errors.Join(w.Close(), file.Close()) }, nil
}

// watchReader cancels the context when nobody reads the file any more, hits or
// no hits: the reader of a pipe that was closed shows as POLLERR (poll(2)).
// closed reports whether that was so.
func watchReader(ctx context.Context, f *os.File) (watched context.Context, closed func() bool) {
	if f == nil {
		return ctx, func() bool { return false }
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return ctx, func() bool { return false } // the next write will tell
	}
	// A descriptor of its own, as the file may be closed meanwhile, and a pipe
	// whose end ends the watch: no wake-up is spent on it.
	own, over := -1, [2]int{}
	cerr := conn.Control(func(fd uintptr) { own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if cerr != nil || err != nil {
		return ctx, func() bool { return false }
	}
	if err := unix.Pipe2(over[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(own)
		return ctx, func() bool { return false }
	}
	watched, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(watched, func() { _ = unix.Close(over[1]) })
	go func() {
		defer func() { _, _ = unix.Close(own), unix.Close(over[0]) }()
		fds := []unix.PollFd{{Fd: int32(own)}, {Fd: int32(over[0])}}
		n, err := unix.Poll(fds, -1)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(fds, -1)
		}
		if n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			cancel(output.ErrClosed)
		} // else it is over, or can't be watched: the next write will tell
	}()
	return watched, func() bool { return errors.Is(context.Cause(watched), output.ErrClosed) }
}

// written is a file that a flag has written.
type written struct{ flag, name string }

// eachItsFile refuses that two flags have one file written, if it is not one, as a
// terminal, that takes what comes from several.
func eachItsFile(files ...written) error {
	for i, a := range files {
		for _, b := range files[:i] {
			if a.name != "" && b.name != "" && sameFile(a.name, b.name) {
				return misuse("%s and %s name one file, %s: write to another", b.flag, a.flag, a.name)
			}
		}
	}
	return nil
}

// sameFile reports whether two names are of one file, which may not be there yet.
func sameFile(a, b string) bool {
	if x, err := os.Stat(a); err == nil {
		y, err := os.Stat(b)
		return err == nil && x.Mode().IsRegular() && os.SameFile(x, y)
	}
	there := func(name string) string {
		if folder, err := filepath.EvalSymlinks(filepath.Dir(name)); err == nil {
			name = filepath.Join(folder, filepath.Base(name))
		}
		if whole, err := filepath.Abs(name); err == nil {
			name = whole
		}
		return name
	}
	return there(a) == there(b)
}
