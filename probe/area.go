package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/nets"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

const (
	// scratchSize is that of the memory that injected calls use: a page of code,
	// and the frame behind it.
	scratchSize = pageSize + tracee.ScratchFrame
	// landings is how many calls at once may have a landing for a return
	// address: those whose own return address can't carry a breakpoint.
	landings = 1024
	// landingSize is the size of one: int3; jmp [cell].
	landingSize = 8
)

// area is all that kprobe laid in a process: the memory file with the journal
// of patched sites and the net's table, executable pieces with the copies of
// instructions, the net and the landings, and scratch memory for injected
// system calls.
//
// The order of construction is the order of need; close takes down in reverse.
// Used on the tracer thread only.
type area struct {
	proc    *tracee.Process
	file    *memfile
	code    *code
	table   *detour.Table
	tableAt int64 // in the file
	journal journal

	scratch *piece // what injected calls run from; nil: none yet

	nets *nets.Nets

	pools  []*piece         // return probes' instances, writable
	shared []*detour.Shared // what detours share, the latest last

	landing     symbols.Addr // the first
	cells       int64        // offset in the file of the first landing's cell
	landingFree []int
	landingOf   []*instance // by index
}

// newArea lays everything in the process. On an error it is taken out again.
func newArea(ctx context.Context, p *tracee.Process, ringSize int) (a *area, err error) {
	a = &area{proc: p, code: &code{proc: p}, nets: nets.New(p)}
	defer func() {
		if err != nil {
			_ = a.close(ctx)
			a = nil
		}
	}()
	layout, err := ring.New(ring.Params{CPUs: possibleCPUs(), RingSize: ringSize})
	if err != nil {
		return a, err
	}
	if a.file, err = newMemfile(ctx, p, layout); err != nil {
		return a, err
	}
	a.journal = journal{file: a.file}
	a.code.journal = &a.journal
	a.journal.open(p.PID())
	if err = a.mapScratch(ctx); err != nil {
		return a, err
	}
	a.tableAt = layout.Net.Off
	if a.table, err = detour.NewTable(fileAt{a.file, a.tableAt}, uint64(a.file.addr(a.tableAt)), int(layout.Net.Size)); err != nil {
		return a, err
	}
	if err = a.layNet(ctx); err != nil {
		return a, err
	}
	_, err = a.catch(ctx, nil, unix.SIGTRAP)
	return a, err
}

// fileAt is a place in the memory file as the net's data and table want it.
type fileAt struct {
	m   *memfile
	off int64
}

// Put implements detour.Putter.
func (f fileAt) Put(off int, b []byte) {
	at := f.off + int64(off)
	if len(b) == 8 && at&7 == 0 {
		f.m.store64(at, binary.LittleEndian.Uint64(b))
		return
	}
	copy(f.m.mem[at:], b)
}

// mapScratch maps the memory that injected system calls run from.
func (a *area) mapScratch(ctx context.Context) (err error) {
	if a.scratch, err = a.code.mapNear(ctx, a.file.base, scratchSize); err != nil {
		return fmt.Errorf("scratch memory: %w", err)
	}
	frame := a.scratch.start + pageSize
	if err := a.code.writable(ctx, frame, tracee.ScratchFrame); err != nil {
		return err
	}
	if err := a.proc.SetScratch(a.scratch.start, frame); err != nil {
		return err
	}
	return a.file.set64(a.file.layout.Header.Off+headerScratch, uint64(a.scratch.start))
}

