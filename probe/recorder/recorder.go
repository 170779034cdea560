// Package recorder opens the rings of probes that were left alone: in a running process, which
// notices nothing, in a memory file that was kept, or in a core dump.
package recorder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/probe/area"
	"kprobe/probe/flight"
	"kprobe/probe/memory"
	"kprobe/probe/results"
	"kprobe/probe/ring"
	"kprobe/probe/threads"
	"kprobe/symbols"
)

// ErrNone says that nobody has left probes alone in a process.
var ErrNone = errors.New("it has no detached probes (kprobe trace --detach leaves some)")

// ErrTakenOut says that the rings went while they were read.
var ErrTakenOut = errors.New("its probes were taken out while their hits were read, or it has executed another program")

// Recorder is what reads the rings of probes that were left alone in a process
// (Session.Detach). The process notices nothing of it. It is not safe for concurrent
// use.
type Recorder struct {
	PID int

	start   uint64 // of the process (procfs.StartTime)
	set     flight.Set
	mem     *os.File
	bases   []symbols.Addr
	numbers *threads.Numbers
	names   *threads.Names
	gone    bool    // the process has ended
	dump    bool    // the rings are those of a core dump
	lacks   lacking // the core dump
}

// Open opens the rings of the probes that were left alone in a process. Close
// it. Errors are ErrNone, symbols.ErrGone, symbols.ErrPermission, and those of
// flight.New.
func Open(pid int) (*Recorder, error) {
	return untrusted.Within(func() (*Recorder, error) { return open(pid) })
}

func open(pid int) (r *Recorder, err error) {
	start := procfs.StartTime(pid)
	files, err := area.FindMemfiles(pid)
	if err != nil {
		return nil, err
	}
	mem, err := memory.OpenProcess(pid)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			mem.Close()
		}
	}()
	r = &Recorder{PID: pid, start: start, mem: mem, numbers: threads.NumbersOf(pid), names: threads.NewNames(pid)}
	failed := ErrNone
	for _, m := range files {
		f, err := flight.New(memory.Window{Mem: mem, At: m.Start}, flight.Options{CPUs: memory.PossibleCPUs(), Clock: ring.SystemClock{}, Thread: r.thread})
		if err == nil && f.Header.Base != uint64(m.Start) {
			err = fmt.Errorf("%w: it says that it is mapped elsewhere", ring.ErrCorrupt)
		}
		switch {
		case err == nil:
			f.Book.PID = pid // in another namespace it has another number
			r.set, r.bases = append(r.set, f), append(r.bases, m.Start)
		case !errors.Is(err, flight.ErrNoRecorder) && !errors.Is(err, ring.ErrNotReady):
			failed = err
		}
	}
	if len(r.set) == 0 {
		return nil, failed
	}
	space, err := symbols.OpenProcess(pid, memory.Whole{Mem: mem})
	if err != nil {
		return nil, err
	}
	for _, f := range r.set {
		f.Name(space)
	}
	if !procfs.Runs(pid, start) {
		return nil, symbols.ErrGone // what was read by its number may be another process's
	}
	return r, nil
}

// Close lets go of the process's memory.
func (r *Recorder) Close() error { return r.mem.Close() }

// Snapshot gives a sink the last snapshot that a trigger has taken, in order of time: what
// the rings held at that hit. Where none was taken it is Live. Where since isn't 0 it
// leaves out what is older than that, than its last hit.
//
// Errors are those of the sink and, of a process, symbols.ErrGone and ErrTakenOut; the sink may have had hits then.
func (r *Recorder) Snapshot(ctx context.Context, since time.Duration, sink results.Sink) error {
	return r.ended(r.set.Snapshot(ctx, since, sink))
}

// Live gives a sink what the rings hold now, in order of time, of what came behind the
// last snapshot, if there is one. Where since isn't 0 it leaves out what is older than
// that. Errors are those of Snapshot.
func (r *Recorder) Live(ctx context.Context, since time.Duration, sink results.Sink) error {
	return r.ended(r.set.Live(ctx, since, sink))
}

// Follow gives a sink what Live does, and then what comes, until ctx is done, the
// sink ends it, or the probes or the process are gone.
func (r *Recorder) Follow(ctx context.Context, sink results.Sink) error {
	return r.set.Follow(ctx, sink, r.alive)
}

