package recorder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/internal/untrusted"
	"kprobe/probe/flight"
	"kprobe/probe/ring"
)

// lacking says which hits of a process its core dump doesn't have.
type lacking struct {
	kept    []string // the files that have them (--keep)
	away    []string // files that aren't here, and may have them
	leftOut bool     // memory files without a name: by /proc/PID/coredump_filter
	cut     bool     // memory files behind the dump's end
}

// lackingIn looks for memory files that a process had mapped and that its core dump of so many bytes doesn't have. It
// has those of a set.
func lackingIn(f *os.File, size int64, set flight.Set) (l lacking) {
	list := flight.FilesInCore(f, size)
	// Where the dump's list of files is cut off, too, nothing is known of them.
	l.cut = len(list) == 0 && flight.CutOff(f, size)
	// The filter is for all of them alike: where one is dumped, it has left out none.
	filtered := !slices.ContainsFunc(list, func(c flight.CoreFile) bool { return c.IsMemoryFile() && c.Part != flight.LeftOut })
	for i := range list {
		c := &list[i]
		has := slices.ContainsFunc(set, func(one *flight.Reader) bool { return one.Header.Base == uint64(c.Start) })
		switch {
		case has:
		case c.IsMemoryFile():
			l.leftOut = l.leftOut || filtered && c.Part == flight.LeftOut
			l.cut = l.cut || c.Part == flight.Cut
		case c.Part == flight.Whole || slices.Contains(l.kept, c.Name) || slices.Contains(l.away, c.Name):
		case isKept(c):
			l.kept = append(l.kept, c.Name)
		case mayBeKept(c) && len(l.away) < mostAway:
			l.away = append(l.away, c.Name)
		}
	}
	return l
}

// mostAway is how many files are named that may have the hits.
const mostAway = 4

// isKept reports whether a file is a memory file with a name (--keep) that is here: the process had mapped it where it
// says.
func isKept(c *flight.CoreFile) bool {
	base, err := untrusted.Within(func() (uint64, error) {
		var fs unix.Statfs_t
		if err := unix.Statfs(c.Name, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC {
			return 0, ErrNoRings // none is kept elsewhere
		}
		k, _, err := untrusted.Open(c.Name)
		if err != nil {
			return 0, err
		}
		defer k.Close()
		h, _, err := ring.ReadHeader(k, 0)
		if err != nil {
			return 0, err
		}
		return h.Base, nil
	})
	return err == nil && base == uint64(c.Start)
}

// leastKept is less than any memory file with a name has.
const leastKept = 1 << 20

// mayBeKept reports whether a file may be a memory file with a name that isn't here: it is on another machine, or in
// another mount namespace, or was removed since.
func mayBeKept(c *flight.CoreFile) bool {
	if !c.Write || c.Size < leastKept {
		return false
	}
	_, err := untrusted.Within(func() (fs.FileInfo, error) { return os.Lstat(c.Name) })
	return errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(c.Name, " (deleted)")
}

// What is said of hits that a dump doesn't have.
const (
	saysFilter = "bit 1 of /proc/PID/coredump_filter has a dump hold those of detached probes (0x33 is the default)"
	saysCut    = "the dump was cut off; with enough room (ulimit -c unlimited, space on the disk) the next has them"
)

// asError is ErrNoRings, with the reasons as far as they are known.
func (l *lacking) asError() error {
	var why []string
	if len(l.kept) > 0 {
		why = append(why, strings.Join(l.kept, ", ")+" has some (--keep)")
	}
	if l.leftOut {
		why = append(why, saysFilter)
	}
	if l.cut {
		why = append(why, saysCut)
	}
	if len(l.away) > 0 {
		why = append(why, "if --keep put them into a file, it isn't here: the process had mapped "+strings.Join(l.away, ", "))
	}
	switch {
	case len(why) == 0:
		return ErrNoRings
	case len(l.kept) > 0:
		return fmt.Errorf("%w itself; %s", ErrNoRings, strings.Join(why, "; "))
	}
	return fmt.Errorf("%w; %s", ErrNoRings, strings.Join(why, "; "))
}

// packedBy names the program that has compressed a file which begins so; "" if none of those that pack core dumps has.
func packedBy(head [len(ring.Magic)]byte) string {
	for _, p := range [...]struct{ tool, magic string }{
		{"zstd", "\x28\xb5\x2f\xfd"}, {"gzip", "\x1f\x8b"}, {"lz4", "\x04\x22\x4d\x18"}, {"xz", "\xfd7zXZ\x00"}, {"bzip2", "BZh"},
	} {
		if strings.HasPrefix(string(head[:]), p.magic) {
			return p.tool
		}
	}
	return ""
}

// Lacks says, a line each, which hits of a process its core dump doesn't have, and where they are or how the next dump
// has them.
func (h *Held) Lacks() (lines []string) {
	for _, name := range h.Kept {
		lines = append(lines, fmt.Sprintf("a core dump leaves out what --keep puts into a file: kprobe snapshot %s shows more hits of this process", name))
	}
	if h.LeftOut {
		lines = append(lines, "other probes of this process have hits that aren't in the dump: "+saysFilter)
	}
	if h.Cut {
		lines = append(lines, "other probes of this process have hits that aren't in the dump: "+saysCut)
	}
	return lines
}
