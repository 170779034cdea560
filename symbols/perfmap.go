package symbols

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
)

// How code without a file gets names
//
// Runtimes that compile while they run (V8, CPython's trampolines, the JVM on
// demand) append a line to /tmp/perf-PID.map for each piece of code: START SIZE
// NAME, numbers in hex, the name to the end of the line. It is the file that perf
// reads (linux/tools/perf/Documentation/jit-interface.txt). PID is the process's
// number in its own pid namespace, and /tmp is that of its own root. Code moves and
// memory is used again: of lines that overlap the later one is right.
//
// /tmp is anybody's: what is there is believed only if it is a regular file itself,
// no link, of the process's user or root, and was written to since the process
// began: a file that another process of that number has left names other code.

// Bounds on a process's map.
const (
	maxPerfMap   = 64 << 20 // of the newest bytes: some 700,000 lines
	perfMapPause = 100 * time.Millisecond
)

// perfMap is what a process's map says. The zero value has read nothing.
type perfMap struct {
	mu    sync.Mutex
	next  atomic.Int64  // when the next look is due, in ns; 0 before the first
	soon  atomic.Int64  // when it may be, for an address without a name
	names atomic.Uint64 // how often the names have changed
	file  fs.FileInfo   // that was read
	read  int64         // up to where
	from  int64         // from where
	end   []byte        // the last bytes before read: others, and the file was written anew
	lines []perfLine    // as they were written
	// bounds are all starts and ends, and owner is the line, by its index, that is
	// right from that bound to the next; -1 is none.
	bounds []Addr
	owner  []int32
	dump   *jitDump // it is not a map but a dump (jitdump.go); nil: a map
}

type perfLine struct {
	start, end Addr
	name       string
}

// NameAt names an address as Symbolize does (SymbolizeShort, if short). Code that no file has gets the name that the
// process itself has written to /tmp/perf-PID.map, or to a dump that it has mapped. NameAt may read that
// file, so the goroutine that traces must not call it.
func (s *Space) NameAt(a Addr, short bool) (name string, off, size uint64, m *Module, ok bool) {
	if short {
		name, off, size, m, ok = s.SymbolizeShort(a)
	} else {
		name, off, size, m, ok = s.Symbolize(a)
	}
	if t, noted := s.toldAt(a); !ok && m == nil && noted {
		return t.Name, uint64(a - t.Start), t.Size, nil, true
	}
	if ok || m != nil || s.pid == 0 || a < 1<<16 {
		return name, off, size, m, ok
	}
	for _, p := range []*perfMap{&s.perf, &s.jit} {
		p.look(s.pid, &p.next)
		l, ok := p.at(a)
		if !ok { // perhaps compiled just now
			p.look(s.pid, &p.soon)
			l, ok = p.at(a)
		}
		if ok {
			return l.name, uint64(a - l.start), uint64(l.end - l.start), nil, true
		}
	}
	return "", 0, 0, nil, false
}

// Renamed returns the number of times that NameAt's names for code without a file have changed. A caller that keeps
// names must then ask for them again.
func (s *Space) Renamed() uint64 {
	for _, p := range []*perfMap{&s.perf, &s.jit} {
		if p.next.Load() != 0 {
			p.look(s.pid, &p.next)
		}
	}
	return s.perf.names.Load() + s.jit.names.Load()
}

// look reads what is new, if a look is due.
func (p *perfMap) look(pid int, due *atomic.Int64) {
	began := time.Now()
	if began.UnixNano() < due.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if began.UnixNano() < due.Load() {
		return
	}
	refresh := p.refresh
	if p.dump != nil {
		refresh = p.refreshDump
	}
	if refresh(pid) {
		p.names.Add(1)
	}
	// A large map that grows costs a twentieth of the time at most.
	soon := 20 * time.Since(began)
	next := max(perfMapPause, soon)
	if p.file == nil {
		soon = next
	}
	now := time.Now()
	p.next.Store(now.Add(next).UnixNano())
	p.soon.Store(now.Add(soon).UnixNano())
}

// refresh reads the new part of the file, and reports whether there was one. If the file can't be opened, the known names
// stay, because the process may have ended and removed it.
func (p *perfMap) refresh(pid int) bool {
	f, info, err := openPerfMap(pid)
	if err != nil {
		return false
	}
	defer f.Close()
	size := info.Size()
	if p.file != nil && os.SameFile(p.file, info) && size == p.read && info.ModTime().Equal(p.file.ModTime()) {
		return false
	}
	if p.file == nil || !os.SameFile(p.file, info) || size < p.read || !p.goesOn(f) {
		p.lines, p.end, p.read, p.from = nil, nil, 0, 0
	}
	if size-p.from > maxPerfMap { // the newest half, so that this comes seldom
		p.from = size - maxPerfMap/2
		p.lines, p.read = nil, p.from
	}
	p.file = info
	text := make([]byte, size-p.read)
	n, err := f.ReadAt(text, p.read)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	text = text[:bytes.LastIndexByte(text[:n], '\n')+1] // the last line may still be written
	if p.read == p.from && p.from > 0 {
		first := bytes.IndexByte(text, '\n') + 1
		p.read += int64(first)
		text = text[first:]
	}
	p.read += int64(len(text))
	if len(text) == 0 {
		return false
	}
	p.end = bytes.Clone(text[max(0, len(text)-maxPerfEnd):])
	p.lines = appendPerfLines(p.lines, string(text))
	p.paint()
	return true
}

