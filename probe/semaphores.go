package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Semaphores of statically defined probes
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

// Layout of a page: its head, and entries.
const (
	semaphoreMagic = "kprobsem"
	semaphoreNext  = 8  // u64 address of the page laid before, 0: none
	semaphoreSize  = 16 // u64 bytes
	semaphoreHead  = 64

	semaphoreEntry  = 32
	semaphoreInode  = 8  // u64 of the file in which the counter is
	semaphoreState  = 16 // u16
	semaphoreBefore = 18 // u16, of raising and lowering: what the counter was
)

// The states.
const (
	semaphoreFree = iota
	semaphoreRaising
	semaphoreRaised
	semaphoreLowering
)

// mostSemaphorePages bounds what a page's head may lead to.
const mostSemaphorePages = 1 << 10

// semaphores are the counters that a session has raised in an address space.
type semaphores struct {
	raised map[symbols.Addr]symbols.Addr // counter → entry
	free   []symbols.Addr                // entries
	failed map[symbols.Addr]bool         // counters that could not be raised: it was said
	seen   []semaphored                  // the probes that there were
}

// semaphored is a probe with a semaphore, and whether it was on when that was looked
// at.
type semaphored struct {
	p   *placed
	off bool
}

// semaphore is where the counter of a place is; 0: it has none.
func (p *placed) semaphore() symbols.Addr {
	if p.where.Semaphore == 0 || p.where.Module == nil {
		return 0
	}
	return p.where.Module.Addr(p.where.Semaphore)
}

// syncSemaphores raises the semaphores of the probes that are in and on, and lowers
// those that no such probe is for. What can't be raised is a warning: the probe is in,
// and may have no hits.
func (tg *target) syncSemaphores(ctx context.Context) {
	if tg.area == nil || tg.dying || tg.over {
		return
	}
	want := map[symbols.Addr]*placed{}
	tg.semaphores.seen = nil
	for p := range tg.placed {
		at := p.semaphore()
		if at == 0 {
			continue
		}
		off := p.feed.disabled(p)
		tg.semaphores.seen = append(tg.semaphores.seen, semaphored{p, off})
		if !off {
			want[at] = p
		}
	}
	tg.s.listSemaphored()
	var up, down []symbols.Addr
	for at := range want {
		if _, is := tg.semaphores.raised[at]; !is && !tg.semaphores.failed[at] {
			up = append(up, at)
		}
	}
	for at := range tg.semaphores.raised {
		if want[at] == nil {
			down = append(down, at)
		}
	}
	if len(up)+len(down) == 0 {
		return
	}
	slices.Sort(up)
	err := tg.roomForSemaphores(ctx, len(up))
	if err == nil {
		err = tg.withStopped(ctx, func([]*tracee.Thread) error { return tg.changeSemaphores(up, down, want) })
	}
	if err = ignoreLate(err); err != nil && !errors.Is(err, tracee.ErrGone) {
		tg.s.warnf("process %d: semaphores of statically defined probes: %v", tg.proc.PID(), err)
	}
}

func (tg *target) changeSemaphores(up, down []symbols.Addr, want map[symbols.Addr]*placed) error {
	maps, err := symbols.ReadMaps(tg.proc.PID())
	if err != nil {
		return err
	}
	s := &tg.semaphores
	for _, at := range down {
		entry := s.raised[at]
		if err := lowerSemaphore(tg.proc, entry, maps); err != nil {
			return err
		}
		delete(s.raised, at)
		s.free = append(s.free, entry)
	}
	for _, at := range up {
		entry := s.free[len(s.free)-1]
		if err := raiseSemaphore(tg.proc, at, entry, maps); err != nil {
			s.failed[at] = true
			tg.s.warnf("%s: the program may skip it, as its semaphore at %v could not be raised: %v", want[at].where.Name, at, err)
			continue
		}
		s.free = s.free[:len(s.free)-1]
		s.raised[at] = entry
	}
	return nil
}

