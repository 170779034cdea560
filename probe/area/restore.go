package area

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/probe/memory"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// How writes leave the text
//
// There is one way, whether probes are removed and others stay, a session leaves, or a later
// kprobe recovers. All threads that run in the text are stopped. A write that leads to other
// writes is undone before them, so that nothing leads to bytes that are gone if kprobe is
// killed in between. Whatever is written there next, a stopped thread continues where the
// program has an instruction:
//
//	at a long jump        to which a short one has led it: back at the short jump, as only its
//	                      instruction pointer has changed since. The same holds for a thread
//	                      that a signal interrupted there while no tracer lived, once the
//	                      handler returns
//	at a byte that traps  with the signal not handled yet: at that byte, which is the program's
//	                      again. A SIGILL is dropped here. The trap of an int3 is recognised
//	                      by the missing int3, by the tracer that goes on (package engine,
//	                      strayTrap) or the one that leaves (moveOut)
//	in a copy, a detour   there: the code stays for as long as a thread is in it, and whoever
//	                      unmaps it leads the thread out first (vacate)
//	anywhere else         there

// Write is a write of the text that is to be undone. Old is what kprobe has written, New what
// was there before.
type Write struct {
	memory.Change
	// Leads says that the write leads to other writes of its patch, or consists of their
	// bytes.
	Leads bool
}

// JmpRel8 is the opcode of a short jump (Intel SDM vol. 2, JMP).
const JmpRel8 = 0xeb

// short reports whether the write is that of a short jump. If the displacement equals the byte
// that was there, only the opcode was written.
func (w *Write) short() bool { return bytes.HasPrefix(w.Old, []byte{JmpRel8}) }

// lifted reports whether the write had changed the byte at an address, and is undone.
func (w *Write) lifted(a uint64) bool {
	i := a - w.At
	return w.Wrote && a >= w.At && i < uint64(min(len(w.Old), len(w.New))) && w.Old[i] != w.New[i]
}

// Restore undoes writes of a process's text. Every thread that runs in the text must be
// stopped. It sets Done of each write that is undone or was no longer there; after an error, of
// each that is undone nevertheless.
func Restore(p *tracee.Process, list []*Write, stopped []*tracee.Thread) error {
	var leading, rest []*Write
	for _, w := range list {
		if w.Leads {
			leading = append(leading, w)
		} else {
			rest = append(rest, w)
		}
	}
	if err := leaveLongJumps(p, leading, stopped); err != nil {
		return err
	}
	if err := undoAll(p, leading); err != nil {
		return err
	}
	if err := undoAll(p, rest); err != nil {
		return err
	}
	// One may lie under a breakpoint that has just gone.
	covered := slices.DeleteFunc(leading, func(w *Write) bool { return w.Wrote })
	if err := undoAll(p, covered); err != nil {
		return err
	}
	dropGuards(list, stopped)
	return nil
}

// leaveLongJumps moves threads that have executed a short jump, and nothing after it, back to
// it. Once the text is restored, no instruction starts at the long jump.
func leaveLongJumps(p *tracee.Process, leading []*Write, stopped []*tracee.Thread) error {
	shorts := shortsOf(leading)
	if len(shorts) == 0 {
		return nil
	}
	targets := map[*Write]uint64{} // of those that were asked for
	for _, t := range stopped {
		regs, err := t.Regs()
		if err != nil || t.AtTrap() {
			continue // gone, or in the kernel, or at a breakpoint right before the long jump
		}
		from, ok := shortTo(p, shorts, targets, regs.Rip)
		if !ok {
			continue
		}
		regs.Rip = from
		if err := t.SetRegs(regs); err != nil && !errors.Is(err, tracee.ErrGone) {
			return err
		}
	}
	return nil
}

// shortsOf returns the writes that are short jumps, in order of address.
func shortsOf(list []*Write) (shorts []*Write) {
	for _, w := range list {
		if w.Leads && w.short() {
			shorts = append(shorts, w)
		}
	}
	slices.SortFunc(shorts, func(a, b *Write) int { return cmp.Compare(a.At, b.At) })
	return shorts
}

