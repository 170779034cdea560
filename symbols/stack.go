package symbols

import (
	"bytes"
	"time"

	"github.com/go-delve/delve/pkg/dwarf/regnum"

	"kprobe/symbols/unwind"
)

// How a stack is walked
//
// A walk goes from the innermost frame outwards. For each frame, the first of these sources that
// knows the code says where the caller is:
//
//  1. a signal's frame, known by the instructions that return from it: the
//     interrupted registers lie in the ucontext (linux/arch/x86, rt_sigframe);
//  2. runtime.goexit, where a goroutine's stack ends;
//  3. call frame information (.eh_frame, .debug_frame);
//  4. Go's own table of frame sizes (.gopclntab), also in stripped files;
//  5. the first instructions of a function, before anything is pushed;
//  6. the frame pointer, which JIT compilers and hand-written code keep. CPython's trampolines
//     don't; they are known by the instructions after their call.
//
// Each frame lies above the one before it, so a walk is finite. The exception is a signal, which
// may have a stack of its own.

// StackEnd says why a stack has no more frames.
type StackEnd uint8

// The ends of a stack.
const (
	StackWhole     StackEnd = iota // the outermost function, or as many as were asked for
	StackTruncated                 // the caller's frame is not in what was copied of the stack
	StackUnknown                   // nothing says where the caller is
)

// String names the end: "", "truncated" or "unknown".
func (e StackEnd) String() string {
	switch e {
	case StackTruncated:
		return "truncated"
	case StackUnknown:
		return "unknown"
	}
	return ""
}

// StackFrame is one frame of a stack.
type StackFrame struct {
	Addr Addr
	// Call says that the address is a return address: the call is the instruction before
	// it. Otherwise the instruction at the address runs next, as in the innermost frame and
	// where a signal interrupted.
	Call bool
	// Signal says that the frame is the kernel's, between a signal handler and the code that
	// the signal interrupted.
	Signal bool
	// Guess says that the frame, or one before it, was found by searching the stack
	// (Walker.Guess), so that it may be wrong.
	Guess bool
}

// Walker walks stacks of one process. It remembers what it has learned about code, for at most
// maxSteps places. It is not safe for concurrent use.
type Walker struct {
	space  *Space
	seen   *view
	steps  map[stepKey]*step
	looked time.Time // when the mappings were last read
	// Behind, if set, returns what a return address stands for. For a return trampoline of
	// kprobe's that is the address to which it returns, or 0 if that isn't known. Other
	// addresses stand for themselves. slot is where on the stack the address was.
	Behind func(ra, slot Addr) Addr
	// Guess makes a walk search the stack for the frame pointer where it is needed and not
	// known. For a thread that isn't stopped, only the stack pointer is known. The frames
	// from there on have Guess set.
	Guess bool
}

// NewWalker makes a Walker of a process.
func NewWalker(s *Space) *Walker { return &Walker{space: s} }

// maxSteps limits what a Walker remembers, to some 60 MB.
const maxSteps = 1 << 16

type stepKey struct {
	pc    Addr
	exact bool
}

// step says how to get from the code at an address to its caller.
type step struct {
	kind stepKind
	row  unwind.Row
	size uint64 // of stepFixed: how far the caller's stack pointer is above
	bare bool   // of stepFixed: %rbp still has the caller's value
}

type stepKind uint8

const (
	stepPointer stepKind = iota // by the frame pointer
	stepRow
	stepSignal
	stepFixed // by the stack pointer
	stepLast  // there is no caller
)

// Walk appends the frames of a stack: the address in r, then the return addresses of the calls
// that lead there. It appends at most max frames.
func (w *Walker) Walk(dst []StackFrame, r unwind.Regs, mem unwind.Memory, max int) ([]StackFrame, StackEnd) {
	w.current()
	exact, guess := true, false
	for range max {
		pc := Addr(r.V[unwind.PC])
		st := w.step(pc, exact)
		dst = append(dst, StackFrame{Addr: pc, Call: !exact && st.kind != stepSignal, Signal: st.kind == stepSignal, Guess: guess})
		before := r.V[unwind.SP]
		end := st.caller(&r, mem)
		if end == unwind.Unknown && w.Guess && w.guess(&r, mem, pc) {
			guess = true
			end = st.caller(&r, mem)
		}
		if end == unwind.Going && w.Behind != nil {
			ra := w.Behind(Addr(r.V[unwind.PC]), Addr(r.V[unwind.SP]-8))
			if r.V[unwind.PC] = uint64(ra); ra == 0 {
				end = unwind.Unknown
			}
		}
		exact = st.kind == stepSignal || st.kind == stepRow && st.row.Signal
		switch {
		case end == unwind.Outmost:
			return dst, StackWhole
		case end == unwind.Missing:
			return dst, StackTruncated
		case end != unwind.Going, !exact && r.V[unwind.SP] <= before:
			return dst, StackUnknown
		}
		if !w.inCode(Addr(r.V[unwind.PC])) {
			return dst, w.strange(&r, st)
		}
	}
	return dst, StackWhole
}