// roomForSemaphores sees that there are free entries.
func (tg *target) roomForSemaphores(ctx context.Context, n int) error {
	s := &tg.semaphores
	if s.raised == nil {
		s.raised, s.failed = map[symbols.Addr]symbols.Addr{}, map[symbols.Addr]bool{}
	}
	if len(s.free) >= n {
		return nil
	}
	a := tg.area
	size := (uint64(semaphoreHead+n*semaphoreEntry) + memory.PageSize - 1) &^ (memory.PageSize - 1)
	p, err := a.code.MapNear(ctx, a.file.Base, size)
	if err != nil {
		return err
	}
	p.Used = p.Size
	a.code.Put(p)
	if err := a.code.Writable(ctx, p.Start, size); err != nil {
		return err
	}
	link := a.file.Layout.Header.Off + memory.HeaderSemaphores
	before, err := a.file.Get64(link)
	if err != nil {
		return err
	}
	head := append([]byte(semaphoreMagic), put64(before)...)
	if err := a.proc.WriteMemory(append(head, put64(size)...), p.Start); err != nil {
		return err
	}
	for at := p.Start + semaphoreHead; at+semaphoreEntry <= p.End(); at += semaphoreEntry {
		s.free = append(s.free, at)
	}
	return a.file.Set64(link, uint64(p.Start))
}

// forgetSemaphores forgets those whose library is gone, with the counter. before are
// the modules that there were.
func (tg *target) forgetSemaphores(before []*symbols.Module) {
	s := &tg.semaphores
	clear(s.failed)
	for at, entry := range s.raised {
		if m := tg.space.ModuleAt(at); m != nil && slices.Contains(before, m) {
			continue
		}
		if err := tg.proc.WriteMemory(make([]byte, semaphoreEntry), entry); err != nil {
			tg.s.logf("a semaphore at %v, which is gone: %v", at, err)
			continue
		}
		delete(s.raised, at)
		s.free = append(s.free, entry)
	}
}

// listSemaphored lists the probes of all targets of which it is to be seen when they
// are switched on and off.
func (s *Session) listSemaphored() {
	var list []semaphored
	for _, tg := range s.targets {
		if tg.isMain() && tg.area != nil {
			list = append(list, tg.semaphores.seen...)
		}
	}
	s.semaphored.Store(&list)
}

// semaphoresDue reports whether a probe with a semaphore was switched since that was
// looked at. Any goroutine may call it.
func (s *Session) semaphoresDue() bool {
	list := s.semaphored.Load()
	return list != nil && slices.ContainsFunc(*list, semaphored.switched)
}

// semaphoresAtTick raises and lowers semaphores of probes that were switched.
func (tg *target) semaphoresAtTick(ctx context.Context) {
	if tg.isMain() && slices.ContainsFunc(tg.semaphores.seen, semaphored.switched) {
		tg.syncSemaphores(ctx)
	}
}

// switched reports whether the probe was switched since.
func (x semaphored) switched() bool { return x.p.feed.disabled(x.p) != x.off }

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

// raiseSemaphore adds one to a counter, as the entry tells; threads stand still.
func raiseSemaphore(p *tracee.Process, at, entry symbols.Addr, maps []symbols.Mapping) error {
	n, inode, err := counterAt(p, at, maps)
	if err != nil {
		return err
	}
	if n == 1<<16-1 {
		return errors.New("it is as high as it can be")
	}
	b := make([]byte, semaphoreEntry)
	binary.LittleEndian.PutUint64(b, uint64(at))
	binary.LittleEndian.PutUint64(b[semaphoreInode:], inode)
	binary.LittleEndian.PutUint16(b[semaphoreState:], semaphoreRaising)
	binary.LittleEndian.PutUint16(b[semaphoreBefore:], n)
	err = p.WriteMemory(b, entry)
	if err == nil {
		err = writeCounter(p, at, n+1, entry, semaphoreRaised)
	}
	if err != nil {
		return errors.Join(err, p.WriteMemory(make([]byte, semaphoreEntry), entry))
	}
	return nil
}

