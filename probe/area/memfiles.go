package area

import (
	"os"
	"time"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// FindMemfile finds the mapping of a memory file; nil: there is none.
func FindMemfile(pid int) (*symbols.Mapping, error) {
	files, err := FindMemfiles(pid)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	return files[0], nil
}

// mostFiles bounds the memory files of a process: sessions leave one each.
const mostFiles = 64

// FindMemfiles finds the mappings of memory files: a kprobe that could not lay
// another may have left one.
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

// leftAlone reports whether a memory file is of probes that are to stay where no kprobe
// is.
func leftAlone(pid int, m *symbols.Mapping) bool {
	h := headerOf(pid, m)
	return h != nil && h.Mode&ring.ModeDetached != 0
}

// livesFor gives the kprobe whose session the memory file of a process is of, if it lives
// and isn't this one; 0: none does, or the process is a forked child of the one that the
// session is about.
func livesFor(pid int, m *symbols.Mapping) int {
	h := headerOf(pid, m)
	if h == nil || h.Mode&ring.ModeDetached != 0 || int(h.Target) != pid || int(h.Tracer) == os.Getpid() {
		return 0
	}
	lives := func() bool { return h.TracerStart != 0 && procfs.StartTime(int(h.Tracer)) == h.TracerStart }
	for until := time.Now().Add(ownerEnds); lives(); time.Sleep(ownerLook) {
		if !tracee.Ending(int(h.Tracer)) || !time.Now().Before(until) {
			return int(h.Tracer)
		}
	}
	return 0
}

// How long a kprobe that was killed may take to end, and how often it is looked for.
const (
	ownerEnds = 10 * time.Second
	ownerLook = 2 * time.Millisecond
)

// headerOf reads the header of a memory file of a process; nil where it can't be read, or
// doesn't answer.
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