// refreshPause is the shortest time between two reads of the mappings.
const refreshPause = 100 * time.Millisecond

// inCode reports whether an address is in code, including code that was mapped since the
// mappings were last read. JIT compilers remove the right to execute from their code while
// they write to it, so memory without a file may be code at any time.
func (w *Walker) inCode(a Addr) bool {
	m, ok := w.seen.mapping(a)
	if !ok && a > 1<<16 && time.Since(w.looked) > refreshPause && w.space.pid != 0 {
		w.looked = time.Now()
		if w.space.Refresh() == nil {
			w.current()
			m, ok = w.seen.mapping(a)
		}
	}
	return ok && (m.Exec || m.Path == "")
}

// current forgets what was learned if the mappings have changed.
func (w *Walker) current() {
	if v := w.space.now.Load(); v != w.seen || len(w.steps) > maxSteps {
		w.seen, w.steps = v, map[stepKey]*step{}
	}
}

// strange returns the end of a stack whose next return address is not in code. If the frame
// pointer led there, this is also how stacks normally end.
func (w *Walker) strange(r *unwind.Regs, st *step) StackEnd {
	if st.kind == stepPointer && r.V[unwind.PC] < 4096 {
		return StackWhole
	}
	return StackUnknown
}

// mapping finds the mapping that holds an address.
func (v *view) mapping(a Addr) (Mapping, bool) {
	lo, hi := 0, len(v.maps)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); v.maps[mid].Start <= a {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || !v.maps[lo-1].Contains(a) {
		return Mapping{}, false
	}
	return v.maps[lo-1], true
}

// step finds how to leave the code at an address. If exact is set, the instruction there runs
// next. Otherwise it is a return address, and the call is the instruction before.
func (w *Walker) step(pc Addr, exact bool) *step {
	key := stepKey{pc, exact}
	st := w.steps[key]
	if st == nil {
		st = w.learn(pc, exact)
		w.steps[key] = st
	}
	return st
}

// learn looks up an address. For a return address, it uses the call frame information of the
// call.
func (w *Walker) learn(pc Addr, exact bool) *step {
	m := w.seen.moduleAt(pc)
	st := &step{}
	if m == nil {
		if !exact && w.space.returnsAt(pc) {
			st.kind, st.size, st.bare = stepFixed, 16, true
		}
		return st
	}
	if code, err := m.File.Text(m.Vaddr(pc), len(signalReturn)); err == nil && bytes.Equal(code, signalReturn) {
		st.kind = stepSignal
		return st
	}
	at := m.Vaddr(pc)
	if !exact {
		at--
	}
	if m.File.goOutermost(at) {
		st.kind = stepLast
		return st
	}
	if row, ok := m.File.frameAt(at); ok {
		st.kind, st.row = stepRow, row
		return st
	}
	if size, ok := m.File.goFrameSize(at); ok {
		st.kind, st.size = stepFixed, size+8
		return st
	}
	if exact {
		m.prologue(st, at)
	}
	return st
}

// signalReturn is mov $15,%rax; syscall. The kernel makes every signal handler return to this
// code.
var signalReturn = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}

// returnsAt reports whether add $8,%rsp; ret stands at an address. CPython's trampolines for
// perf have it (Python/asm_trampoline.S, 3.12); they keep no frame pointer.
func (s *Space) returnsAt(a Addr) bool {
	want := []byte{0x48, 0x83, 0xc4, 0x08, 0xc3}
	if s.mem == nil {
		return false
	}
	code := make([]byte, len(want))
	n, err := s.mem.ReadMemory(code, a)
	return err == nil && n == len(want) && bytes.Equal(code, want)
}

// prologue recognizes push %rbp, and what may stand before it, in functions that nothing else
// describes.
func (m *Module) prologue(st *step, at Vaddr) {
	fn, ok := m.File.FuncAt(at)
	if !ok || fn.Start == 0 {
		return
	}
	code, err := m.File.Text(fn.Start, 5)
	if err != nil {
		return
	}
	skip := Vaddr(0)
	if bytes.Equal(code[:4], []byte{0xf3, 0x0f, 0x1e, 0xfa}) { // endbr64
		skip = 4
	}
	switch off := at - fn.Start; {
	case off <= skip:
		st.kind, st.size = stepFixed, 8
	case off == skip+1 && code[skip] == 0x55: // push %rbp
		st.kind, st.size = stepFixed, 16
	}
}

