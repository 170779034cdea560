package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"kprobe/internal/procfs"
	"kprobe/internal/quote"
	"kprobe/internal/untrusted"
	"kprobe/probe/engine"
	"kprobe/probe/flight"
	"kprobe/probe/loader"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// HitsInSequences reports, as far as files and memory tell, whether jumps in a process will
// take their hits without locked instructions. why is "" if so, and otherwise the reason. Which
// threads have registered an rseq area is only known once they are traced.
func HitsInSequences(pid int) (why string, err error) {
	f, err := os.Open(procfs.Image(pid).Path("mem"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	mem := memory.Whole{Mem: f}
	space, err := symbols.OpenProcess(pid, mem)
	if err != nil {
		return "", err
	}
	_, why = loader.RseqOffset(space, mem)
	return why, nil
}

// HitsLocked returns one text for each recorder of the process: "" if its jumps take hits in
// restartable sequences, and otherwise the reason why they take locked instructions. It is nil
// if no probes were left alone.
func (l *Live) HitsLocked() (why []string) {
	for _, x := range append([]*Live{l}, l.more...) {
		if !x.Detached {
			continue
		}
		one, err := untrusted.Within(x.locked)
		if err != nil && errors.Is(x.ended(err), ErrNotTraced) {
			continue // it was taken out since
		}
		if err != nil {
			one = fmt.Sprintf("it can't be read: %v", err)
		}
		why = append(why, one)
	}
	return why
}

// LetsGo reports whether the session lets go of the process while nothing changes. why is the
// reason why it traces the process nevertheless, or "" if it doesn't trace it at the moment.
func (l *Live) LetsGo() (lets bool, why string) {
	if l.Detached {
		return false, ""
	}
	at := l.snap.Layout.Header.Off + memory.HeaderTraced
	var b [memory.TracedSize]byte
	for range 3 { // it may be written right now
		before := b
		if _, err := untrusted.Within(func() (int, error) { return l.file().ReadAt(b[:], at) }); err != nil {
			return false, ""
		}
		if b == before {
			break
		}
	}
	x, why := memory.LoadTraced(b[:])
	return x != memory.TracedAlways, quote.Plain(why)
}

// locked is HitsLocked for one recorder.
func (l *Live) locked() (why string, err error) {
	var n [4]byte
	if _, err := l.file().ReadAt(n[:], l.snap.Layout.Flags.Off+ring.SeqCPUs); err != nil {
		return "", err
	}
	if binary.LittleEndian.Uint32(n[:]) == 0 {
		b, err := flight.ReadBook(l.file(), l.snap.Layout)
		if err != nil {
			return "", err
		}
		if b.Locked == "" {
			return "the kprobe that detached them doesn't say why", nil
		}
		return quote.Plain(b.Locked), nil
	}
	file, layout := l.file(), l.snap.Layout
	if l.host != 0 {
		file.At = l.host
		if _, layout, err = ring.ReadHeader(file, memory.PossibleCPUs()); err != nil {
			return "", err
		}
	}
	var gate [8]byte
	if _, err := file.ReadAt(gate[:], layout.Header.Off+memory.HeaderGate); err != nil {
		return "", err
	}
	at := binary.LittleEndian.Uint64(gate[:])
	if _, err := l.mem.ReadAt(n[:], int64(at+engine.BirthsOff)); err != nil {
		return "", err
	}
	if binary.LittleEndian.Uint32(n[:]) != 0 {
		return "a task shares the memory of its maker now (vfork), or was made where its end isn't seen", nil
	}
	return "", nil
}
