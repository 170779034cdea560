package inside

import (
	"errors"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/results"
	"kprobe/symbols"
	"kprobe/symbols/unwind"
)

// vmRead reads memory by process_vm_readv, what there is from its start.
func vmRead(pid int, b []byte, at uint64) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	pid = procfs.Living(pid)
	n, err := unix.ProcessVMReadv(pid, []unix.Iovec{iovec(b)}, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if n > 0 || err == nil {
		return n, nil
	}
	if errors.Is(err, syscall.ESRCH) {
		err = symbols.ErrGone
	}
	return 0, err
}

func iovec(b []byte) (v unix.Iovec) {
	v.Base = &b[0]
	v.SetLen(len(b))
	return v
}

// stack walks the stack of a thread that stands still.
func (l *looker) stack(t *results.InsideThread, at *procfs.Position) {
	var r unwind.Regs
	r.Set(unwind.SP, at.SP)
	r.Set(unwind.PC, at.PC)
	t.Frames, t.End = l.walk(r, l.copyStack(at.SP))
	l.mark(t)
}

// copyStack copies a stack, from its pointer to its end.
func (l *looker) copyStack(sp uint64) *unwind.Stack {
	m, ok := l.space.MappingAt(symbols.Addr(sp))
	if !ok {
		if l.space.Refresh() == nil {
			m, ok = l.space.MappingAt(symbols.Addr(sp))
		}
		if !ok {
			return &unwind.Stack{Base: sp}
		}
	}
	b := make([]byte, min(uint64(m.End)-sp, maxCopy))
	n, _ := Memory(l.pid).ReadMemory(b, symbols.Addr(sp))
	return &unwind.Stack{Base: sp, Bytes: b[:n]}
}

// walk gives the frames of a stack, the outermost last.
func (l *looker) walk(r unwind.Regs, mem *unwind.Stack) ([]results.InsideFrame, symbols.StackEnd) {
	l.slots = l.slots[:0]
	list, end := l.walker.Walk(nil, r, mem, maxFrames)
	out := make([]results.InsideFrame, 0, len(list))
	for i, f := range list {
		slot := symbols.Addr(0)
		if i < len(l.slots) {
			slot = l.slots[i] // of the return address of this frame
		}
		out = l.frames(out, f, slot)
	}
	return out, end
}

// frames appends the frame of an address, behind those of calls that were inlined.
func (l *looker) frames(dst []results.InsideFrame, f symbols.StackFrame, slot symbols.Addr) []results.InsideFrame {
	code := f.Addr
	if f.Call {
		code--
	}
	one := results.InsideFrame{Addr: f.Addr, Signal: f.Signal, Guess: f.Guess, Slot: slot}
	if f.Signal {
		one.Name = "<signal handler called>"
		return append(dst, one)
	}
	name, _, _, m, ok := l.space.NameAt(code, true)
	if m != nil {
		one.Module = m.Name
	}
	switch {
	case ok:
		one.Name = name
	case m != nil:
		one.Name = m.Name + ":" + m.Vaddr(f.Addr).String()
	default:
		one.Name = "0x" + strconv.FormatUint(uint64(f.Addr), 16)
	}
	lines := l.space.Frames(code)
	for i := range lines {
		if i == len(lines)-1 {
			one.File, one.Line = lines[i].File, lines[i].Line
			break
		}
		in := one
		in.Name, in.File, in.Line, in.Inlined, in.Slot = lines[i].Func, lines[i].File, lines[i].Line, true, 0
		dst = append(dst, in)
	}
	return append(dst, one)
}

// mark notes which frames are calls that probes have seen begin. A call is known by
// where its return address lies, or, of Go's, by its function.
func (l *looker) mark(t *results.InsideThread) {
	for i := range l.open[t.TID] {
		c := &l.open[t.TID][i]
		for j := range t.Frames {
			f := &t.Frames[j]
			if f.Open == nil && c.Slot != 0 && f.Slot == c.Slot {
				f.Open = c
				break
			}
		}
	}
}
