package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/fallbacks"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

const (
	// scratchSize is that of the memory that injected calls use: a page of code,
	// and the frame behind it.
	scratchSize = memory.PageSize + tracee.ScratchFrame
	// return trampolines is how many calls at once may have a return trampoline for a return
	// address: those whose own return address can't carry a breakpoint.
	trampolines = 1024
	// trampolineSize is the size of one: int3; jmp [cell].
	trampolineSize = 8
)

// area is all that kprobe laid in an address space: the memory file with the
// journal of patched sites and the fallback handler's table, executable pieces with the copies
// of instructions, the fallback handler and the return trampolines, and scratch memory for injected
// system calls. A session makes one (newArea), or it is found by its journal
// (openArea); both are taken out the same way (leave, undo.go).
//
// The order of construction is the order of need; close takes down in reverse.
// Used on the tracer thread only.
type area struct {
	proc    *tracee.Process
	found   bool // by its journal: signals were not held, and detours aren't known
	file    *memory.File
	code    *memory.Arenas
	table   *detour.Table
	tableAt int64 // in the file
	journal *memory.Journal

	scratch *memory.Arena // what injected calls run from; nil: none yet

	fallbacks *fallbacks.Fallbacks

	pools  []*memory.Arena  // return probes' instances, writable
	shared []*detour.Shared // what detours share, the latest last

	// outside gives the registers that a thread in a detour or copy has in the
	// program. Nil, or inside is false, where only the journal can tell.
	outside func(regs *unix.PtraceRegs, trapped bool) (out *unix.PtraceRegs, inside bool, err error)
	// lifted are the addresses of bytes that restoreText has undone.
	lifted map[uint64]bool

	trampoline     symbols.Addr // the first
	cells          int64        // offset in the file of the first return trampoline's cell
	trampolineFree []int
	trampolineOf   []*instance // by index
}

// newArea lays everything in the process, for so many probes and as many again. On an error it is taken out again.
func newArea(ctx context.Context, p *tracee.Process, ringSize, probes, rows int) (a *area, err error) {
	a = &area{proc: p, fallbacks: fallbacks.New(p)}
	defer func() {
		if err != nil {
			if cerr := a.close(ctx); cerr != nil && a.file != nil {
				err = errors.Join(err, cerr, a.abandon())
			}
			a = nil
		}
	}()
	params := ring.ForProbes(probes)
	params.CPUs, params.RingSize, params.Rows = possibleCPUs(), ringSize, rows
	layout, err := ring.New(params)
	if err != nil {
		return a, err
	}
	if a.file, err = memory.New(ctx, p, layout); err != nil {
		return a, err
	}
	a.journal = memory.NewJournal(a.file)
	a.code = memory.NewArenas(p, a.journal)
	a.journal.Open(p.PID(), newClock().now())
	if err = a.mapScratch(ctx); err != nil {
		return a, err
	}
	a.tableAt = layout.Fallback.Off
	if a.table, err = detour.NewTable(fileAt{a.file, a.tableAt}, uint64(a.file.Addr(a.tableAt)), int(layout.Fallback.Size)); err != nil {
		return a, err
	}
	if err = a.layFallback(ctx); err != nil {
		return a, err
	}
	_, err = a.catch(ctx, nil, unix.SIGTRAP)
	return a, err
}

// fileAt is a place in the memory file as the fallback handler's data and table want it.
type fileAt struct {
	m   *memory.File
	off int64
}

// Put implements detour.Putter.
func (f fileAt) Put(off int, b []byte) {
	at := f.off + int64(off)
	if len(b) == 8 && at&7 == 0 {
		f.m.Store64(at, binary.LittleEndian.Uint64(b))
		return
	}
	copy(f.m.Mem[at:], b)
}

// mapScratch maps the memory that injected system calls run from.
func (a *area) mapScratch(ctx context.Context) (err error) {
	if a.scratch, err = a.code.MapNear(ctx, a.file.Base, scratchSize); err != nil {
		return fmt.Errorf("scratch memory: %w", err)
	}
	frame := a.scratch.Start + memory.PageSize
	if err := a.code.Writable(ctx, frame, tracee.ScratchFrame); err != nil {
		return err
	}
	if err := a.proc.SetScratch(a.scratch.Start, frame); err != nil {
		return err
	}
	return a.file.Set64(a.file.Layout.Header.Off+memory.HeaderScratch, uint64(a.scratch.Start))
}

