package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/internal/untrusted"
	"kprobe/probe/area"
	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Several commands that leave probes in one process
//
// The jumps beside system calls (leftbirths.go, leftknown.go) can be laid only once. The first command lays them all,
// if it can have its hits taken in sequences: it becomes the host. The detours of later commands use the host's
// words instead of their own: how many tasks could be mistaken for others, whether the way to questions is
// closed, and which pages are known. They lay no such jumps, except beside what ends mappings if the host's hits read
// nothing and theirs do.
//
//	host     the header of its memory file names itself, and the list in its gate's page says beside which
//	         instructions it has jumps, and what they watch. Both are written when it is left
//	guest    before its first detour is built, its header names the host. From then on the host's memory is
//	         needed (area/host.go)
//	emptied  the host's probes are removed, and guests are there: its jumps beside system calls stay,
//	         with its memory
//	gone     no guest is left: the host goes with the last of them
//
// A guest looks at the process's code as a first command does. If there is an instruction that the host has no jump
// for, because its library came later, the guest's hits take locked instructions, or ask for each page.

// The list of watched instructions in the gate's page: a u64 that says whether the host's hits read memory, a u64 count,
// and for each a u64, the address with what is watched in the upper byte.
const (
	watchedOff  = 64
	watchedHead = 16
	mostWatched = (memory.PageSize - watchedOff - watchedHead) / 8

	watchTask   = 1
	watchRules  = 2
	watchUnmaps = 4
	watchBehind = 8

	watchShift = 56
)

// host is what a guest knows of its host.
type host struct {
	base, gate symbols.Addr
	reads      bool // its hits read memory
	watched    map[symbols.Addr]byte
}

// noteHost makes the target a host, if its jumps watch births: later commands find them by this.
func (tg *Target) noteHost() error {
	if tg.host != nil || !tg.births.trusted || tg.barred != "" {
		return nil
	}
	list := make([]byte, watchedHead)
	for p := range tg.Placed {
		if x := p.Rarely().Birth; x != nil {
			kinds := uint64(0)
			for _, k := range []struct {
				is   bool
				kind uint64
			}{{!x.NoTask, watchTask}, {x.Rules, watchRules}, {x.Unmaps, watchUnmaps}, {x.Behind, watchBehind}} {
				if k.is {
					kinds |= k.kind
				}
			}
			list = binary.LittleEndian.AppendUint64(list, uint64(p.Where.Addr)|kinds<<watchShift)
		}
	}
	n := (len(list) - watchedHead) / 8
	if n > mostWatched {
		return nil // others take locked instructions
	}
	if tg.reads() {
		binary.LittleEndian.PutUint64(list, 1)
	}
	binary.LittleEndian.PutUint64(list[8:], uint64(n))
	if err := tg.Proc.WriteMemory(list, tg.Area.Gate+watchedOff); err != nil {
		return err
	}
	return tg.Area.File.Set64(tg.Area.File.Layout.Header.Off+memory.HeaderHost, uint64(tg.Area.File.Base))
}

// findHost looks for a host among the probes that were left in the process, and names it in the header.
func (tg *Target) findHost() error {
	if !tg.Engine.Opts.Detach || tg.host != nil {
		return nil
	}
	pid := tg.Proc.PID()
	files, err := area.FindMemfiles(pid)
	if err != nil {
		return err
	}
	for _, m := range files {
		h, err := untrusted.Within(func() (*host, error) { return readHost(pid, m.Start) })
		if err == nil && h != nil {
			tg.host = h
			f := tg.Area.File
			return f.Set64(f.Layout.Header.Off+memory.HeaderHost, uint64(h.base))
		}
	}
	return nil
}

// readHost reads what the memory file at base says if it is a host's whose words count; nil if it isn't.
func readHost(pid int, base symbols.Addr) (*host, error) {
	mem, err := memory.OpenProcess(pid)
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	file := memory.Window{Mem: mem, At: base}
	head, l, err := ring.ReadHeader(file, memory.PossibleCPUs())
	if err != nil || head.Mode&ring.ModeDetached == 0 || head.Base != uint64(base) || int(head.Target) != pid {
		return nil, err
	}
	names, err := area.HostOf(file, l)
	if err != nil || names != base {
		return nil, err
	}
	var word [8]byte
	if _, err := file.ReadAt(word[:], l.Header.Off+memory.HeaderGate); err != nil {
		return nil, err
	}
	gate := binary.LittleEndian.Uint64(word[:])
	maps, err := ring.ReadMaps(file, head, l)
	its := func(m ring.Map) bool { return m.Addr == gate && m.Size >= memory.PageSize+detour.KnownSize }
	if err != nil || !slices.ContainsFunc(maps, its) {
		return nil, err
	}
	h := &host{base: base, gate: symbols.Addr(gate), watched: map[symbols.Addr]byte{}}
	page := make([]byte, memory.PageSize)
	if _, err := mem.ReadAt(page, int64(h.gate)); err != nil {
		return nil, err
	}
	begun, closed := binary.LittleEndian.Uint32(page[BirthsOff+4:]), binary.LittleEndian.Uint32(page[CallsOff+4:])
	n := binary.LittleEndian.Uint64(page[watchedOff+8:])
	h.reads = binary.LittleEndian.Uint64(page[watchedOff:]) != 0
	if begun == 0 || closed != 0 || n > mostWatched {
		return nil, nil
	}
	for i := range n {
		w := binary.LittleEndian.Uint64(page[watchedOff+watchedHead+8*i:])
		h.watched[symbols.Addr(w&(1<<watchShift-1))] |= byte(w >> watchShift)
	}
	return h, nil
}

