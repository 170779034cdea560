package area

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Bounds of the list of return instances, which the program can write to: bytes of one piece,
// bytes of all, number of pieces. A piece lies within 2 GiB of the memory file, on either side.
const (
	mostPool  = 2 << 30
	mostPools = 1 << 16
	allPools  = 4 << 30
)

// poolPart is how much of them is read at a time.
const poolPart = 4 << 20

// cellOf returns the cell, in the memory file, of the return trampoline that has an instruction
// at pc: int3; jmp [cell].
func (a *Area) cellOf(pc symbols.Addr) (cell int64, ok bool) {
	at := pc &^ (TrampolineSize - 1)
	if a.Code.Holds(at) == nil || pc-at > 1 {
		return 0, false
	}
	var b [TrampolineSize]byte
	if _, err := a.Proc.ReadMemory(b[:], at); err != nil || b[0] != memory.Int3 || b[1] != 0xff || b[2] != 0x25 || b[7] != memory.Int3 {
		return 0, false
	}
	cell = int64(at) + 7 + int64(int32(binary.LittleEndian.Uint32(b[3:]))) - int64(a.File.Base)
	first := a.File.Layout.Instances.Off
	ok = cell >= first && cell < first+min(MostTrampolines*cellSize, a.File.Layout.Instances.Size) && (cell-first)%cellSize == 0
	return cell, ok
}

// RestoreSlots puts the program's return addresses back into the stack slots that breakpoints
// have pointed to return trampolines.
func (a *Area) RestoreSlots() error {
	cells := make([]byte, min(MostTrampolines*cellSize, a.File.Layout.Instances.Size))
	if _, err := a.File.ReadAt(cells, a.File.Layout.Instances.Off); err != nil {
		return fmt.Errorf("read the return trampolines of calls: %w", err)
	}
	for ; len(cells) >= cellSize; cells = cells[cellSize:] {
		slot := symbols.Addr(binary.LittleEndian.Uint64(cells[cellSlot:]))
		if slot == 0 {
			continue
		}
		if err := a.RestoreSlot(slot); err != nil {
			return err
		}
	}
	return nil
}

// RestoreSlot puts the program's return address back into a slot, if the slot has the address
// of a return trampoline.
func (a *Area) RestoreSlot(slot symbols.Addr) error {
	var now [8]byte
	if _, err := a.Proc.ReadMemory(now[:], slot); errors.Is(err, symbols.ErrLatePage) {
		return fmt.Errorf("put a return address back: %w", err)
	} else if err != nil {
		return nil // the stack is gone
	}
	cell, ok := a.cellOf(symbols.Addr(binary.LittleEndian.Uint64(now[:])))
	if !ok {
		return nil
	}
	to, err := a.File.Get64(cell)
	if err == nil {
		err = a.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, to), slot)
	}
	if err != nil {
		return fmt.Errorf("put a return address back: %w", err)
	}
	return nil
}

// RestoreReturns puts the program's return addresses back for calls that would return by return
// trampolines. In a forked process the list of the instances may lead to some that were laid after the fork: there the
// process has nothing, or other memory. Those that its maker had before are found all the same.
func (a *Area) RestoreReturns() error {
	first, err := a.File.Get64(a.File.Layout.Header.Off + memory.HeaderPools)
	if err != nil || first == 0 && len(a.pools) == 0 {
		return err
	}
	maps, err := symbols.ReadMaps(a.Proc.PID())
	if err != nil {
		return err
	}
	all, seen := uint64(0), map[symbols.Addr]bool{}
	for at := symbols.Addr(first); at != 0; {
		next, size, err := a.listed(maps, at, seen, all)
		if err != nil && len(a.pools) > 0 {
			break
		}
		if err != nil {
			return err
		}
		seen[at] = true
		all += size
		if err := a.restorePool(at+memory.PoolsHead, at+symbols.Addr(size)); err != nil {
			return err
		}
		at = next
	}
	return a.restoreCopied(maps, seen, all)
}

