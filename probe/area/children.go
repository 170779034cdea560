package area

import (
	"io"
	"os"

	"kprobe/internal/procfs"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
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
