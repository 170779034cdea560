package area

import (
	"encoding/binary"
	"errors"
	"slices"

	"kprobe/internal/untrusted"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// errNeeded says that a memory file stays, because others need it.
var errNeeded = errors.New("other detached probes, which have just come, need its memory: try again")

// HostOf returns where the memory file is whose words a memory file's detours use (memory.HeaderHost); 0 if there are none.
func HostOf(file memory.Window, l *ring.Layout) (symbols.Addr, error) {
	var b [8]byte
	_, err := file.ReadAt(b[:], l.Header.Off+memory.HeaderHost)
	return symbols.Addr(binary.LittleEndian.Uint64(b[:])), err
}

// hostOf is HostOf for a memory file of a process; 0 if it can't be read.
func hostOf(pid int, m *symbols.Mapping) symbols.Addr {
	at, _ := untrusted.Within(func() (symbols.Addr, error) {
		mem, err := memory.OpenProcess(pid)
		if err != nil {
			return 0, err
		}
		defer mem.Close()
		file := memory.Window{Mem: mem, At: m.Start}
		_, l, err := ring.ReadHeader(file, memory.PossibleCPUs())
		if err != nil {
			return 0, err
		}
		return HostOf(file, l)
	})
	return at
}

// guestsFirst orders memory files so that none comes before one that needs it.
func guestsFirst(pid int, files []*symbols.Mapping) {
	isHost := map[symbols.Addr]bool{}
	for _, m := range files {
		isHost[m.Start] = hostOf(pid, m) == m.Start
	}
	slices.SortStableFunc(files, func(a, b *symbols.Mapping) int {
		switch {
		case isHost[a.Start] == isHost[b.Start]:
			return 0
		case isHost[a.Start]:
			return 1
		}
		return -1
	})
}

// needed reports whether another memory file of a process needs one. If that isn't known, it does.
func needed(pid int, m *symbols.Mapping) bool {
	files, err := FindMemfiles(pid)
	return err != nil || slices.ContainsFunc(files, func(f *symbols.Mapping) bool { return f.Start != m.Start && hostOf(pid, f) == m.Start })
}

// emptied reports whether a memory file has no probe any more.
func emptied(pid int, m *symbols.Mapping) bool {
	none, err := untrusted.Within(func() (bool, error) {
		mem, err := memory.OpenProcess(pid)
		if err != nil {
			return false, err
		}
		defer mem.Close()
		s, err := ring.ReadSnapshot(memory.Window{Mem: mem, At: m.Start}, memory.PossibleCPUs())
		return err == nil && len(s.Probes) == 0, err
	})
	return err == nil && none
}
