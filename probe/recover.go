package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"kprobe/probe/detour"
	"kprobe/probe/insn"
	"kprobe/probe/nets"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Recover takes out of processes the probes that a kprobe left there which
// was killed: breakpoints, landings, the net, mapped memory. Processes that these
// have made since, with copies of it all, are looked after too. It returns the
// processes in which it found some. A process that is still traced, by that
// kprobe or another, is an error and left alone; one that is gone is none.
func Recover(ctx context.Context, pids []int) (recovered []int, err error) {
	tr, err := tracee.New()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tr.Close()) }()
	if err := tr.Handle(passing{}); err != nil {
		return nil, err
	}
	var errs []error
	one := func(pid int, known []ring.Map) {
		found, err := recoverOne(ctx, tr, pid, known)
		if found {
			recovered = append(recovered, pid)
		}
		if err != nil && !errors.Is(err, tracee.ErrGone) && !errors.Is(err, symbols.ErrGone) {
			errs = append(errs, fmt.Errorf("process %d: %w", pid, err))
		}
	}
	for _, pid := range pids {
		known := journaled(pid)
		one(pid, nil)
		if m, err := findMemfile(pid); m != nil || err != nil {
			continue // it stays for a thread, or for a child that runs in the same memory
		}
		for _, kid := range heirs(pid) {
			one(kid, known)
		}
	}
	return recovered, errors.Join(errs...)
}

// findMemfile finds the mapping of a memory file.
func findMemfile(pid int) (*symbols.Mapping, error) {
	maps, err := symbols.ReadMaps(pid)
	if err != nil {
		return nil, err
	}
	for i, m := range maps {
		if m.Path == "/memfd:"+ring.MemfdName && m.Off == 0 {
			return &maps[i], nil
		}
	}
	return nil, nil
}

// recoverOne recovers a process. known are mappings that may be there besides those
// of which its memory file tells.
func recoverOne(ctx context.Context, tr *tracee.Tracer, pid int, known []ring.Map) (found bool, err error) {
	m, err := findMemfile(pid)
	if err != nil {
		return false, err
	}
	if m != nil {
		_ = liftBreakpoints(pid, m)
		if found, err = recoverFile(ctx, tr, pid, m, known); err != nil {
			return found, err
		}
	}
	more, err := recoverStrays(ctx, tr, pid)
	return found || more, err
}

// recoverFile takes out what a memory file knows of.
func recoverFile(ctx context.Context, tr *tracee.Tracer, pid int, m *symbols.Mapping, known []ring.Map) (found bool, err error) {
	p, err := tr.Attach(ctx, pid)
	if err != nil {
		return true, err
	}
	var old *leftover
	err = p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
		if old, err = openLeft(p, m, known); err != nil || old == nil {
			return err
		}
		return withSharers(ctx, p, stopped, func(stopped []*tracee.Thread) error {
			return errors.Join(old.leaveLongJumps(stopped), old.restoreText())
		})
	})
	err = ignoreLate(err)
	if old == nil && err == nil {
		// Killed before it wrote the first word: nothing else is there.
		return true, p.Detach(ctx, func([]*tracee.Thread) error { return munmap(ctx, p, m.Start, uint64(m.End-m.Start)) })
	}
	if err != nil {
		return true, errors.Join(err, p.Detach(ctx, nil))
	}
	if n := int64(le64(old.head[headerSteps:])); n > 0 {
		p.DropSteps(int(min(n, 1<<20)))
	}
	old.drain(ctx)
	return true, p.Detach(ctx, func(stopped []*tracee.Thread) error {
		empty := false
		err := withSharers(ctx, p, stopped, func(stopped []*tracee.Thread) (err error) {
			empty, err = old.takeOut(stopped)
			return err
		})
		if empty {
			// A thread may have to wait for its child before it can unmap.
			err = errors.Join(err, old.unmap(ctx))
		}
		return err
	})
}