// layNet writes the net, in a piece with its data, and the landings, in one that
// can reach the memory file.
func (a *area) layNet(ctx context.Context) error {
	const size = (landings*landingSize + pageSize - 1) &^ (pageSize - 1)
	layout := a.file.layout
	a.cells = layout.Instances.Off
	p, err := a.code.add(ctx, a.file.addr(a.cells), size)
	if err != nil {
		return err
	}
	p.used = p.size
	a.landing = p.start
	if p, err = a.code.add(ctx, a.file.base, 2*nets.Size); err != nil {
		return err
	}
	p.used = p.size
	data := p.start + nets.Size
	if err := a.code.writable(ctx, data, nets.Size); err != nil {
		return err
	}
	text, err := a.nets.Lay(p.start, data, nets.Links{
		Table: a.file.addr(a.tableAt), Steps: a.file.addr(layout.Header.Off + headerSteps),
		Landings: a.landing, LandingsSize: landings * landingSize,
	})
	if err != nil {
		return err
	}
	if err := a.proc.WriteMemory(text, p.start); err != nil {
		return fmt.Errorf("write the net: %w", err)
	}
	text = text[:0]
	for i := range landings {
		at := a.landing + symbols.Addr(i*landingSize)
		b := make([]byte, landingSize)
		b[0], b[1], b[2] = 0xcc, 0xff, 0x25 // int3; jmp [rip+disp]
		disp := int64(a.file.addr(a.cells+int64(i)*cellSize)) - int64(at+7)
		binary.LittleEndian.PutUint32(b[3:], uint32(int32(disp)))
		b[7] = 0xcc
		text = append(text, b...)
		a.landingFree = append(a.landingFree, landings-1-i)
	}
	a.landingOf = make([]*instance, landings)
	if err := a.proc.WriteMemory(text, a.landing); err != nil {
		return fmt.Errorf("write the landings: %w", err)
	}
	h := layout.Header.Off
	a.file.store64(h+headerNetData, uint64(a.nets.Data()))
	a.file.store64(h+headerNet, uint64(a.nets.Code()))
	return nil
}

// A cell of the journal of landings: where the landing goes on at, and the
// stack slot that holds the landing's address.
const (
	cellSize = 16
	cellSlot = 8
)

// close takes out of the process what the area holds. No site may be armed
// and no thread in a piece. Where the program may still call a net, the nets
// stay, two pages that lead to the program's own actions.
//
// The memory file goes last: until then it tells a kprobe that finds the file of
// one killed in between what is left.
func (a *area) close(ctx context.Context) error {
	chained, err := a.nets.Remove(ctx)
	errs := []error{err}
	if a.file == nil {
		return errors.Join(errs...)
	}
	keep := symbols.Addr(0)
	if chained {
		keep = a.nets.Code()
		errs = append(errs, a.nets.Disconnect())
	}
	h := a.file.layout.Header.Off
	errs = append(errs, a.file.set64(h+headerNet, 0), a.file.set64(h+headerPools, 0))
	errs = append(errs, a.code.unmapAll(ctx, keep))
	for _, p := range a.pools {
		errs = append(errs, a.code.unmap(ctx, p))
	}
	a.pools = nil
	a.proc.DropScratch()
	errs = append(errs, a.file.set64(h+headerScratch, 0))
	if a.scratch != nil {
		errs = append(errs, a.code.unmap(ctx, a.scratch))
	}
	errs = append(errs, munmap(ctx, a.proc, a.file.base, a.file.size))
	return errors.Join(errs...)
}

// takeLanding gives an instance a landing that goes on at its return address.
// ok is false when all are in use.
func (a *area) takeLanding(in *instance) (at symbols.Addr, ok bool) {
	n := len(a.landingFree)
	if n == 0 {
		return 0, false
	}
	i := a.landingFree[n-1]
	a.landingFree = a.landingFree[:n-1]
	a.landingOf[i] = in
	in.landing = i
	off := a.cells + int64(i)*cellSize
	a.file.store64(off+cellSlot, uint64(in.slot))
	a.file.store64(off, uint64(in.ra))
	return a.landing + symbols.Addr(i*landingSize), true
}

// freeLanding takes the landing back. The cell keeps its address: a thread may
// still be about to jump through it.
func (a *area) freeLanding(i int) {
	a.file.store64(a.cells+int64(i)*cellSize+cellSlot, 0)
	a.landingOf[i] = nil
	a.landingFree = append(a.landingFree, i)
}

// landingAt returns the index of the landing whose int3 is at pc.
func (a *area) landingAt(pc symbols.Addr) (int, bool) {
	if pc < a.landing || pc >= a.landing+landings*landingSize || (pc-a.landing)%landingSize != 0 {
		return 0, false
	}
	return int(pc-a.landing) / landingSize, true
}
