package area

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/fallbacks"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// scratchSize is the size of the memory that injected calls use: a page of code, followed by
// the frame.
const scratchSize = memory.PageSize + tracee.ScratchFrame

// Area is everything that kprobe has in an address space: the memory file, with the journal of
// patched sites and the fallback handler's table; arenas with copies of instructions, the
// fallback handler and the return trampolines; and scratch memory for injected system calls. A
// session makes it (New), a later kprobe finds it by its journal (Open). Both remove it in the
// same way (Leave, undo.go).
//
// The fields are constructed in the order in which they need each other. close takes them down
// in reverse.
type Area struct {
	Proc  *tracee.Process
	found bool // by its journal: signals were not held, and detours aren't known
	// Unheld says that a session had let go of the process for a while, in which signals
	// were not held.
	Unheld  bool
	File    *memory.File
	Code    *memory.Arenas
	Table   *detour.Table
	tableAt int64 // in the file
	Journal *memory.Journal

	Scratch *memory.Arena // what injected calls run from; nil: none yet
	// padding is where a killed kprobe has left injected code outside its memory; 0: nowhere.
	padding symbols.Addr
	// pools are the return instances that another process had, of whose memory this one has a copy.
	pools []symbols.Mapping

	Fallbacks *fallbacks.Fallbacks

	Pools  []*memory.Arena  // return probes' instances, writable
	Shared []*detour.Shared // what detours share, the latest last
	// Tallies are the shared code that counts for detours, the latest last.
	Tallies []*detour.Tally

	// Outside returns the registers that a thread in a detour or copy has in the program.
	// If it is nil or inside is false, only the journal can tell.
	Outside func(regs *unix.PtraceRegs, trapped bool) (out *unix.PtraceRegs, inside bool, err error)
	lifted  lifted // what was undone for leaving

	Trampolines Trampolines

	Gate symbols.Addr // address of the gate; 0: there is none
}

// New makes the area of a process. The memory file is laid out for the machine's CPUs, and has
// the name keep unless that is "". On an error everything is removed again, as far as possible.
func New(ctx context.Context, p *tracee.Process, params ring.Params, keep string) (a *Area, err error) {
	a = &Area{Proc: p, Fallbacks: fallbacks.New(p)}
	defer func() {
		if err != nil {
			if cerr := a.close(ctx); cerr != nil && a.File != nil {
				err = errors.Join(err, cerr, a.abandon())
			}
			a = nil
		}
	}()
	params.CPUs = memory.PossibleCPUs()
	layout, err := ring.New(params)
	if err != nil {
		return a, err
	}
	if keep == "" {
		a.File, err = closed(ctx, p, func() (*memory.File, error) { return memory.New(ctx, p, layout) })
	} else {
		var f *os.File
		if f, err = memory.Keep(keep, layout); err != nil {
			return a, err
		}
		defer f.Close()
		defer func() {
			if err != nil {
				err = errors.Join(err, os.Remove(keep))
			}
		}()
		a.File, err = closed(ctx, p, func() (*memory.File, error) { return memory.NewKept(ctx, p, layout, f) })
	}
	if err != nil {
		return a, err
	}
	a.Journal = memory.NewJournal(a.File)
	a.Code = memory.NewArenas(p, a.Journal)
	a.Journal.Open(p.PID())
	if err = a.mapScratch(ctx); err != nil {
		return a, err
	}
	a.tableAt = layout.Fallback.Off
	if a.Table, err = newTable(a.File, layout.Fallback); err != nil {
		return a, err
	}
	if err = a.layFallback(ctx); err != nil {
		return a, err
	}
	_, err = a.Catch(ctx, nil, unix.SIGTRAP)
	return a, err
}

// closed makes the memory file while all threads are stopped. A program that closes descriptors which it
// doesn't know, and opens files of its own, would have kprobe map one of those, or close it. Where no
// stopped thread can make the calls, they are made while the others run.
func closed(ctx context.Context, p *tracee.Process, create func() (*memory.File, error)) (m *memory.File, err error) {
	serr := p.WithStopped(ctx, func([]*tracee.Thread) error {
		m, err = create()
		return nil
	})
	if serr = tracee.IgnoreLate(serr); serr != nil && m == nil && err == nil {
		return nil, serr
	}
	if errors.Is(err, tracee.ErrNoRoom) || errors.Is(err, tracee.ErrNoThread) {
		return create()
	}
	return m, err
}

