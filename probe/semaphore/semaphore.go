// Package semaphore raises and lowers the counters of statically defined probes.
//
// A program may skip the place of such a probe, and what it would compute for its
// arguments, while a counter in its data is 0 (sys/sdt.h). Whoever listens adds one,
// and takes one away at the end: other tracers do so too, so nobody knows what it is
// but for his own part. A session's part is one, however many of its probes are
// there; none of those that are switched off.
//
// The parts are noted in the process's own memory, on pages that it alone has: a
// child of fork has a copy of them as it has one of the counters, and what is done
// for one is not done for the other. An entry goes through these states:
//
//	free      all zeros
//	raising   the counter is what it was, or one more; the entry has what it was
//	raised    one of what the counter has is kprobe's
//	lowering  the counter is what the entry has, or one less
//
// The counter is read and written while the program's threads stand still, and with
// the entry's next state in one system call, so that a kprobe that is killed leaves
// one of the two states that the entry tells apart.
//
// All functions are for the tracer's thread, and for processes that stand still.
package semaphore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// State is that of an entry.
type State uint16

// The states.
const (
	Free State = iota
	Raising
	Raised
	Lowering
)

// EntrySize is how large an entry is, in bytes.
const EntrySize = 32

// Layout of an entry, whose first word is the counter's address.
const (
	entryInode  = 8
	entryState  = 16
	entryBefore = 18
)

// Entry is what is noted of a counter.
type Entry struct {
	Counter symbols.Addr
	Inode   uint64 // of the file in which the counter is
	State   State
	Before  uint16 // of Raising and Lowering: what the counter was
}

// Encode gives the entry as it lies in the process.
func (e *Entry) Encode() []byte {
	b := make([]byte, EntrySize)
	binary.LittleEndian.PutUint64(b, uint64(e.Counter))
	binary.LittleEndian.PutUint64(b[entryInode:], e.Inode)
	binary.LittleEndian.PutUint16(b[entryState:], uint16(e.State))
	binary.LittleEndian.PutUint16(b[entryBefore:], e.Before)
	return b
}

// Decode reads an entry of EntrySize bytes.
func Decode(b []byte) Entry {
	le := binary.LittleEndian
	return Entry{
		Counter: symbols.Addr(le.Uint64(b)), Inode: le.Uint64(b[entryInode:]),
		State: State(le.Uint16(b[entryState:])), Before: le.Uint16(b[entryBefore:]),
	}
}

// counterAt reads the counter at an address. An error says that it can't be one: it is
// in no private memory that the program may write to and doesn't execute.
func counterAt(p *tracee.Process, at symbols.Addr, maps []symbols.Mapping) (n uint16, inode uint64, err error) {
	i := slices.IndexFunc(maps, func(m symbols.Mapping) bool { return m.Contains(at) })
	if i < 0 || !maps[i].Contains(at+1) {
		return 0, 0, errors.New("nothing is mapped there")
	}
	if m := maps[i]; !m.Write || m.Exec || m.Shared {
		return 0, 0, fmt.Errorf("the memory there is %s, no data of the program's own", m.Perms())
	}
	var b [2]byte
	if _, err := p.ReadMemory(b[:], at); err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint16(b[:]), maps[i].Inode, nil
}

// raise adds one to a counter, as the entry tells.
func raise(p *tracee.Process, at, entry symbols.Addr, maps []symbols.Mapping) error {
	n, inode, err := counterAt(p, at, maps)
	if err != nil {
		return err
	}
	if n == 1<<16-1 {
		return errors.New("it is as high as it can be")
	}
	e := Entry{Counter: at, Inode: inode, State: Raising, Before: n}
	err = p.WriteMemory(e.Encode(), entry)
	if err == nil {
		err = writeCounter(p, at, n+1, entry, Raised)
	}
	if err != nil {
		return errors.Join(err, clearEntry(p, entry))
	}
	return nil
}

// clearEntry frees an entry.
func clearEntry(p *tracee.Process, entry symbols.Addr) error {
	return p.WriteMemory(make([]byte, EntrySize), entry)
}

// writeCounter stores a counter and the state of its entry, together if the kernel
// lets it. If only one is stored it is the counter.
func writeCounter(p *tracee.Process, at symbols.Addr, n uint16, entry symbols.Addr, s State) error {
	counter := binary.LittleEndian.AppendUint16(nil, n)
	next := binary.LittleEndian.AppendUint16(nil, uint16(s))
	if p.WriteTogether(tracee.Piece{At: at, B: counter}, tracee.Piece{At: entry + entryState, B: next}) == nil {
		return nil
	}
	if err := p.WriteMemory(counter, at); err != nil {
		return err
	}
	return p.WriteMemory(next, entry+entryState)
}

// lower takes back what an entry tells was added to a counter, and frees the entry.
// Of what is no counter any more it only frees the entry.
func lower(p *tracee.Process, entry symbols.Addr, maps []symbols.Mapping) error {
	b := make([]byte, EntrySize)
	if _, err := p.ReadOwn(b, entry); err != nil {
		return fmt.Errorf("read which semaphores are raised: %w", err)
	}
	e := Decode(b)
	if e.State == Free {
		return nil
	}
	n, inode, err := counterAt(p, e.Counter, maps)
	if errors.Is(err, symbols.ErrLatePage) {
		return fmt.Errorf("lower the semaphore at %v: %w", e.Counter, err)
	}
	mine := err == nil && inode == e.Inode && n > 0
	switch e.State {
	case Raising:
		mine = mine && n == e.Before+1
	case Lowering:
		mine = mine && n == e.Before
	case Raised:
	default:
		mine = false
	}
	if !mine {
		return clearEntry(p, entry)
	}
	e.State, e.Before = Lowering, n
	err = p.WriteMemory(e.Encode(), entry)
	if err == nil {
		err = writeCounter(p, e.Counter, n-1, entry, Free)
	}
	if err != nil {
		return fmt.Errorf("lower the semaphore at %v: %w", e.Counter, err)
	}
	return clearEntry(p, entry)
}
