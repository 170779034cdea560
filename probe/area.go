package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

const (
	// scratchArgs is where in the writable scratch memory arguments are put,
	// behind the frame of an injected system call.
	scratchArgs = tracee.ScratchFrame
	scratchSize = scratchArgs + pageSize
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

	scratchCode  symbols.Addr
	scratchFrame symbols.Addr

	net      detour.NetLabels
	nets     map[syscall.Signal]detour.Action // what the program did on the signals that the net answers
	netData  detour.NetData
	netPlace symbols.Addr

	pools []piece // return probes' instances, writable

	landing     symbols.Addr // the first
	cells       int64        // offset in the file of the first landing's cell
	landingFree []int
	landingOf   []*instance // by index
}

// newArea lays everything in the process. On an error it is taken out again.
func newArea(ctx context.Context, p *tracee.Process) (a *area, err error) {
	a = &area{proc: p, code: &code{proc: p}, nets: map[syscall.Signal]detour.Action{}}
	defer func() {
		if err != nil {
			_ = a.close(ctx)
			a = nil
		}
	}()
	if err = a.mapScratch(ctx); err != nil {
		return a, err
	}
	layout, err := ring.New(ring.Params{CPUs: possibleCPUs()})
	if err != nil {
		return a, err
	}
	if a.file, err = newMemfile(ctx, p, layout, a.scratchFrame+scratchArgs); err != nil {
		return a, err
	}
	a.journal = journal{file: a.file}
	a.code.added = a.journal.mapped
	a.journal.open(p.PID())
	bits := detour.TableBits(1)
	for detour.TableSize(bits+1) <= int(layout.Net.Size)-detour.NetDataSize {
		bits++
	}
	// The data stands in front of the table, which wants 64-byte alignment.
	a.tableAt = layout.Net.Off + (detour.NetDataSize+63)&^63
	for detour.TableSize(bits) > int(layout.Net.End()-a.tableAt) {
		bits--
	}
	if a.table, err = detour.NewTable(fileAt{a.file, a.tableAt}, bits); err != nil {
		return a, err
	}
	if err = a.layNet(ctx); err != nil {
		return a, err
	}
	return a, a.catch(ctx, unix.SIGTRAP)
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

// mapScratch maps the memory that injected system calls run from: one page of
// code and some of frame.
func (a *area) mapScratch(ctx context.Context) error {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	at, err := a.proc.Syscall(ctx, nil, unix.SYS_MMAP, 0, scratchSize, unix.PROT_READ|unix.PROT_WRITE, flags, ^uintptr(0), 0)
	if err != nil {
		return fmt.Errorf("map scratch memory in the target: %w", err)
	}
	a.scratchFrame = symbols.Addr(at)
	at, err = a.proc.Syscall(ctx, nil, unix.SYS_MMAP, 0, pageSize, unix.PROT_READ|unix.PROT_EXEC, flags, ^uintptr(0), 0)
	if err != nil {
		return fmt.Errorf("map scratch code in the target: %w", err)
	}
	a.scratchCode = symbols.Addr(at)
	return a.proc.SetScratch(a.scratchCode, a.scratchFrame)
}

// layNet writes the net and the landings into a piece of code that can reach
// the memory file.
func (a *area) layNet(ctx context.Context) error {
	const size = pageSize + (landings*landingSize+pageSize-1)&^(pageSize-1)
	p, err := a.code.add(ctx, a.file.base, size)
	if err != nil {
		return err
	}
	p.used = p.size
	layout := a.file.layout
	a.netPlace = p.start
	blob, labels := detour.Net(uint64(p.start), detour.NetParams{Data: uint64(a.file.addr(layout.Net.Off))})
	a.net = labels
	a.landing = p.start + pageSize
	a.cells = layout.Instances.Off
	text := make([]byte, p.size)
	for i := range text {
		text[i] = 0xcc
	}
	copy(text, blob)
	for i := range landings {
		at := a.landing + symbols.Addr(i*landingSize)
		b := text[pageSize+i*landingSize:]
		b[0], b[1], b[2] = 0xcc, 0xff, 0x25 // int3; jmp [rip+disp]
		disp := int64(a.file.addr(a.cells+int64(i)*cellSize)) - int64(at+7)
		binary.LittleEndian.PutUint32(b[3:], uint32(int32(disp)))
		a.landingFree = append(a.landingFree, landings-1-i)
	}
	a.landingOf = make([]*instance, landings)
	if err := a.proc.WriteMemory(text, p.start); err != nil {
		return fmt.Errorf("write the net: %w", err)
	}
	a.netData = detour.NetData{W: fileAt{a.file, layout.Net.Off}}
	a.netData.SetTable(uint64(a.file.addr(a.tableAt)))
	a.netData.SetLandings(0, uint64(a.landing), landings*landingSize)
	h := layout.Header.Off
	a.file.store64(h+headerScratchCode, uint64(a.scratchCode))
	a.file.store64(h+headerScratchFrame, uint64(a.scratchFrame))
	return nil
}

// A cell of the journal of landings: where the landing goes on at, and the
// stack slot that holds the landing's address.
const (
	cellSize = 16
	cellSlot = 8
)

// close takes out of the process what the area holds. No site may be armed
// and no thread in a piece. What can't be taken out safely stays mapped: see
// removeNet.
func (a *area) close(ctx context.Context) error {
	var errs []error
	chained, err := a.removeNet(ctx)
	if err != nil {
		errs = append(errs, err)
	}
	keep := symbols.Addr(0)
	if chained {
		keep = a.netPlace
	}
	errs = append(errs, a.code.unmap(ctx, keep))
	for _, p := range a.pools {
		if _, err := a.proc.Syscall(ctx, nil, unix.SYS_MUNMAP, uintptr(p.start), uintptr(p.size)); err != nil {
			errs = append(errs, err)
		}
	}
	a.pools = nil
	if !chained && a.file != nil {
		if _, err := a.proc.Syscall(ctx, nil, unix.SYS_MUNMAP, uintptr(a.file.base), uintptr(a.file.size)); err != nil {
			errs = append(errs, err)
		}
	}
	a.proc.DropScratch()
	for _, m := range []struct {
		at   symbols.Addr
		size uintptr
	}{{a.scratchCode, pageSize}, {a.scratchFrame, scratchSize}} {
		if m.at != 0 {
			if _, err := a.proc.Syscall(ctx, nil, unix.SYS_MUNMAP, uintptr(m.at), m.size); err != nil {
				errs = append(errs, err)
			}
		}
	}
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