// drainTries bounds how often threads are given a moment to leave detours.
const drainTries = 50

// drain waits until no thread is in a detour or in the net, which leads to one
// or to a copy, or will be again when a signal's handler returns there: nobody
// has put the signals off since the tracer's death. The text is restored, so
// that none enters one any more, and each leads back to the program by itself,
// or by the net for what faults there.
func (o *leftover) drain(ctx context.Context) {
	for range drainTries {
		inside := false
		// An error means that threads are gone or wait in the kernel.
		_ = o.p.WithStopped(ctx, func(stopped []*tracee.Thread) error {
			for _, t := range stopped {
				inside = inside || o.moveOut(t, nil) != nil || t.Interrupted(o.holds)
			}
			return nil
		})
		if !inside {
			return
		}
		moment, cancel := context.WithTimeout(ctx, time.Millisecond)
		_ = o.p.Tracer().Run(moment, passing{}) // ends with the moment
		cancel()
	}
}

// passing is a tracee.Handler that leaves everything to the program and its
// nets.
type passing struct{}

func (passing) Breakpoint(*tracee.Thread) tracee.Verdict                   { return tracee.NotMine }
func (passing) Stepped(*tracee.Thread) tracee.Verdict                      { return tracee.Resume }
func (passing) Signal(*tracee.Thread, *tracee.Siginfo) tracee.Verdict      { return tracee.Deliver }
func (passing) NewThread(*tracee.Thread)                                   {}
func (passing) Fork(*tracee.Thread, *tracee.Process, tracee.ForkKind) bool { return false }
func (passing) Exec(*tracee.Process)                                       {}
func (passing) ThreadExit(*tracee.Thread)                                  {}
func (passing) Exited(*tracee.Process, syscall.WaitStatus)                 {}

// leftover is what a killed session left in a process.
type leftover struct {
	p      *tracee.Process
	base   symbols.Addr
	size   uint64
	layout *ring.Layout
	head   []byte // a copy of the file's header
	cells  []byte // and of its landings' cells
	sites  []ring.Site
	pieces []*piece
	pools  int // how many batches of return instances were read
}

// openLeft reads the memory file through the target's memory; nil where
// nothing was written to it yet. known is as for recoverOne.
func openLeft(p *tracee.Process, m *symbols.Mapping, known []ring.Map) (*leftover, error) {
	r := fileReader{p, m.Start, int64(m.End - m.Start)}
	var magic [8]byte
	if _, err := r.ReadAt(magic[:], 0); err == nil && magic == [8]byte{} {
		return nil, nil
	}
	h, layout, err := ring.ReadHeader(r)
	if err != nil {
		return nil, fmt.Errorf("what an earlier kprobe left can't be read: %w", err)
	}
	o := &leftover{p: p, base: m.Start, size: uint64(m.End - m.Start), layout: layout}
	if o.sites, err = ring.ReadSites(r, h, layout); err != nil {
		return nil, fmt.Errorf("read the sites of an earlier kprobe: %w", err)
	}
	maps, err := ring.ReadMaps(r, h, layout)
	if err != nil {
		return nil, fmt.Errorf("read the mappings of an earlier kprobe: %w", err)
	}
	mapped, err := symbols.ReadMaps(p.PID())
	if err != nil {
		return nil, err
	}
	there := map[uint64]bool{}
	for _, c := range append(maps, known...) {
		if !there[c.Addr] && isPiece(c, mapped, p) {
			there[c.Addr] = true
			o.pieces = append(o.pieces, &piece{start: symbols.Addr(c.Addr), size: c.Size, used: c.Used, entry: c.Entry})
		}
	}
	o.head, o.cells = make([]byte, layout.Header.Size), make([]byte, min(landings*cellSize, layout.Instances.Size))
	_, err = r.ReadAt(o.head, layout.Header.Off)
	if err == nil {
		_, err = r.ReadAt(o.cells, layout.Instances.Off)
	}
	if err != nil {
		return nil, fmt.Errorf("read what an earlier kprobe left: %w", err)
	}
	return o, nil
}