// listed returns the size of the instances at an address, and where the next are, if they may be there after those
// seen, which have all bytes.
func (a *Area) listed(maps []symbols.Mapping, at symbols.Addr, seen map[symbols.Addr]bool, all uint64) (next symbols.Addr, size uint64, err error) {
	next, end, err := poolAt(ownMemory{a.Proc}, at)
	if err != nil {
		return 0, 0, fmt.Errorf("read return instances: %w", err)
	}
	size = uint64(end - at)
	wrong := ""
	private, _ := memory.AnonymousIn(maps, at, size)
	switch {
	case size < memory.PoolsHead || size > mostPool || all+size > allPools:
		wrong = "larger than they may be"
	case !private:
		wrong = "not in memory of kprobe's own"
	case seen[at]:
		wrong = "listed twice"
	case len(seen) >= mostPools:
		wrong = "more than there may be"
	}
	if wrong != "" {
		return 0, 0, fmt.Errorf("return instances are not where the journal says: %d bytes at %v are %s", size, at, wrong)
	}
	return next, size, nil
}

// poolAt reads where the pools at an address end, and where the next are; 0: there are no others.
func poolAt(mem symbols.Memory, at symbols.Addr) (next, end symbols.Addr, err error) {
	var head [16]byte
	if _, err := mem.ReadMemory(head[:], at); err != nil {
		return 0, 0, err
	}
	return symbols.Addr(binary.LittleEndian.Uint64(head[:])), at + symbols.Addr(binary.LittleEndian.Uint64(head[8:])), nil
}

// ownMemory is memory of a process that kprobe has mapped itself.
type ownMemory struct{ *tracee.Process }

// ReadMemory implements symbols.Memory.
func (m ownMemory) ReadMemory(b []byte, at symbols.Addr) (int, error) { return m.ReadOwn(b, at) }

// restoreCopied does so in a forked process, for the instances that its maker had, without those seen, which have all
// bytes.
func (a *Area) restoreCopied(maps []symbols.Mapping, seen map[symbols.Addr]bool, all uint64) error {
	for _, m := range a.pools {
		if seen[m.Start] {
			continue
		}
		size := uint64(m.End - m.Start)
		if private, _ := memory.AnonymousIn(maps, m.Start, size); !private || size < memory.PoolsHead || size > mostPool || all+size > allPools {
			continue
		}
		all += size
		if err := a.restorePool(m.Start+memory.PoolsHead, m.End); err != nil {
			return err
		}
	}
	return nil
}

// restorePool does so for the instances in an address range. Most of a large table has never been touched.
func (a *Area) restorePool(at, end symbols.Addr) error {
	for lo, hi := range a.Proc.Touched(at, end) {
		mem := make([]byte, min(poolPart, int(hi-lo)))
		for ; lo < hi; lo += symbols.Addr(len(mem)) {
			mem = mem[:min(len(mem), int(hi-lo))]
			if err := a.restorePart(mem, lo); err != nil {
				return err
			}
		}
	}
	return nil
}

// restorePart does so for the instances at an address. mem is room for them.
func (a *Area) restorePart(mem []byte, at symbols.Addr) error {
	if _, err := a.Proc.ReadOwn(mem, at); err != nil {
		return fmt.Errorf("read return instances: %w", err)
	}
	left, late := detour.Left(mem, uint64(at), a.Proc)
	for _, in := range left {
		to := in.Real
		if cell, ok := a.cellOf(symbols.Addr(to)); ok { // a breakpoint had pointed the slot to a return trampoline before
			var err error
			if to, err = a.File.Get64(cell); err != nil {
				return fmt.Errorf("read the return trampolines of calls: %w", err)
			}
		}
		if err := a.Proc.WriteMemory(binary.LittleEndian.AppendUint64(nil, to), symbols.Addr(in.Slot)); err != nil {
			return fmt.Errorf("put a return address back: %w", err)
		}
	}
	if late != nil {
		return fmt.Errorf("put a return address back: %w", late)
	}
	return nil
}

// lateIn finds a thread that could not be stopped and may run in kprobe's code.
func (a *Area) lateIn() error {
	for _, t := range a.Proc.AllLate() {
		pc, ok := t.WaitsAt()
		if !ok {
			return fmt.Errorf("thread %d did not stop: the text is restored, kprobe's memory stays mapped", t.TID())
		}
		if a.holds(pc) {
			return fmt.Errorf("thread %d waits in the kernel, uninterruptibly, in code of kprobe's: the text is restored, kprobe's memory stays mapped", t.TID())
		}
	}
	return nil
}
