package symbols

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"kprobe/internal/procfs"
)

// Mapping is one line of /proc/PID/maps (proc_pid_maps(5)).
type Mapping struct {
	Start, End                Addr // End is the first address behind it
	Read, Write, Exec, Shared bool
	Off                       Off // of Start in the file; 0 for anonymous memory
	Major, Minor              uint32
	Inode                     uint64 // 0 for anonymous memory
	// Path is the file as its process's mount namespace names it, a bracketed
	// name ("[heap]"), or "". The kernel's escape of a line feed is undone and
	// the mark " (deleted)" is cut off.
	Path    string
	Deleted bool // the file was unlinked or replaced since it was mapped
}

// Contains reports whether a lies in the mapping.
func (m Mapping) Contains(a Addr) bool { return m.Start <= a && a < m.End }

// Perms returns the permissions as /proc/PID/maps prints them, such as "r-xp".
func (m Mapping) Perms() string {
	b := []byte("----")
	set := func(i int, on bool, c byte) {
		if on {
			b[i] = c
		}
	}
	set(0, m.Read, 'r')
	set(1, m.Write, 'w')
	set(2, m.Exec, 'x')
	b[3] = 'p'
	set(3, m.Shared, 's')
	return string(b)
}

// IsFile reports whether a file is mapped, rather than anonymous memory or
// one of the kernel's own areas.
func (m Mapping) IsFile() bool { return m.Inode != 0 && strings.HasPrefix(m.Path, "/") }

// ReadMaps reads the mappings of a process in ascending order of addresses.
// Its errors are ErrGone when the process is no more and ErrPermission.
// A process that is a zombie has no mappings and no error.
func ReadMaps(pid int) ([]Mapping, error) {
	text, err := os.ReadFile(procfs.Process(pid).Path("maps"))
	if len(text) == 0 {
		if tid := procfs.Living(pid); tid != pid {
			text, err = os.ReadFile(procfs.Process(tid).Path("maps"))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", pid, procError(err))
	}
	maps, err := ParseMaps(text)
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", pid, err)
	}
	return maps, nil
}

// ParseMaps parses the contents of a maps file. The first line that has not
// the form START-END PERMS OFFSET MAJOR:MINOR INODE [PATH] makes it fail with
// ErrBadMaps, with what it parsed before.
func ParseMaps(text []byte) ([]Mapping, error) {
	maps := make([]Mapping, 0, bytes.Count(text, []byte{'\n'})+1)
	last := "" // consecutive lines mostly name the same file
	for n := 1; len(text) > 0; n++ {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		m, path, ok := parseMapping(line)
		if !ok {
			return maps, fmt.Errorf("line %d, %q: %w", n, line, ErrBadMaps)
		}
		if rest, cut := bytes.CutSuffix(path, []byte(" (deleted)")); cut {
			m.Deleted, path = true, rest
		}
		if string(path) != last {
			last = strings.ReplaceAll(string(path), `\012`, "\n")
		}
		m.Path = last
		maps = append(maps, m)
	}
	return maps, nil
}

func parseMapping(line []byte) (m Mapping, path []byte, ok bool) {
	s := scanner{rest: line, ok: true}
	m.Start = Addr(s.number(16, 64, '-'))
	m.End = Addr(s.number(16, 64, ' '))
	p := s.field(' ')
	m.Off = Off(s.number(16, 64, ' '))
	m.Major = uint32(s.number(16, 32, ':'))
	m.Minor = uint32(s.number(16, 32, ' '))
	m.Inode = s.number(10, 64, ' ')
	if !s.ok || len(p) != 4 || m.Start > m.End {
		return Mapping{}, nil, false
	}
	m.Read, m.Write, m.Exec, m.Shared = p[0] == 'r', p[1] == 'w', p[2] == 'x', p[3] == 's'
	return m, bytes.TrimLeft(s.rest, " "), true
}

// scanner takes fields off the front of a line; ok stays false after the
// first that is not there.
type scanner struct {
	rest []byte
	ok   bool
}

// field takes what stands before the separator; the last field may end with
// the line instead.
func (s *scanner) field(sep byte) []byte {
	if i := bytes.IndexByte(s.rest, sep); i >= 0 {
		f := s.rest[:i]
		s.rest = s.rest[i+1:]
		return f
	}
	f := s.rest
	s.rest = nil
	return f
}

func (s *scanner) number(base uint64, bits uint, sep byte) uint64 {
	f := s.field(sep)
	if len(f) == 0 {
		s.ok = false
	}
	var v uint64
	for _, c := range f {
		d := uint64(99)
		switch {
		case '0' <= c && c <= '9':
			d = uint64(c - '0')
		case 'a' <= c && c <= 'f':
			d = uint64(c-'a') + 10
		}
		if d >= base || v > (^uint64(0)>>(64-bits)-d)/base {
			s.ok = false
			return 0
		}
		v = v*base + d
	}
	return v
}

// procError turns what opening or reading a file of /proc/PID gives into
// ErrGone or ErrPermission, with the cause kept.
func procError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%w (%w)", ErrGone, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (%w)", ErrPermission, err)
	}
	return err
}