// newTable makes the fallback handler's table in a part of the memory file.
func newTable(m *memory.File, part ring.Section) (*detour.Table, error) {
	return detour.NewTable(fileAt{m, part.Off, m.Seldom(part, 1)}, uint64(m.Addr(part.Off)), int(part.Size))
}

// fileAt is a place in the memory file, in the form that the fallback handler's table needs.
type fileAt struct {
	m      *memory.File
	off    int64
	seldom *memory.Seldom // the part that it is in
}

// Put implements detour.Putter.
func (f fileAt) Put(off int, b []byte) {
	at := f.off + int64(off)
	if len(b) == 8 && at&7 == 0 {
		f.m.Store64(at, binary.LittleEndian.Uint64(b))
	} else {
		copy(f.m.Mem[at:], b)
	}
	f.seldom.Touched(at, len(b))
}

// mapScratch maps the memory that injected system calls run from.
func (a *Area) mapScratch(ctx context.Context) (err error) {
	if a.Scratch, err = a.Code.MapNear(ctx, a.File.Base, scratchSize); err != nil {
		return fmt.Errorf("scratch memory: %w", err)
	}
	frame := a.Scratch.Start + memory.PageSize
	if err := a.Code.Writable(ctx, frame, tracee.ScratchFrame); err != nil {
		return err
	}
	if err := a.Proc.SetScratch(a.Scratch.Start, frame); err != nil {
		return err
	}
	return a.File.Set64(a.File.Layout.Header.Off+memory.HeaderScratch, uint64(a.Scratch.Start))
}

// layFallback writes the fallback handler, in an arena with its data, and the return
// trampolines, in an arena within reach of the memory file.
func (a *Area) layFallback(ctx context.Context) error {
	const size = (MostTrampolines*TrampolineSize + memory.PageSize - 1) &^ (memory.PageSize - 1)
	layout := a.File.Layout
	cells := layout.Instances.Off
	p, err := a.Code.Add(ctx, a.File.Addr(cells), size)
	if err != nil {
		return err
	}
	p.Used = p.Size
	a.Trampolines = newTrampolineSet(a.File, p.Start, cells)
	links := fallbacks.Links{
		Table: a.File.Addr(a.tableAt), Steps: a.File.Addr(layout.Header.Off + memory.HeaderSteps), Watched: a.File.Addr(layout.Header.Off + memory.HeaderWatched),
		Trampolines: a.Trampolines.First, TrampolinesSize: MostTrampolines * TrampolineSize,
	}
	maps, err := symbols.ReadMaps(a.Proc.PID())
	if err != nil {
		return err
	}
	h := layout.Header.Off
	note := func() {
		a.File.Store64(h+memory.HeaderFallbackData, uint64(a.Fallbacks.Data()))
		a.File.Store64(h+memory.HeaderFallback, uint64(a.Fallbacks.Code()))
	}
	adopted, err := a.Fallbacks.Adopt(maps, links, note)
	if err == nil && !adopted {
		err = a.newFallback(ctx, links)
	}
	if err != nil {
		return err
	}
	if err := a.Proc.WriteMemory(a.Trampolines.code(), a.Trampolines.First); err != nil {
		return fmt.Errorf("write the return trampolines: %w", err)
	}
	note()
	return nil
}

// newFallback maps and writes the fallback handler.
func (a *Area) newFallback(ctx context.Context, to fallbacks.Links) error {
	p, err := a.Code.Add(ctx, a.File.Base, 2*fallbacks.Size)
	if err != nil {
		return err
	}
	p.Used = p.Size
	data := p.Start + fallbacks.Size
	if err := a.Code.Writable(ctx, data, fallbacks.Size); err != nil {
		return err
	}
	text, err := a.Fallbacks.Lay(p.Start, data, to)
	if err == nil {
		err = a.Proc.WriteMemory(text, p.Start)
	}
	if err != nil {
		return fmt.Errorf("write the fallback handler: %w", err)
	}
	return nil
}