// fileReader reads the memory file through the target's mapping of it.
type fileReader struct {
	mem  symbols.Memory
	base symbols.Addr
	size int64
}

// ReadAt implements io.ReaderAt.
func (r fileReader) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= r.size {
		return 0, io.EOF
	}
	want := b[:min(int64(len(b)), r.size-off)]
	n, err := r.mem.ReadMemory(want, r.base+symbols.Addr(off))
	if err == nil && len(want) < len(b) {
		err = io.EOF
	}
	return n, err
}

// restoreText undoes the changes of the text that the journal tells; every
// thread is stopped. A change that another was made over is found once that
// one is undone.
func (o *leftover) restoreText() error {
	var errs []error
	for changed := true; changed; {
		changed = false
		for _, l := range o.sites {
			site := symbols.Addr(l.Addr)
			before, after := l.Before, l.After
			if l.Tactic == uint16(plan.Breakpoint) {
				// The entry holds the whole instruction, the change is a byte.
				before, after = before[:1], after[:1]
			}
			now := make([]byte, len(after))
			if _, err := o.p.ReadMemory(now, site); err != nil || !bytes.Equal(now, after) || bytes.Equal(before, after) {
				continue // its file was unmapped, or the change is undone or was never made
			}
			if err := o.p.WriteMemory(before, site); err != nil {
				errs = append(errs, err)
				continue
			}
			changed = true
		}
	}
	return errors.Join(errs...)
}

// takeOut takes threads and stacks out of kprobe's memory once the text is
// restored; every thread is stopped. It reports whether the memory may go.
func (o *leftover) takeOut(stopped []*tracee.Thread) (empty bool, err error) {
	bySlot := map[symbols.Addr]ring.Site{}
	for _, l := range o.sites {
		bySlot[symbols.Addr(l.Copy)] = l
	}
	inside := false
	for _, t := range stopped {
		if err := o.moveOut(t, bySlot); err != nil || t.Interrupted(o.holds) {
			inside = true
		}
	}
	inside = inside || lateIn(o.p, o.pieces) != nil
	o.restoreSlots()
	err = o.restoreReturns()
	// Where a thread is in a detour or in the net, which lead back to the
	// program by themselves, the memory stays for it.
	return !inside && err == nil, err
}

// moveOut gets a thread out of the memory that is about to go.
func (o *leftover) moveOut(t *tracee.Thread, bySlot map[symbols.Addr]ring.Site) error {
	regs, err := t.Regs()
	if err != nil {
		return nil // gone
	}
	pc := symbols.Addr(regs.Rip)
	if !o.holds(pc) {
		return nil
	}
	if o.inPage(pc, headerNet) {
		return fmt.Errorf("thread %d is in the net, on its way to a copy or a detour", t.TID())
	}
	if o.inPage(pc, headerScratch) {
		return fmt.Errorf("thread %d is in a system call of an earlier kprobe", t.TID())
	}
	l, ok := bySlot[pc&^(slotSize-1)]
	if !ok {
		return fmt.Errorf("thread %d is in code of an earlier kprobe that its journal doesn't know", t.TID())
	}
	m, err := insn.Relocate(l.Before, l.Addr, l.Copy, insn.Options{})
	if err != nil {
		return err
	}
	in, err := insn.Decode(l.Before)
	if err != nil {
		return err
	}
	st := &site{addr: symbols.Addr(l.Addr), slot: symbols.Addr(l.Copy), moved: m, length: int(in.Len)}
	out, ok := st.leave(regs, o.p)
	if !ok {
		return fmt.Errorf("thread %d can't be moved out of a copy", t.TID())
	}
	return t.SetRegs(out)
}