// leadInterrupted handles threads that a signal interrupted at a long jump, and whose handler
// has not returned: they will return to the short jump. This can happen because nobody holds
// signals after the tracer's death, or once probes are left alone.
func leadInterrupted(p *tracee.Process, list []*Write, stopped []*tracee.Thread) error {
	shorts, targets := shortsOf(list), map[*Write]uint64{}
	if len(shorts) == 0 {
		return nil
	}
	for _, t := range stopped {
		if err := t.LeadInterrupted(func(pc symbols.Addr) (symbols.Addr, bool) {
			from, ok := shortTo(p, shorts, targets, uint64(pc))
			return symbols.Addr(from), ok
		}); err != nil {
			return err
		}
	}
	return nil
}

// How far a short jump reaches from its address: backward, and forward.
const (
	shortBack    = 126
	shortForward = 129
)

// shortTo finds the short jump in the text that leads to an address. shorts are in order of
// address.
func shortTo(p *tracee.Process, shorts []*Write, targets map[*Write]uint64, a uint64) (from uint64, ok bool) {
	first, _ := slices.BinarySearchFunc(shorts, a-min(a, shortForward), func(w *Write, at uint64) int { return cmp.Compare(w.At, at) })
	for _, w := range shorts[first:] {
		if w.At > a+shortBack {
			break
		}
		to, known := targets[w]
		if !known {
			var now [2]byte
			if _, err := p.ReadMemory(now[:], symbols.Addr(w.At)); err == nil && bytes.HasPrefix(now[:], w.Old) {
				to = w.At + 2 + uint64(int8(now[1]))
			} // else its file was unmapped, or it isn't in the text
			targets[w] = to
		}
		if to == a {
			return w.At, true
		}
	}
	return 0, false
}

// dropGuards drops the SIGILL of threads at a guard that was undone.
func dropGuards(list []*Write, stopped []*tracee.Thread) {
	for _, t := range stopped {
		if sig, ok := t.Signal(); !ok || sig != unix.SIGILL {
			continue
		}
		regs, err := t.Regs()
		if err == nil && slices.ContainsFunc(list, func(w *Write) bool { return w.lifted(regs.Rip) }) {
			t.DropFault(unix.SIGILL)
		}
	}
}

// mostOver bounds how many writes lie over each other. Sessions make a handful.
const mostOver = 16

// errWritesOver says that the journal is one that no session writes.
var errWritesOver = errors.New("the journal has more writes over each other than there can be")

// undoAll undoes those of the writes that are in the text, each once. A write under another one
// is found after that one is undone.
func undoAll(p *tracee.Process, list []*Write) error {
	for range mostOver {
		var left []*Write
		overlaps, undone := false, false
		depth := 0
		for todo := list; len(todo) > 0; depth++ {
			if depth == mostOver {
				return errWritesOver
			}
			batch, later := disjoint(todo)
			if err := undo(p, batch); err != nil {
				return err
			}
			for _, w := range batch {
				if w.Wrote {
					undone = true
				} else {
					left = append(left, w)
				}
			}
			overlaps = overlaps || len(later) > 0
			todo = later
		}
		if !overlaps || !undone {
			return nil
		}
		list = left
	}
	return errWritesOver
}

// undo undoes writes that don't overlap. They must be in order of address.
func undo(p *tracee.Process, batch []*Write) error {
	list := make([]memory.Change, len(batch))
	for i, w := range batch {
		list[i] = w.Change
	}
	err := memory.Rewrite(p, list)
	for i, w := range batch {
		w.Change = list[i]
	}
	return err
}

// disjoint splits writes into some that don't overlap, and the others.
func disjoint(list []*Write) (some, others []*Write) {
	slices.SortStableFunc(list, func(a, b *Write) int { return cmp.Compare(a.At, b.At) })
	for _, w := range list {
		if n := len(some); n > 0 && w.At < some[n-1].End() {
			others = append(others, w)
		} else {
			some = append(some, w)
		}
	}
	return some, others
}