// layFallback writes the fallback handler, in a piece with its data, and the return trampolines, in one that
// can reach the memory file.
func (a *area) layFallback(ctx context.Context) error {
	const size = (trampolines*trampolineSize + memory.PageSize - 1) &^ (memory.PageSize - 1)
	layout := a.file.Layout
	a.cells = layout.Instances.Off
	p, err := a.code.Add(ctx, a.file.Addr(a.cells), size)
	if err != nil {
		return err
	}
	p.Used = p.Size
	a.trampoline = p.Start
	if p, err = a.code.Add(ctx, a.file.Base, 2*fallbacks.Size); err != nil {
		return err
	}
	p.Used = p.Size
	data := p.Start + fallbacks.Size
	if err := a.code.Writable(ctx, data, fallbacks.Size); err != nil {
		return err
	}
	text, err := a.fallbacks.Lay(p.Start, data, fallbacks.Links{
		Table: a.file.Addr(a.tableAt), Steps: a.file.Addr(layout.Header.Off + memory.HeaderSteps),
		Trampolines: a.trampoline, TrampolinesSize: trampolines * trampolineSize,
	})
	if err != nil {
		return err
	}
	if err := a.proc.WriteMemory(text, p.Start); err != nil {
		return fmt.Errorf("write the fallback handler: %w", err)
	}
	text = text[:0]
	for i := range trampolines {
		at := a.trampoline + symbols.Addr(i*trampolineSize)
		b := make([]byte, trampolineSize)
		b[0], b[1], b[2] = 0xcc, 0xff, 0x25 // int3; jmp [rip+disp]
		disp := int64(a.file.Addr(a.cells+int64(i)*cellSize)) - int64(at+7)
		binary.LittleEndian.PutUint32(b[3:], uint32(int32(disp)))
		b[7] = 0xcc
		text = append(text, b...)
		a.trampolineFree = append(a.trampolineFree, trampolines-1-i)
	}
	a.trampolineOf = make([]*instance, trampolines)
	if err := a.proc.WriteMemory(text, a.trampoline); err != nil {
		return fmt.Errorf("write the return trampolines: %w", err)
	}
	h := layout.Header.Off
	a.file.Store64(h+memory.HeaderFallbackData, uint64(a.fallbacks.Data()))
	a.file.Store64(h+memory.HeaderFallback, uint64(a.fallbacks.Code()))
	return nil
}

// A cell of the journal of return trampolines: where the return trampoline goes on at, and the
// stack slot that holds the return trampoline's address.
const (
	cellSize = 16
	cellSlot = 8
)

// close takes out of the process what the area holds. No site may be armed
// and no thread in a piece. Where the program may still call a fallback handler, the fallback handlers
// stay, two pages that lead to the program's own actions.
//
// The memory file goes last, and only if all else has gone: until then it tells
// whoever finds it what is left.
func (a *area) close(ctx context.Context) error {
	if a.found && a.scratch != nil {
		if err := a.proc.SetScratch(a.scratch.Start, a.scratch.Start+memory.PageSize); err != nil {
			return err
		}
	}
	chained, err := a.fallbacks.Remove(ctx)
	if err == nil && chained {
		err = a.fallbacks.Disconnect()
	}
	if err != nil || a.file == nil {
		return err
	}
	h := a.file.Layout.Header.Off
	if chained {
		// They are the program's from here on.
		if p := a.code.Holds(a.fallbacks.Code()); p != nil {
			err = a.code.Release(p)
		}
	}
	if err = errors.Join(err, a.file.Set64(h+memory.HeaderFallback, 0), a.file.Set64(h+memory.HeaderPools, 0)); err != nil {
		return err
	}
	errs := []error{a.code.UnmapAll(ctx)}
	for len(a.pools) > 0 {
		if err := a.code.Unmap(ctx, a.pools[0]); err != nil {
			errs = append(errs, err)
			break
		}
		a.pools = a.pools[1:]
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if a.scratch != nil {
		a.proc.DropScratch()
		if err := a.file.Set64(h+memory.HeaderScratch, 0); err != nil {
			return err
		}
		if err := a.code.Unmap(ctx, a.scratch); err != nil {
			return err
		}
		a.scratch = nil
	}
	return a.file.Unmap(ctx)
}

// takeTrampoline gives an instance a return trampoline that goes on at its return address.
// ok is false when all are in use.
func (a *area) takeTrampoline(in *instance) (at symbols.Addr, ok bool) {
	n := len(a.trampolineFree)
	if n == 0 {
		return 0, false
	}
	i := a.trampolineFree[n-1]
	a.trampolineFree = a.trampolineFree[:n-1]
	a.trampolineOf[i] = in
	in.trampoline = i
	off := a.cells + int64(i)*cellSize
	a.file.Store64(off+cellSlot, uint64(in.slot))
	a.file.Store64(off, uint64(in.ra))
	return a.trampoline + symbols.Addr(i*trampolineSize), true
}

// freeTrampoline takes the return trampoline back. The cell keeps its address: a thread may
// still be about to jump through it.
func (a *area) freeTrampoline(i int) {
	a.file.Store64(a.cells+int64(i)*cellSize+cellSlot, 0)
	a.trampolineOf[i] = nil
	a.trampolineFree = append(a.trampolineFree, i)
}

// trampolineAt returns the index of the return trampoline whose int3 is at pc.
func (a *area) trampolineAt(pc symbols.Addr) (int, bool) {
	if pc < a.trampoline || pc >= a.trampoline+trampolines*trampolineSize || (pc-a.trampoline)%trampolineSize != 0 {
		return 0, false
	}
	return int(pc-a.trampoline) / trampolineSize, true
}