// maxPerfEnd is how many bytes show that a file only grew.
const maxPerfEnd = 256

// goesOn reports whether the file still has the bytes that were read last. The JVM writes its map anew each time that it
// is asked for it.
func (p *perfMap) goesOn(f io.ReaderAt) bool {
	b := make([]byte, len(p.end))
	n, _ := f.ReadAt(b, p.read-int64(len(b)))
	return bytes.Equal(b[:n], p.end)
}

// appendPerfLines parses lines. What isn't one is left out.
func appendPerfLines(lines []perfLine, text string) []perfLine {
	for line := range strings.Lines(text) {
		from, rest, _ := strings.Cut(line, " ")
		long, name, _ := strings.Cut(rest, " ")
		start, err1 := strconv.ParseUint(strings.TrimPrefix(from, "0x"), 16, 64)
		size, err2 := strconv.ParseUint(strings.TrimPrefix(long, "0x"), 16, 64)
		name = strings.TrimRight(name, "\r\n")
		if err1 != nil || err2 != nil || size == 0 || start+size < start || name == "" {
			continue
		}
		lines = append(lines, perfLine{Addr(start), Addr(start + size), name})
	}
	return lines
}

// paint computes which line is valid for which addresses. From the last line to the first, each gets the addresses that no
// later one has.
func (p *perfMap) paint() {
	p.bounds = make([]Addr, 0, 2*len(p.lines))
	for i := range p.lines {
		p.bounds = append(p.bounds, p.lines[i].start, p.lines[i].end)
	}
	slices.Sort(p.bounds)
	p.bounds = slices.Compact(p.bounds)
	p.owner = make([]int32, len(p.bounds))
	free := make([]int32, len(p.bounds)+1)
	for i := range free {
		free[i] = int32(i)
	}
	find := func(k int32) int32 {
		for free[k] != k {
			free[k] = free[free[k]]
			k = free[k]
		}
		return k
	}
	for i := range p.owner {
		p.owner[i] = -1
	}
	for i := len(p.lines) - 1; i >= 0; i-- {
		from, _ := slices.BinarySearch(p.bounds, p.lines[i].start)
		to, _ := slices.BinarySearch(p.bounds, p.lines[i].end)
		for k := find(int32(from)); k < int32(to); k = find(k) {
			p.owner[k], free[k] = int32(i), k+1
		}
	}
}

// at returns the line that is valid at an address.
func (p *perfMap) at(a Addr) (perfLine, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, found := slices.BinarySearch(p.bounds, a)
	if !found {
		i--
	}
	if i < 0 || p.owner[i] < 0 {
		return perfLine{}, false
	}
	return p.lines[p.owner[i]], true
}

// errForeignMap says that a map isn't trusted.
var errForeignMap = errors.New("is of another user, of an earlier process, or a link")

// openPerfMap opens a process's map.
func openPerfMap(pid int) (*os.File, fs.FileInfo, error) {
	status, err := procfs.Image(pid).Status()
	if err != nil {
		return nil, nil, procError(err)
	}
	return openForeign(pid, "/tmp/perf-"+ownNumber(pid, status)+".map", status)
}

// ownNumber is the number of a process in its own pid namespace, by which it names files.
func ownNumber(pid int, status procfs.Status) string {
	if n, nested := status.InnerNumber(); nested {
		return strconv.FormatUint(uint64(n), 10)
	}
	return strconv.Itoa(pid)
}

// openForeign opens a file that names a process's code, by its path in the process's root directory, if it is trusted.
func openForeign(pid int, path string, status procfs.Status) (*os.File, fs.FileInfo, error) {
	root := procfs.Image(pid).Path("root")
	// A symbolic link could lead to any file.
	named, err := untrusted.Within(func() (fs.FileInfo, error) { return os.Lstat(root + path) })
	if err != nil {
		return nil, nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: root + path, Err: errForeignMap}
	}
	f, info, err := untrusted.OpenIn(root, path)
	if err != nil {
		return nil, nil, err
	}
	if !os.SameFile(named, info) || !believed(info, status, pid) {
		_ = f.Close()
		return nil, nil, &fs.PathError{Op: "open", Path: root + path, Err: errForeignMap}
	}
	return f, info, nil
}

// believed reports whether a map is of the process's effective user or root, and was
// written to since the process began.
func believed(info fs.FileInfo, status procfs.Status, pid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	ids := strings.Fields(status.Field("Uid")) // real, effective, saved, of files
	if !ok || len(ids) < 2 || st.Uid != 0 && strconv.FormatUint(uint64(st.Uid), 10) != ids[1] {
		return false
	}
	const perTick = time.Second / 100 // USER_HZ
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return false
	}
	age := time.Duration(up.Nano()) - time.Duration(procfs.StartTime(pid))*perTick
	return info.ModTime().After(time.Now().Add(-age - time.Second))
}
