package area

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"kprobe/internal/procfs"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// leftChildren lists the processes that descend from one and have a memory file that
// nobody traces: those that it has made since its tracer was killed, whose memory
// is a copy of its own. Processes whose parent has ended in between aren't found.
func leftChildren(pid int) (out []int) {
	for _, kid := range procfs.Process(pid).AllChildren() {
		if m, err := FindMemfile(kid); err == nil && m != nil && !HasTracer(kid) {
			out = append(out, kid)
		}
		out = append(out, leftChildren(kid)...)
	}
	return out
}

// Forked finds what has a process's memory file beside it: children that it has made while
// nobody traced it, whose memory is a copy of its own, and processes that outlive it in its
// memory.
type Forked struct {
	area  *Area
	inode uint64     // of the memory file; 0: it wasn't found
	known []ring.Map // what was mapped, as noted last
}

// Note notes what is mapped: it is to be called before the area is taken out.
func (f *Forked) Note() {
	if h, layout, err := ring.ReadHeader(f.area.File, memory.PossibleCPUs()); err == nil {
		f.known, _ = ring.ReadMaps(f.area.File, h, layout) // none where it is damaged
	}
}

// Forked is to be asked for while the process lives.
func (a *Area) Forked() *Forked {
	f := &Forked{area: a}
	if m, err := FindMemfile(a.Proc.PID()); err == nil && m != nil {
		f.inode = m.Inode
	}
	return f
}

// Clean takes what is kprobe's out of all of them that nobody traces, but for the process
// itself while it lives.
func (f *Forked) Clean(ctx context.Context) (err error) {
	all, err := procfs.Processes()
	if err != nil || f.inode == 0 {
		return err
	}
	var tr *tracee.Tracer
	defer func() {
		if tr != nil {
			err = errors.Join(err, tr.Close())
		}
	}()
	for _, pid := range all {
		m, merr := FindMemfile(pid)
		if pid == os.Getpid() || merr != nil || m == nil || m.Inode != f.inode || HasTracer(pid) {
			continue
		}
		if tr == nil {
			if tr, err = tracee.New(); err != nil {
				return err
			}
			if err = tr.Handle(passing{}); err != nil {
				return err
			}
		}
		_, kerr := recoverOne(ctx, tr, pid, f.known, nil)
		if kerr != nil && !errors.Is(kerr, tracee.ErrGone) && !errors.Is(kerr, symbols.ErrGone) {
			err = errors.Join(err, fmt.Errorf("process %d: %w", pid, kerr))
		}
	}
	return err
}

// journaled reads which mappings the memory file of a process knows of, before they
// are taken out: the file is the same in the processes that it has made, whose own
// copies of the mappings stay. Nil where there is no file that can be read.
func journaled(pid int) []ring.Map {
	m, err := FindMemfile(pid)
	if err != nil || m == nil {
		return nil
	}
	mem, err := os.Open(procfs.Image(pid).Path("mem"))
	if err != nil {
		return nil
	}
	defer mem.Close()
	r, h, layout, err := readHeader(mem, m)
	if err != nil {
		return nil
	}
	maps, err := ring.ReadMaps(r, h, layout)
	if err != nil {
		return nil
	}
	return maps
}

// readHeader reads the header of a memory file, which r reads, through the memory of a
// process that has it mapped.
func readHeader(mem io.ReaderAt, m *symbols.Mapping) (r io.ReaderAt, h *ring.Header, l *ring.Layout, err error) {
	r = io.NewSectionReader(mem, int64(m.Start), int64(m.End-m.Start))
	h, l, err = ring.ReadHeader(r, memory.PossibleCPUs())
	return r, h, l, err
}