// caller changes r to the registers of the caller.
func (st *step) caller(r *unwind.Regs, mem unwind.Memory) unwind.End {
	switch st.kind {
	case stepRow:
		return st.row.Caller(r, mem)
	case stepSignal:
		return interrupted(r, mem)
	case stepFixed:
		sp := r.V[unwind.SP] + st.size
		ra, ok := mem.Word(sp - 8)
		if !ok {
			return unwind.Missing
		}
		if st.size > 8 && !st.bare { // Go saves %rbp below the return address
			if bp, ok := mem.Word(sp - 16); ok {
				r.Set(regnum.AMD64_Rbp, bp)
			}
		}
		r.Set(unwind.SP, sp)
		r.Set(unwind.PC, ra)
	case stepPointer:
		bp, ok := r.Get(regnum.AMD64_Rbp)
		switch {
		case !ok || bp&7 != 0 || bp < r.V[unwind.SP]:
			return unwind.Unknown
		case bp == 0:
			return unwind.Outmost
		}
		saved, ok := mem.Word(bp)
		ra, ok2 := mem.Word(bp + 8)
		if !ok || !ok2 {
			return unwind.Missing
		}
		out := unwind.Regs{}
		out.Set(regnum.AMD64_Rbp, saved)
		out.Set(unwind.SP, bp+16)
		out.Set(unwind.PC, ra)
		*r = out
	default:
		return unwind.Outmost
	}
	if r.V[unwind.PC] == 0 {
		return unwind.Outmost
	}
	return unwind.Going
}

// interrupted reads the registers that a signal interrupted. The stack pointer leads to the
// ucontext, whose sigcontext begins at 40 (asm/sigcontext.h).
func interrupted(r *unwind.Regs, mem unwind.Memory) unwind.End {
	const gregs = 40
	order := [...]int{
		regnum.AMD64_R8, regnum.AMD64_R9, regnum.AMD64_R10, regnum.AMD64_R11, regnum.AMD64_R12, regnum.AMD64_R13, regnum.AMD64_R14, regnum.AMD64_R15,
		regnum.AMD64_Rdi, regnum.AMD64_Rsi, regnum.AMD64_Rbp, regnum.AMD64_Rbx, regnum.AMD64_Rdx, regnum.AMD64_Rax, regnum.AMD64_Rcx, unwind.SP, unwind.PC,
	}
	out := unwind.Regs{}
	for i, n := range order {
		v, ok := mem.Word(r.V[unwind.SP] + gregs + 8*uint64(i))
		if !ok {
			return unwind.Missing
		}
		out.Set(n, v)
	}
	*r = out
	return unwind.Going
}

// StackRegs converts the general registers of a thread for unwinding. gpr is in the order of
// the instruction encoding: ax, cx, dx, bx, sp, bp, si, di, r8 … r15.
func StackRegs(gpr *[16]uint64, pc Addr) unwind.Regs {
	order := [16]int{
		regnum.AMD64_Rax, regnum.AMD64_Rcx, regnum.AMD64_Rdx, regnum.AMD64_Rbx, regnum.AMD64_Rsp, regnum.AMD64_Rbp, regnum.AMD64_Rsi, regnum.AMD64_Rdi,
		regnum.AMD64_R8, regnum.AMD64_R9, regnum.AMD64_R10, regnum.AMD64_R11, regnum.AMD64_R12, regnum.AMD64_R13, regnum.AMD64_R14, regnum.AMD64_R15,
	}
	var r unwind.Regs
	for i, n := range order {
		r.Set(n, gpr[i])
	}
	r.Set(unwind.PC, uint64(pc))
	return r
}

// frameAt finds call frame information. It tries .eh_frame, which covers almost all code,
// before debug information.
func (f *File) frameAt(v Vaddr) (unwind.Row, bool) {
	if row, ok := f.ehTable().At(uint64(v)); ok {
		return row, true
	}
	return f.Unwind().At(uint64(v))
}

func (f *File) ehTable() *unwind.Table {
	return f.ehRows.get(func() (t *unwind.Table) {
		t = &unwind.Table{}
		var err error
		defer rescue(f.Path, &err)
		if eh := f.im.ehFrame(); eh != nil {
			t = unwind.New(eh)
		}
		return t
	})
}

// Warm reads from the modules' files what walking stacks and naming frames needs, so that the
// first stacks don't wait for it.
func (s *Space) Warm() {
	for _, m := range s.Modules() {
		m.File.ehTable()
		m.File.functions()
	}
}