// ended says what a failed read of a process's rings means. Without its mapping a read fails with EIO, and the memory
// of a process that has ended reads as empty.
func (r *Recorder) ended(err error) error {
	switch {
	case r.bases == nil || !errors.Is(err, unix.EIO) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case !procfs.Runs(r.PID, r.start):
		return symbols.ErrGone
	}
	for i := range r.bases {
		if !r.there(i) {
			return ErrTakenOut
		}
	}
	return err
}

// alive reports whether the process has a memory file still: it has not ended, nor
// executed another program, and the probes are there.
func (r *Recorder) alive() bool {
	for i := range r.bases {
		if r.there(i) {
			return true
		}
	}
	return false
}

// there is alive for one memory file.
func (r *Recorder) there(i int) bool {
	h, _, err := ring.ReadHeader(memory.Window{Mem: r.mem, At: r.bases[i]}, 0)
	return err == nil && h.Created == r.set[i].Header.Created && h.Mode&ring.ModeDetached != 0
}

// thread gives a thread's number here and its name; of one that had ended before it was
// asked for nobody knows it.
func (r *Recorder) thread(tid uint32) (number int, comm string) {
	n := r.numbers.Outside(tid)
	return n, r.names.Of(uint32(n))
}

// Held tells of what a recorder holds.
type Held struct {
	PID         int
	Command     []string
	Kprobe      string // the version that has left the probes
	Host, Boot  string
	Mono        uint64 // a moment by the process's CLOCK_MONOTONIC, ns
	Wall        int64  // the same, in ns since 1970
	Definitions []string
	// Paired are the addresses of functions that have one probe at the entry and one at
	// the return.
	Paired []uint64
	Stats  []results.Stats
	// Deleted are events, GROUP/EVENT, that were deleted since, and whose hits may be there.
	Deleted []string
	// Before are the hits that were overwritten before the first look at the rings,
	// Since those that were overwritten while they were read.
	Before, Since uint64
	Unfinished    uint64        // records that were begun and never finished
	Odd           uint64        // records that are not what the book says, and were left out
	Age           time.Duration // since the probes were left
	Gone          bool          // the process has ended
	Dump          bool          // this is a core dump, and Gone says nothing
	Kept          []string      // of a dump: files that hold other hits of the process (--keep), which it leaves out
	LeftOut, Cut  bool          // of a dump: it lacks other hits, by /proc/PID/coredump_filter, or because it was cut off
	Removed       bool          // the probes were taken out of the process
	Off           bool          // a trigger has switched recording off (traceoff)
	// Rules says that the process has set seccomp rules. Since then hits ask the kernel for nothing:
	// what takes a question is a fault, or empty.
	Rules bool
	// Takes says that triggers take snapshots, Taken is how many they have taken, and TakenAt
	// when the last was, CLOCK_MONOTONIC in ns; 0 is not known.
	Takes          bool
	Taken, TakenAt uint64
	Expired        bool // the probes have switched themselves off
}

// Held counts what there is, and what isn't there any more. Errors are those of Live.
func (r *Recorder) Held() (Held, error) {
	b := r.set[0].Book
	h := Held{PID: r.PID, Command: b.Command, Kprobe: b.Kprobe, Host: b.Host, Boot: b.Boot, Mono: b.Mono, Wall: b.Wall, Gone: r.gone, Dump: r.dump, Kept: r.lacks.kept, LeftOut: r.lacks.leftOut, Cut: r.lacks.cut}
	ends := map[uint64][2]int{} // probes at the entry, and at the return
	for _, f := range r.set {
		h.Removed = h.Removed || f.Header.Mode&ring.ModeDetached == 0
		stats, err := f.Count()
		if err != nil {
			return h, r.ended(err)
		}
		h.Stats = append(h.Stats, stats...)
		state, err := f.Control()
		if err != nil {
			return h, r.ended(err)
		}
		h.Off, h.Expired, h.Rules = h.Off || state.Off, h.Expired || state.Expired, h.Rules || state.Rules
		taken, at, err := f.Taken()
		if err != nil {
			return h, r.ended(err)
		}
		h.Takes, h.Taken, h.TakenAt = h.Takes || f.Layout.Spare, h.Taken+taken, max(h.TakenAt, at)
		before, since := f.Overwritten()
		h.Before, h.Since, h.Unfinished = h.Before+before, h.Since+since, h.Unfinished+f.Unfinished()
		h.Odd += f.Odd
		listed := map[string]bool{}
		for i := range stats {
			listed[stats[i].Event.Group+"/"+stats[i].Event.Name] = true
		}
		for i := range f.Book.Probes {
			p := &f.Book.Probes[i]
			if name := p.Name(); !listed[name] {
				listed[name] = true
				h.Deleted = append(h.Deleted, name)
			}
			n := ends[p.Addr]
			if p.Return {
				n[1]++
			} else {
				n[0]++
			}
			ends[p.Addr] = n
			if len(h.Definitions) < 1000 && (i == 0 || p.Def != f.Book.Probes[i-1].Def) {
				h.Definitions = append(h.Definitions, p.Def)
			}
		}
	}
	for at, n := range ends {
		if n == [2]int{1, 1} && len(h.Paired) < mostPaired {
			h.Paired = append(h.Paired, at)
		}
	}
	slices.Sort(h.Paired)
	if now := uint64(ring.SystemClock{}.Mono()); b.Mono < now {
		h.Age = time.Duration(now - b.Mono)
	}
	return h, nil
}

