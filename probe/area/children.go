package area

import (
	"cmp"
	"context"
	"encoding/binary"
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
	inode uint64  // of the memory file; 0: it wasn't found
	known journal // as noted
}

// Note notes what is mapped. It must be called before the area is removed, and, if there are
// such processes, before any of its memory is unmapped.
func (f *Forked) Note() { f.known.note(f.area.File, f.area.Proc) }

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
		_, kerr := recoverOne(ctx, tr, pid, journals{f.inode: f.known}, nil)
		if kerr != nil && !hasEnded(kerr) {
			err = errors.Join(err, fmt.Errorf("process %d: %w", pid, kerr))
		}
	}
	return err
}

// journals are what memory files know, by the files' inodes.
type journals map[uint64]journal

// journal is what a memory file knows until what it is about is removed from a process. Forked processes share the
// file, and have copies of it all.
type journal struct {
	maps                   []ring.Map
	fallback, fallbackData uint64 // memory.HeaderFallback and memory.HeaderFallbackData
	// pools are the return instances (memory.HeaderPools), by Start and End.
	pools []symbols.Mapping
}

// note notes what the file knows now. What is noted already stays.
func (j *journal) note(r io.ReaderAt, mem symbols.Memory) {
	h, layout, err := ring.ReadHeader(r, memory.PossibleCPUs())
	if err != nil {
		return
	}
	maps, _ := ring.ReadMaps(r, h, layout) // none where it is damaged
	for _, m := range maps {
		i := slices.IndexFunc(j.maps, func(k ring.Map) bool { return k.Addr == m.Addr && k.Size == m.Size })
		if i < 0 {
			i, j.maps = len(j.maps), append(j.maps, m)
		}
		j.maps[i] = m
	}
	word := func(at int64, w *uint64) {
		var b [8]byte
		if _, err := r.ReadAt(b[:], layout.Header.Off+at); err == nil {
			*w = cmp.Or(binary.LittleEndian.Uint64(b[:]), *w)
		}
	}
	var first uint64
	word(memory.HeaderFallback, &j.fallback)
	word(memory.HeaderFallbackData, &j.fallbackData)
	word(memory.HeaderPools, &first)
	for at := symbols.Addr(first); at != 0 && len(j.pools) < mostPools; {
		known := func(m symbols.Mapping) bool { return m.Start == at }
		next, end, err := poolAt(mem, at)
		if err != nil || slices.ContainsFunc(j.pools, known) {
			return
		}
		j.pools = append(j.pools, symbols.Mapping{Start: at, End: end})
		at = next
	}
}

// journaled returns what the memory files of a process know. It is called before that is removed.
// It is nil if there is no readable file.
func journaled(pid int) (known journals) {
	files, err := FindMemfiles(pid)
	if err != nil || len(files) == 0 {
		return nil
	}
	mem, err := os.Open(procfs.Image(pid).Path("mem"))
	if err != nil {
		return nil
	}
	defer mem.Close()
	known = journals{}
	for _, m := range files {
		var j journal
		j.note(io.NewSectionReader(mem, int64(m.Start), int64(m.End-m.Start)), memory.Whole{Mem: mem})
		known[m.Inode] = j
	}
	return known
}

// readHeader reads the header of a memory file through the memory of a process that has it
// mapped. r reads the file.
func readHeader(mem io.ReaderAt, m *symbols.Mapping) (r io.ReaderAt, h *ring.Header, l *ring.Layout, err error) {
	r = io.NewSectionReader(mem, int64(m.Start), int64(m.End-m.Start))
	h, l, err = ring.ReadHeader(r, memory.PossibleCPUs())
	return r, h, l, err
}