// holds reports whether pc is in memory that is about to go: in copies,
// detours, landings, the net, injected code.
func (o *leftover) holds(pc symbols.Addr) bool {
	for _, p := range o.pieces {
		if pc >= p.start && pc < p.end() {
			return true
		}
	}
	return o.inPage(pc, headerNet) || o.inPage(pc, headerScratch)
}

// inPage reports whether pc is in the page of which the header tells.
func (o *leftover) inPage(pc symbols.Addr, word int64) bool {
	page := symbols.Addr(le64(o.head[word:]))
	return page != 0 && pc >= page && pc < page+pageSize
}

// restoreSlots replaces landings on stacks by the addresses they stand for.
func (o *leftover) restoreSlots() {
	for cell := o.cells; len(cell) >= cellSize; cell = cell[cellSize:] {
		ra, slot := le64(cell), le64(cell[cellSlot:])
		if slot == 0 {
			continue
		}
		var now [8]byte
		if _, err := o.p.ReadMemory(now[:], symbols.Addr(slot)); err != nil {
			continue
		}
		for _, p := range o.pieces {
			if a := symbols.Addr(le64(now[:])); a >= p.start && a < p.end() {
				_ = o.p.WriteMemory(put64(ra), symbols.Addr(slot))
			}
		}
	}
}

// restoreReturns puts the program's return addresses back for calls that would
// return by landings.
func (o *leftover) restoreReturns() error {
	maps, err := symbols.ReadMaps(o.p.PID())
	if err != nil {
		return err
	}
	const most = 1 << 30
	for at := symbols.Addr(le64(o.head[headerPools:])); at != 0; {
		var head [16]byte
		if _, err := o.p.ReadMemory(head[:], at); err != nil {
			return fmt.Errorf("read return instances of an earlier kprobe: %w", err)
		}
		size := le64(head[8:])
		if private, _ := anonymousIn(maps, at, size); size < poolsHead || size > most || !private || o.pools > 1<<16 {
			return errors.New("the return instances of an earlier kprobe are not where it says")
		}
		mem := make([]byte, size)
		if _, err := o.p.ReadMemory(mem, at); err != nil {
			return fmt.Errorf("read return instances of an earlier kprobe: %w", err)
		}
		for _, in := range detour.Left(mem[poolsHead:], uint64(at)+poolsHead, o.p) {
			if err := o.p.WriteMemory(put64(in.Real), symbols.Addr(in.Slot)); err != nil {
				return fmt.Errorf("put a return address back: %w", err)
			}
		}
		o.pools++
		at = symbols.Addr(le64(head[:]))
	}
	return nil
}

// unmap gives the program its actions back and unmaps what was mapped.
func (o *leftover) unmap(ctx context.Context) error {
	maps, err := symbols.ReadMaps(o.p.PID())
	if err != nil {
		return err
	}
	a := &area{proc: o.p, nets: nets.New(o.p)}
	a.file = &memfile{proc: o.p, layout: o.layout, base: o.base, size: o.size}
	a.journal = journal{file: a.file}
	a.code = &code{proc: o.p, pieces: o.pieces, journal: &a.journal}
	scratch := symbols.Addr(le64(o.head[headerScratch:]))
	if i := slices.IndexFunc(o.pieces, func(p *piece) bool { return p.start == scratch && p.size == scratchSize }); i >= 0 {
		a.scratch = o.pieces[i]
		a.code.pieces = slices.Delete(slices.Clone(o.pieces), i, i+1)
		if err := o.p.SetScratch(scratch, scratch+pageSize); err != nil {
			return err
		}
	}
	code, data := symbols.Addr(le64(o.head[headerNet:])), symbols.Addr(le64(o.head[headerNetData:]))
	if code != 0 {
		codeThere, _ := anonymousIn(maps, code, pageSize)
		dataThere, _ := anonymousIn(maps, data, pageSize)
		if !codeThere || !dataThere {
			return errors.New("the nets of the earlier kprobe are not where it says")
		}
		if err := a.nets.Find(code, data); err != nil {
			return err
		}
	}
	return a.close(ctx)
}