// SnapshotLine is what a person is told of which hits Recorder.Snapshot gives, where
// triggers take snapshots; "": none does.
func (h *Held) SnapshotLine() string {
	switch {
	case !h.Takes:
		return ""
	case h.Taken == 0:
		return "no trigger has taken a snapshot yet: these are the newest hits"
	}
	s := "these are the hits up to the one at which a trigger took a snapshot"
	if h.Taken > 1 {
		s = fmt.Sprintf("these are the hits up to the one at which a trigger took its snapshot number %d, since the one before", h.Taken)
	}
	if now := uint64(ring.SystemClock{}.Mono()); h.TakenAt > 0 && h.TakenAt < now && h.Boot == procfs.BootID() {
		ago := time.Duration(now - h.TakenAt)
		s += fmt.Sprintf(", %v ago", ago.Round(max(ago/100, time.Microsecond).Truncate(time.Microsecond)))
	}
	return s + "; kprobe snapshot --live shows those since"
}

// mostPaired bounds Held.Paired: a list in a recording's header.
const mostPaired = 1 << 14

// Line is what a person is told behind so many hits of a snapshot, without newline.
func (h *Held) Line(n uint64) string {
	var s strings.Builder
	if n == 1 {
		s.WriteString("1 event")
	} else {
		fmt.Fprintf(&s, "%d events", n)
	}
	if h.Before > 0 {
		fmt.Fprintf(&s, "; %d older ones were overwritten before", h.Before)
	}
	if h.Since > 0 {
		fmt.Fprintf(&s, "; %d were overwritten while they were copied", h.Since)
	}
	lost, missed, limited := uint64(0), uint64(0), uint64(0)
	for i := range h.Stats {
		lost += h.Stats[i].Lost
		missed += h.Stats[i].Missed
		limited += h.Stats[i].Limited
	}
	if lost > 0 {
		fmt.Fprintf(&s, "; %d lost, for which there was no room", lost)
	}
	if limited > 0 {
		fmt.Fprintf(&s, "; %d beyond --limit", limited)
	}
	if missed > 0 {
		fmt.Fprintf(&s, "; %d missed (%s)", missed, results.WhyMissed)
	}
	if h.Unfinished > 0 {
		fmt.Fprintf(&s, "; %d not finished", h.Unfinished)
	}
	if h.Odd > 0 {
		fmt.Fprintf(&s, "; %d not what their description says", h.Odd)
	}
	if h.Off {
		s.WriteString("; a trigger has switched recording off")
	}
	if h.Rules {
		s.WriteString("; the program has set seccomp rules: what takes a question to the kernel is (fault) or empty since")
	}
	if h.Expired {
		s.WriteString("; the probes have switched themselves off, as --expire says")
	}
	if h.Removed {
		s.WriteString("; the probes were taken out")
	}
	switch {
	case h.Dump:
		fmt.Fprintf(&s, "; a core dump that has the hits of process %d", h.PID)
	case h.Gone:
		fmt.Fprintf(&s, "; process %d has ended", h.PID)
	default:
		fmt.Fprintf(&s, "; process %d runs on", h.PID)
	}
	return s.String()
}
