package fetch

import (
	"encoding/binary"
	"strconv"
	"strings"

	"kprobe/symbols"
	"kprobe/symbols/unwind"
)

// The suffix stack of a definition
//
// `p:ev work a=$arg1 stack=8 if a > 3` records the user stack at each hit that
// passes the filter: the general registers and a copy of the stack's innermost
// bytes, at the moment of the hit. Whoever reads the record works the callers
// out of it, as perf record --call-graph dwarf does; so a hit needs no trap.
//
// stack stands behind the arguments and before the filter. A variable of that
// name is fetched as stack=stack.

// Numbers of frames of the suffix stack.
const (
	DefaultStack = 64  // of stack alone
	MaxStack     = 127 // PERF_MAX_STACK_DEPTH of the kernel
)

// stackBytes is how much of the stack is copied for a number of frames: 2 to
// 24 KiB.
func stackBytes(frames int) int {
	switch {
	case frames > DefaultStack:
		return 24 << 10
	case frames > 16:
		return 8 << 10
	}
	return max(512*frames, 2<<10)
}

// takeStack takes the suffix off the words behind the place.
func (d *Def) takeStack(l *line, words []word) ([]word, *SyntaxError) {
	if len(words) == 0 {
		return words, nil
	}
	last := words[len(words)-1]
	number, given := strings.CutPrefix(last.text, "stack=")
	switch {
	case last.text == "stack":
		d.Stack = DefaultStack
	case given && isDecimal(number):
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > MaxStack {
			return nil, l.err(BadStackNum, last.col+len("stack="), "stack=N takes 1 to "+strconv.Itoa(MaxStack)+" frames")
		}
		d.Stack = n
	default:
		return words, nil
	}
	return words[:len(words)-1], nil
}

// stackSuffix is what String writes.
func (d *Def) stackSuffix() string {
	switch d.Stack {
	case 0:
		return ""
	case DefaultStack:
		return " stack"
	}
	return " stack=" + strconv.Itoa(d.Stack)
}

// StackCopy is the part of a record that a stack is worked out of. It lies at
// Slot, behind the fixed values and before texts:
//
//	+0    the 16 general registers, by the numbers of the instruction encoding
//	+128  u64: bytes of the stack that follow, fewer than Bytes where it ended
//	+136  u64: bytes of another stack behind them, which a signal interrupted
//	+144  u64: where those were
//	+152  Bytes bytes from StackBelow below the stack pointer on
//
// Where only some records have one (Mark), it lies behind all that others have: at Slot or
// further on.
type StackCopy struct {
	Frames int // at most
	Slot   int
	Bytes  int // a multiple of 8
	// Mark is, where only some records have a copy, the offset of the u64 that says where
	// it is in a record, 0: it has none. 0: all have one, at Slot.
	Mark int `json:",omitempty"`
}

// Offsets in a StackCopy, and its Size without the bytes of the stack.
const (
	StackCount = 128
	StackMore  = 136
	StackData  = 152
	// StackBelow is the red zone. In epilogues call frame information names slots
	// that are popped already.
	StackBelow = 128
)

// Size is the bytes of the whole.
func (s *StackCopy) Size() int { return StackData + s.Bytes }

// layoutStack assigns the copy its place behind the values.
func (c *compiler) layoutStack(sometimes bool) {
	p := c.prog
	if c.d.Stack == 0 && sometimes {
		p.Stack = &StackCopy{Frames: DefaultStack, Mark: p.Fixed, Slot: p.Fixed + 8, Bytes: stackBytes(DefaultStack)}
		if p.Fixed == 0 { // a mark at 0 would be none
			p.Stack.Mark, p.Stack.Slot = 8, 16
		}
		p.Fixed = p.Stack.Slot
		return
	}
	if c.d.Stack == 0 {
		return
	}
	p.Stack = &StackCopy{Frames: c.d.Stack, Slot: p.Fixed, Bytes: stackBytes(c.d.Stack)}
	p.Fixed += p.Stack.Size()
}

// AppendStack appends the copy of the stack to a record that Eval has made, of a program
// that has one in some of its records only (StackCopy.Mark). Where there is no room for it
// the record stays as it is.
func (p *Program) AppendStack(c *Context, rec []byte) []byte {
	s := p.Stack
	at := (len(rec) + 7) &^ 7
	if s == nil || s.Mark == 0 || at+s.Size() > MaxData {
		return rec
	}
	rec = appendZero(rec, at-len(rec)+s.Size())
	binary.LittleEndian.PutUint64(rec[s.Mark:], uint64(at))
	e := evaluator{c: c, dst: rec}
	e.copyStack(s, at)
	return rec
}

// copyStack is Eval's part: it comes behind the filter.
func (e *evaluator) copyStack(s *StackCopy, slot int) {
	at := e.dst[e.base+slot:][:s.Size()]
	le := binary.LittleEndian
	for i, v := range e.c.Regs.GPR {
		le.PutUint64(at[8*i:], v)
	}
	sp, data := e.c.Regs.GPR[SP], at[StackData:]
	base := sp - StackBelow
	n := e.readUpTo(data, base)
	more := 0
	if end, from, ok := e.leaveAltStack(data[:n], base, sp); ok {
		n = end
		more = e.readUpTo(data[n:], from-StackBelow)
		le.PutUint64(at[StackMore+8:], from-StackBelow)
	}
	clear(data[n+more:])
	le.PutUint64(at[StackCount:], uint64(n))
	le.PutUint64(at[StackMore:], uint64(more))
}

// readUpTo reads what is there of a stack: the whole at once, or where the stack
// ends sooner its pages. n is in whole words.
func (e *evaluator) readUpTo(b []byte, from uint64) (n int) {
	if e.read(b, from) {
		return len(b) &^ 7
	}
	for n < len(b) {
		part := min(len(b)-n, int(pageSize-(from+uint64(n))%pageSize))
		if !e.read(b[n:n+part], from+uint64(n)) {
			break
		}
		n += part
	}
	return n &^ 7
}

// Unwind takes the registers and the stack out of a record. pc is where the
// thread was. ok is false for a record that has none.
func (p *Program) Unwind(rec []byte, pc symbols.Addr, mem *unwind.Stack) (regs unwind.Regs, ok bool) {
	s := p.Stack
	if s == nil {
		return regs, false
	}
	slot := s.Slot
	if s.Mark > 0 {
		if len(rec) < s.Mark+8 {
			return regs, false
		}
		at := binary.LittleEndian.Uint64(rec[s.Mark:])
		if at < uint64(s.Slot) || at > MaxData {
			return regs, false
		}
		slot = int(at)
	}
	if len(rec) < slot+s.Size() {
		return regs, false
	}
	at := rec[slot:][:s.Size()]
	var gpr [16]uint64
	for i := range gpr {
		gpr[i] = binary.LittleEndian.Uint64(at[8*i:])
	}
	n := min(binary.LittleEndian.Uint64(at[StackCount:]), uint64(s.Bytes))
	more := min(binary.LittleEndian.Uint64(at[StackMore:]), uint64(s.Bytes)-n)
	mem.Base, mem.Bytes = gpr[SP]-StackBelow, at[StackData:StackData+n]
	mem.MoreBase, mem.More = binary.LittleEndian.Uint64(at[StackMore+8:]), at[StackData+n:StackData+n+more]
	return symbols.StackRegs(&gpr, pc), true
}