// close unmaps the area's memory. No site may be armed and no thread may be in an arena. If the
// program may still call a fallback handler, the handlers stay: two pages that lead to the
// program's own actions.
//
// The memory file goes last, and only if everything else is gone: until then it tells the next
// kprobe what is left.
func (a *Area) close(ctx context.Context) error {
	if a.found && a.Scratch != nil {
		if err := a.Proc.SetScratch(a.Scratch.Start, a.Scratch.Start+memory.PageSize); err != nil {
			return err
		}
	}
	chained, err := a.Fallbacks.Remove(ctx)
	if err == nil && chained {
		err = a.Fallbacks.Disconnect()
	}
	if err != nil || a.File == nil {
		return err
	}
	if a.Code == nil {
		return a.File.Unmap(ctx)
	}
	h := a.File.Layout.Header.Off
	if chained {
		// They are the program's from here on.
		if p := a.Code.Holds(a.Fallbacks.Code()); p != nil {
			err = a.Code.Release(p)
		}
	}
	if err = errors.Join(err, a.File.Set64(h+memory.HeaderFallback, 0), a.File.Set64(h+memory.HeaderPools, 0)); err != nil {
		return err
	}
	errs := []error{a.Code.UnmapAll(ctx)}
	for len(a.Pools) > 0 {
		if err := a.Code.Unmap(ctx, a.Pools[0]); err != nil {
			errs = append(errs, err)
			break
		}
		a.Pools = a.Pools[1:]
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if a.Scratch != nil {
		a.Proc.DropScratch()
		if err := a.File.Set64(h+memory.HeaderScratch, 0); err != nil {
			return err
		}
		if err := a.Code.Unmap(ctx, a.Scratch); err != nil {
			return err
		}
		a.Scratch = nil
	}
	return a.File.Unmap(ctx)
}

// Catch makes a fallback handler answer a signal, chained before the program's action. It may
// be called again: if the program has replaced the fallback handler since, another one goes in
// front of the new action. t is a stopped thread of the process, or nil. changed reports
// whether the action was changed.
func (a *Area) Catch(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (changed bool, err error) {
	changed, err = a.Fallbacks.Catch(ctx, t, sig)
	if err == nil && changed && sig == unix.SIGTRAP {
		if err = a.Proc.GuardTrap(ctx, t); err == nil && !a.Proc.Guarded() {
			// The kernel has reset the action in between, when another thread hit a breakpoint.
			if _, err = a.Fallbacks.Catch(ctx, t, sig); err == nil {
				err = a.Proc.GuardTrap(ctx, t)
			}
		}
	}
	return changed, err
}

// MoveTo makes another process of the address space the one through which the area is reached.
// That process has signal actions of its own.
func (a *Area) MoveTo(p *tracee.Process) error {
	a.Proc, a.Fallbacks = p, a.Fallbacks.Inherited(p)
	a.File.MoveTo(p)
	a.Code.MoveTo(p)
	if a.Scratch == nil {
		return nil
	}
	return p.SetScratch(a.Scratch.Start, a.Scratch.Start+memory.PageSize)
}

// Copied returns the area in a forked child's copy of the address space. The memory file is the
// parent's too, and nothing is unmapped through it.
func (a *Area) Copied(child *tracee.Process) *Area {
	kid := &Area{
		Proc: child, File: a.File.In(child), Code: a.Code.In(child), Scratch: a.Scratch, Fallbacks: a.Fallbacks.Inherited(child),
	}
	for _, m := range a.Pools {
		kid.pools = append(kid.pools, symbols.Mapping{Start: m.Start, End: m.End()})
	}
	return kid
}

// MapData returns a function that maps memory which the process may write to. It stays mapped
// until the area is left.
func (a *Area) MapData(ctx context.Context) func(size uint64) (symbols.Addr, error) {
	return func(size uint64) (symbols.Addr, error) {
		p, err := a.Code.MapNear(ctx, a.File.Base, size)
		if err != nil {
			return 0, err
		}
		a.Code.Keep(p)
		return p.Start, a.Code.Writable(ctx, p.Start, size)
	}
}
