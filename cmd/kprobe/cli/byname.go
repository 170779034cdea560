package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"kprobe/internal/procfs"
	"kprobe/probe"
	"kprobe/symbols/glob"
)

// findTargets fills in the processes where they are named otherwise than by -p: all
// of a name, or all that run the file of -x, as of now.
func (o *sessionOptions) findTargets(d *Deps) error {
	var is func(procfs.Task) bool
	var which string
	switch {
	case len(o.pids) > 0 || len(o.command) > 0:
		return nil
	case o.name != "":
		which, is = "has the name "+o.name, func(t procfs.Task) bool { return called(t, o.name) }
	case o.defs.exec != "":
		file, err := os.Stat(o.defs.exec)
		if err != nil {
			return misuse("%s: %v", o.defs.exec, errors.Unwrap(err))
		}
		which, is = "runs "+o.defs.exec, func(t procfs.Task) bool {
			if runs(t, file) {
				return true
			}
			now, err := os.Stat(o.defs.exec) // another may have taken its place
			return err == nil && !os.SameFile(now, file) && runs(t, now)
		}
	default:
		return nil
	}
	fs := procfs.FS(d.Proc.Root)
	list, err := fs.Processes()
	if err != nil {
		return fail(fmt.Errorf("list the processes: %w", err))
	}
	for _, pid := range list {
		if t := fs.Process(pid); !d.Proc.Own(pid) && is(t) {
			o.pids = append(o.pids, pid)
		}
	}
	o.named, o.is = true, is
	if len(o.pids) == 0 && !o.wait {
		return fail(fmt.Errorf("no process %s, or none that this user may look at", which))
	}
	slices.Sort(o.pids)
	return nil
}

// called reports whether a process has a name that matches: its own, which the kernel
// cuts at 15 bytes, or that of its file.
func called(t procfs.Task, pattern string) bool {
	comm, err := t.Comm()
	if err != nil {
		return false // gone
	}
	if glob.Match(pattern, comm, "!^") {
		return true
	}
	exe, err := os.Readlink(t.Path("exe"))
	return err == nil && glob.Match(pattern, filepath.Base(strings.TrimSuffix(exe, " (deleted)")), "!^")
}

// runs reports whether a process executes a file.
func runs(t procfs.Task, file os.FileInfo) bool {
	exe, err := os.Stat(t.Path("exe"))
	return err == nil && os.SameFile(exe, file)
}

// attach begins a session on the processes. Of those that were not named one by one, it leaves out
// a process that has ended meanwhile, also during the attempt, and, with a warning, one that kprobe
// may not trace. If none is left, the error is that of the last one.
func (o *sessionOptions) attach(ctx context.Context, d *Deps, m *messages, p probe.Options) (Session, error) {
	for {
		s, err := d.Engine.Attach(ctx, o.pids, p)
		out, refused := leftOut(err)
		if err != nil && out == 0 && o.named && ctx.Err() == nil {
			out = firstEnded(procfs.FS(d.Proc.Root), o.pids)
		}
		if !o.named || out == 0 || len(o.pids) == 1 && !o.wait {
			return s, err
		}
		rest := slices.DeleteFunc(slices.Clone(o.pids), func(pid int) bool { return pid == out })
		if len(rest) == len(o.pids) {
			return s, err
		}
		o.pids = rest
		if refused != nil {
			m.warn("left out: %v", refused)
		}
	}
}

// leftOut is the process because of which a session can't begin, and why kprobe may not trace
// it; nil: it has ended. 0 is any other error.
func leftOut(err error) (pid int, refused error) {
	var gone *probe.NoProcessError
	var denied *probe.PermissionError
	var traced *probe.TracedError
	switch {
	case errors.As(err, &gone):
		return gone.PID, nil
	case errors.As(err, &denied):
		return denied.PID, denied
	case errors.As(err, &traced):
		return traced.PID, traced
	}
	return 0, nil
}

// firstEnded is the first process of a list that has ended; 0: all are there. The error of an attachment
// doesn't always tell: a process that ends meanwhile waits for its parent, or has no mappings, or no thread.
func firstEnded(fs procfs.FS, pids []int) int {
	for _, pid := range pids {
		switch st, err := fs.Process(pid).Status(); {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
			return pid
		case err == nil && (st.State() == 'Z' || st.State() == 'X') && st.Int("Threads") <= 1:
			return pid
		}
	}
	return 0
}
