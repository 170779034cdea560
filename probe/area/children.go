package area

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"kprobe/internal/procfs"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// leftChildren lists the descendants of a process that have a memory file and no tracer:
// children that it has forked since its tracer was killed, with a copy of its memory. orphans
// finds those whose parent has ended in between.
func leftChildren(pid int) (out []int) {
	for _, kid := range procfs.Process(pid).AllChildren() {
		if m, err := FindMemfile(kid); err == nil && m != nil && !HasTracer(kid) {
			out = append(out, kid)
		}
		out = append(out, leftChildren(kid)...)
	}
	return out
}

// orphans lists processes, except known ones, that have no tracer and whose memory is a copy of
// the memory of pid, whether or not pid lives and they descend from it. Their memory file says
// whose it was and where it was mapped; a process that has it mapped elsewhere merely reads it.
// If the session lives there are none.
func orphans(pid int, known []int) (out []int) {
	all, err := procfs.Processes()
	if err != nil {
		return nil
	}
	for _, kid := range all {
		if kid == pid || slices.Contains(known, kid) {
			continue
		}
		m, err := FindMemfile(kid)
		if err != nil || m == nil || HasTracer(kid) {
			continue
		}
		h := headerOf(kid, m)
		if h == nil || int(h.Target) != pid || uint64(m.Start) != h.Base || procfs.Runs(int(h.Tracer), h.TracerStart) {
			continue
		}
		out = append(out, kid)
	}
	return out
}

// Forked finds the other processes that have a process's memory file: children forked while
// nobody traced it, with a copy of its memory, and processes that outlive it in its memory.
type Forked struct {
	area  *Area
	inode uint64     // of the memory file; 0: it wasn't found
	known []ring.Map // what was mapped, as noted
}

// Note notes what is mapped. It must be called before the area is removed, and, if there are
// such processes, before any of its memory is unmapped.
func (f *Forked) Note() {
	if h, layout, err := ring.ReadHeader(f.area.File, memory.PossibleCPUs()); err == nil {
		maps, _ := ring.ReadMaps(f.area.File, h, layout) // none where it is damaged
		for _, m := range maps {
			i := slices.IndexFunc(f.known, func(k ring.Map) bool { return k.Addr == m.Addr && k.Size == m.Size })
			if i < 0 {
				i, f.known = len(f.known), append(f.known, m)
			}
			f.known[i] = m
		}
	}
}

// Forked returns the finder of such processes. It must be called while the process lives.
func (a *Area) Forked() *Forked {
	f := &Forked{area: a}
	if m, err := FindMemfile(a.Proc.PID()); err == nil && m != nil {
		f.inode = m.Inode
	}
	return f
}

// Has reports whether a process has the memory file.
func (f *Forked) Has(pid int) bool {
	m, err := FindMemfile(pid)
	return err == nil && m != nil && m.Inode == f.inode && pid != os.Getpid()
}

// All lists the processes that have the memory file and no tracer, in no particular order.
func (f *Forked) All() (list []int, err error) {
	all, err := procfs.Processes()
	if err != nil || f.inode == 0 {
		return nil, err
	}
	for _, pid := range all {
		if f.Has(pid) && !HasTracer(pid) {
			list = append(list, pid)
		}
	}
	return list, nil
}

// Clean removes everything of kprobe's from those processes, except from a traced one, one for
// which skip returns true, and the process itself while it lives.
func (f *Forked) Clean(ctx context.Context, skip func(pid int) bool) (err error) {
	all, err := f.All()
	if err != nil {
		return err
	}
	var tr *tracee.Tracer
	defer func() {
		if tr != nil {
			err = errors.Join(err, tr.Close())
		}
	}()
	for _, pid := range all {
		if skip(pid) {
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

// journaled returns the mappings that the memory file of a process knows. It is called before
// they are removed: children share the file, and their own copies of the mappings stay. It is
// nil if there is no readable file.
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

// readHeader reads the header of a memory file through the memory of a process that has it
// mapped. r reads the file.
func readHeader(mem io.ReaderAt, m *symbols.Mapping) (r io.ReaderAt, h *ring.Header, l *ring.Layout, err error) {
	r = io.NewSectionReader(mem, int64(m.Start), int64(m.End-m.Start))
	h, l, err = ring.ReadHeader(r, memory.PossibleCPUs())
	return r, h, l, err
}