// words are where the detours of the target find the words of births, of questions and of known pages.
func (tg *Target) words() (births, calls, known uint64) {
	gate := tg.Area.Gate
	if tg.host != nil {
		gate = tg.host.gate
	}
	return uint64(gate + BirthsOff), uint64(gate + CallsOff), uint64(gate + KnownOff)
}

// misses names the first of some instructions that the host doesn't watch for a kind; "" if it watches all.
func (tg *Target) misses(places []bornAt, kind byte) string {
	for _, b := range places {
		needs := kind == watchTask && b.Task || kind == watchRules && b.Rules || kind == watchUnmaps && b.Unmaps
		if !needs {
			continue
		}
		before, behind := b.module.Addr(b.Before), b.module.Addr(b.Behind)
		ok := b.Before != 0 && tg.host.watched[before]&kind != 0 && tg.stillThere(before)
		if ok && kind == watchTask && b.counted() {
			ok = tg.host.watched[behind]&(watchBehind|watchTask) == watchBehind|watchTask && tg.stillThere(behind)
		}
		if !ok {
			return fmt.Sprintf("the detached probes that were there before don't watch the system call at %s", symbols.OffsetName(b.Func.Symbol.Name, uint64(b.At-b.Func.Start)))
		}
	}
	return ""
}

// stillThere reports whether a jump of detached probes is at an address: a library may have been unloaded and loaded again.
func (tg *Target) stillThere(a symbols.Addr) bool {
	for _, x := range tg.left.pages.Near(uint64(a), uint64(a)+1) {
		if x.Addr == uint64(a) && tg.Holds(a, x.After) {
			return true
		}
	}
	return false
}

// useHost is layWatches for a guest.
func (tg *Target) useHost(ctx context.Context, tasks, rules bool) {
	tg.left.look(tg.Proc.PID())
	places, why, unseen := tg.birthPlaces(true)
	if tasks {
		if why == "" {
			why = tg.misses(places, watchTask)
		}
		if why != "" {
			tg.bar(why)
		}
		tg.births.trusted = why == ""
	}
	if !rules {
		return
	}
	if why := tg.misses(places, watchRules); why != "" {
		tg.unruled(why)
	}
	tg.births.ruled = true
	if !tg.reads() {
		return
	}
	if unseen == "" {
		unseen = tg.layMissing(ctx, places)
	}
	tg.births.unmapping = nil
	if tg.births.unseen = ""; unseen != "" {
		tg.unknown(unseen)
		return
	}
	for _, b := range places {
		if b.Unmaps {
			tg.births.unmapping = append(tg.births.unmapping, b)
		}
	}
}

// layMissing lays the guest's own jumps beside what may end mappings, where its host has none because its hits read
// nothing. They mark the host's pages, which only this guest notes then: no other can lay them, too.
func (tg *Target) layMissing(ctx context.Context, places []bornAt) (why string) {
	var own []bornAt
	for _, b := range places {
		if !b.Unmaps || tg.misses([]bornAt{b}, watchUnmaps) == "" {
			continue
		}
		if tg.host.reads || b.Task || b.Rules {
			return tg.misses([]bornAt{b}, watchUnmaps)
		}
		own = append(own, b)
	}
	if len(own) == 0 {
		return ""
	}
	tg.births.unseen, tg.births.own = "", true
	if _, _, err := tg.layBeside(ctx, own, false, true); err != nil {
		return err.Error()
	}
	return tg.births.unseen
}

// knownToHost reports whether the host's pages are noted already, or can't be any more.
func (tg *Target) knownToHost() (done bool, err error) {
	if tg.host == nil || tg.births.own {
		return false, nil
	}
	var state [1]byte
	if _, err := tg.Proc.ReadMemory(state[:], symbols.Addr(tg.Params.Known+detour.KnownState)); err != nil {
		return false, err
	}
	switch state[0] {
	case 0:
		return false, nil
	case detour.KnownOn:
		tg.births.known = true
		tg.Engine.Logf("process %d: hits ask the kernel once for each page that they read, as those of the detached probes that were there before", tg.Proc.PID())
	default:
		tg.unknown("code was mapped since the first detached probes were left")
	}
	return true, nil
}
