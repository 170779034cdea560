package area

import (
	"os"
	"slices"
	"time"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// FindMemfile returns the mapping of a memory file; nil if there is none.
func FindMemfile(pid int) (*symbols.Mapping, error) {
	files, err := FindMemfiles(pid)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	return files[0], nil
}

// mostFiles bounds the memory files of a process: sessions leave one each.
const mostFiles = 64

// FindMemfiles returns the mappings of all memory files in a process. Each session has one of
// its own, and may leave it behind.
func FindMemfiles(pid int) (files []*symbols.Mapping, err error) {
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		return nil, err
	}
	for i := range maps {
		if len(files) < mostFiles && memory.IsFile(pid, &maps[i]) {
			files = append(files, &maps[i])
		}
	}
	return files, nil
}

// hasFile reports whether a memory file is still mapped in a process where it was found.
func hasFile(pid int, m *symbols.Mapping) bool {
	files, err := FindMemfiles(pid)
	return err != nil || slices.ContainsFunc(files, func(f *symbols.Mapping) bool { return f.Start == m.Start && f.Inode == m.Inode })
}

// leftAlone reports whether a memory file is that of probes that are to stay without a kprobe.
func leftAlone(pid int, m *symbols.Mapping) bool {
	h := headerOf(pid, m)
	return h != nil && h.Mode&ring.ModeDetached != 0
}

// livesFor returns the kprobe, other than this one, whose session uses the memory file of a
// process, if it lives. It returns 0 if none does, or if the process is a forked child of the
// session's process.
func livesFor(pid int, m *symbols.Mapping) int {
	h := headerOf(pid, m)
	if h == nil || h.Mode&ring.ModeDetached != 0 || int(h.Target) != pid || int(h.Tracer) == os.Getpid() {
		return 0
	}
	lives := func() bool { return procfs.Runs(int(h.Tracer), h.TracerStart) }
	for until := time.Now().Add(ownerEnds); lives(); time.Sleep(ownerLook) {
		if !tracee.Ending(int(h.Tracer)) || !time.Now().Before(until) {
			return int(h.Tracer)
		}
	}
	return 0
}

// How long a killed kprobe may take to end, and how often this is checked.
const (
	ownerEnds = 10 * time.Second
	ownerLook = 2 * time.Millisecond
)

// headerOf reads the header of a memory file of a process; nil if it can't be read, or the read
// takes too long.
func headerOf(pid int, m *symbols.Mapping) *ring.Header {
	h, err := untrusted.Within(func() (*ring.Header, error) {
		mem, err := os.Open(procfs.Image(pid).Path("mem"))
		if err != nil {
			return nil, err
		}
		defer mem.Close()
		_, h, _, err := readHeader(mem, m)
		return h, err
	})
	if err != nil {
		return nil
	}
	return h
}
