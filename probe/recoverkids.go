package probe

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kprobe/probe/ring"
)

// heirs lists the processes that descend from one and have a memory file that
// nobody traces: those that it has made since its tracer was killed, whose memory
// is a copy of its own. Processes whose parent has ended in between aren't found.
func heirs(pid int) (out []int) {
	for _, kid := range childrenOf(pid) {
		if m, err := findMemfile(kid); err == nil && m != nil && !hasTracer(kid) {
			out = append(out, kid)
		}
		out = append(out, heirs(kid)...)
	}
	return out
}

// childrenOf lists a process's children, of which each belongs to the thread
// that made it.
func childrenOf(pid int) (out []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is one
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(b)) {
			if kid, err := strconv.Atoi(field); err == nil {
				out = append(out, kid)
			}
		}
	}
	return out
}

// journaled reads which mappings the memory file of a process knows of, before they
// are taken out: the file is the same in the processes that it has made, whose own
// copies of the mappings stay. Nil where there is no file that can be read.
func journaled(pid int) []ring.Map {
	m, err := findMemfile(pid)
	if err != nil || m == nil {
		return nil
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil
	}
	defer mem.Close()
	r := io.NewSectionReader(mem, int64(m.Start), int64(m.End-m.Start))
	h, layout, err := ring.ReadHeader(r)
	if err != nil {
		return nil
	}
	maps, err := ring.ReadMaps(r, h, layout)
	if err != nil {
		return nil
	}
	return maps
}
