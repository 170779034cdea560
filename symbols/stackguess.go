package symbols

import (
	"encoding/binary"

	"github.com/go-delve/delve/pkg/dwarf/regnum"

	"kprobe/symbols/unwind"
)

// guessed limits how far up a stack a frame pointer is searched, in bytes.
const guessed = 64 << 10

// guess searches the stack for the place where a function that runs at pc has saved its
// caller's frame pointer, below its return address. It takes the first place with a possible
// frame pointer whose return address follows a call of that function. If there is none, it
// takes the first one whose return address follows any call.
func (w *Walker) guess(r *unwind.Regs, mem unwind.Memory, pc Addr) bool {
	if _, known := r.Get(regnum.AMD64_Rbp); known {
		return false
	}
	m := w.seen.moduleAt(pc)
	if m == nil {
		return false
	}
	start := Addr(0)
	if fn, ok := m.File.FuncAt(m.Vaddr(pc) - 1); ok {
		start = m.Addr(fn.Start)
	}
	sp, found := r.V[unwind.SP]&^7, uint64(0)
	for at := sp; at < sp+guessed; at += 8 {
		saved, ok := mem.Word(at)
		ra, ok2 := mem.Word(at + 8)
		if !ok || !ok2 {
			break
		}
		if saved != 0 && (saved&7 != 0 || saved <= at || saved-at > oneStack) || ra < 1<<16 {
			continue
		}
		target, ok := w.callBefore(Addr(ra))
		if !ok {
			continue
		}
		if target != 0 && target == start {
			found = at
			break
		}
		if found == 0 && target == 0 {
			found = at
		}
	}
	if found == 0 {
		return false
	}
	r.Set(regnum.AMD64_Rbp, found)
	return true
}

// oneStack limits the distance between two frames of a stack.
const oneStack = 64 << 20

// callBefore reports whether a call stands before an address, and which function it calls. 0
// means unknown, as for calls by a pointer or through the procedure linkage table.
func (w *Walker) callBefore(ra Addr) (target Addr, ok bool) {
	m := w.seen.moduleAt(ra)
	if m == nil {
		return 0, false
	}
	const longest = 7
	code, err := m.File.Text(m.Vaddr(ra)-longest, longest)
	if err != nil || len(code) < longest {
		return 0, false
	}
	if code[2] == 0xe8 {
		target = ra + Addr(int64(int32(binary.LittleEndian.Uint32(code[3:]))))
		if fn, ok := m.File.FuncAt(m.Vaddr(target)); ok && m.Addr(fn.Start) == target {
			return target, true
		}
		return 0, w.inCode(target)
	}
	// ff /2, in its lengths of two to seven bytes.
	for n := 2; n <= longest; n++ {
		if b := code[longest-n:]; b[0] == 0xff && b[1]>>3&7 == 2 {
			return 0, true
		}
	}
	return 0, false
}