// writeCounter stores a counter and the state of its entry, together if the kernel
// lets it. If only one is stored it is the counter.
func writeCounter(p *tracee.Process, at symbols.Addr, n uint16, entry symbols.Addr, state uint16) error {
	counter := binary.LittleEndian.AppendUint16(nil, n)
	next := binary.LittleEndian.AppendUint16(nil, state)
	if p.WriteTogether(tracee.Piece{At: at, B: counter}, tracee.Piece{At: entry + semaphoreState, B: next}) == nil {
		return nil
	}
	if err := p.WriteMemory(counter, at); err != nil {
		return err
	}
	return p.WriteMemory(next, entry+semaphoreState)
}

// lowerSemaphore takes back what an entry tells was added to a counter, and frees the
// entry; threads stand still. Of what is no counter any more it only frees the entry.
func lowerSemaphore(p *tracee.Process, entry symbols.Addr, maps []symbols.Mapping) error {
	b := make([]byte, semaphoreEntry)
	if _, err := p.ReadOwn(b, entry); err != nil {
		return fmt.Errorf("read which semaphores are raised: %w", err)
	}
	le := binary.LittleEndian
	at, state, before := symbols.Addr(le.Uint64(b)), le.Uint16(b[semaphoreState:]), le.Uint16(b[semaphoreBefore:])
	if state == semaphoreFree {
		return nil
	}
	n, inode, err := counterAt(p, at, maps)
	if errors.Is(err, symbols.ErrLatePage) {
		return fmt.Errorf("lower the semaphore at %v: %w", at, err)
	}
	mine := err == nil && inode == le.Uint64(b[semaphoreInode:]) && n > 0
	switch state {
	case semaphoreRaising:
		mine = mine && n == before+1
	case semaphoreLowering:
		mine = mine && n == before
	case semaphoreRaised:
	default:
		mine = false
	}
	if !mine {
		return p.WriteMemory(make([]byte, semaphoreEntry), entry)
	}
	le.PutUint16(b[semaphoreState:], semaphoreLowering)
	le.PutUint16(b[semaphoreBefore:], n)
	if err := p.WriteMemory(b, entry); err != nil {
		return fmt.Errorf("lower the semaphore at %v: %w", at, err)
	}
	if err := writeCounter(p, at, n-1, entry, semaphoreFree); err != nil {
		return fmt.Errorf("lower the semaphore at %v: %w", at, err)
	}
	return p.WriteMemory(make([]byte, semaphoreEntry), entry)
}

// lowerSemaphores lowers what the pages of entries tell that was raised, in the area
// of a session or in one that it has left; threads stand still. It may be called
// again.
func (a *area) lowerSemaphores() error {
	first, err := a.file.Get64(a.file.Layout.Header.Off + memory.HeaderSemaphores)
	if err != nil || first == 0 {
		return err
	}
	maps, err := symbols.ReadMaps(a.proc.PID())
	if err != nil {
		return err
	}
	seen := map[symbols.Addr]bool{}
	for at := symbols.Addr(first); at != 0 && !seen[at] && len(seen) < mostSemaphorePages; {
		seen[at] = true
		if there, _ := memory.AnonymousIn(maps, at, memory.PageSize); !there {
			return nil // unmapped, with nothing left in it
		}
		head := make([]byte, semaphoreHead)
		if _, err := a.proc.ReadOwn(head, at); err != nil {
			return fmt.Errorf("read which semaphores are raised: %w", err)
		}
		if string(head[:len(semaphoreMagic)]) != semaphoreMagic {
			return nil
		}
		size := le64(head[semaphoreSize:])
		if there, _ := memory.AnonymousIn(maps, at, size); !there || size > mostPool {
			return errors.New("the raised semaphores are not where the journal says")
		}
		for entry := at + semaphoreHead; entry+semaphoreEntry <= at+symbols.Addr(size); entry += semaphoreEntry {
			if err := lowerSemaphore(a.proc, entry, maps); err != nil {
				return err
			}
		}
		at = symbols.Addr(le64(head[semaphoreNext:]))
	}
	return nil
}
