package gocode

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// Program is a file that Go's linker made, for what is to be known of other
// functions than the one that is looked at. It reads the file when it is asked. It is
// safe for concurrent use.
type Program struct {
	file *symbols.File

	mu       sync.Mutex
	callers  map[symbols.Vaddr][]caller // by the start of a function in assembly
	indirect lives                      // alive behind calls through tables in assembly
	entered  map[symbols.Vaddr]lives
	saved    map[symbols.Vaddr]lives
	left     map[symbols.Vaddr]lives
}

// caller is an instruction that leads into a function in assembly.
type caller struct {
	fn     symbols.Func
	at, to symbols.Vaddr
	call   bool
}

// NewProgram makes the Program of a file.
func NewProgram(file *symbols.File) *Program {
	return &Program{file: file, entered: map[symbols.Vaddr]lives{}, saved: map[symbols.Vaddr]lives{}, left: map[symbols.Vaddr]lives{}}
}

// trace is function.trace with what the whole file says.
func (p *Program) trace(f *function, vaddr symbols.Vaddr, kind symbols.GoKind) alive {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.trace(vaddr, kind, p.leaves(vaddr, kind), p)
}

// tls is where a thread's goroutine is noted, as an offset in the segment fs; 0 is
// unknown.
func (p *Program) tls() int32 {
	if off, ok := p.file.GoTLS(); ok {
		return int32(off)
	}
	return 0
}

func (p *Program) kind(v symbols.Vaddr) symbols.GoKind { return p.file.GoKind(v) }

// decode takes the function that v lies in apart, where the file has it.
func (p *Program) decode(v symbols.Vaddr) (fn symbols.Func, f *function) {
	fn, ok := p.file.FuncAt(v)
	if !ok || fn.End <= fn.Start {
		return fn, nil
	}
	code, err := p.file.Text(fn.Start, int(fn.End-fn.Start))
	if err != nil || len(code) < int(fn.End-fn.Start) {
		return fn, nil
	}
	sweep, err := insn.Sweep(code, uint64(fn.Start), insn.SweepOptions{})
	if err != nil || len(sweep.Desyncs()) > 0 {
		return fn, nil
	}
	return fn, &function{code, uint64(fn.Start), sweep}
}

func (p *Program) handed() lives { return allLives &^ scratch }

func (p *Program) uses(v symbols.Vaddr) lives { return p.usesOf(v, p.entered, p) }

// own is a Program for which nothing is handed to the compiler's functions but what
// can be a parameter of few: what assembly uses by itself.
type own struct{ *Program }

func (o own) handed() lives { return o.Program.handed() &^ noResult &^ scratch }

func (o own) uses(v symbols.Vaddr) lives { return o.usesOf(v, o.saved, o) }

// usesOf is what assembly that is entered at v uses, found with c; known has what
// was found before.
func (p *Program) usesOf(v symbols.Vaddr, known map[symbols.Vaddr]lives, c conventions) lives {
	if l, ok := known[v]; ok {
		return l
	}
	known[v] = allLives // in a loop of calls
	fn, f := p.decode(v)
	if f == nil || p.kind(fn.Start) != symbols.GoAssembled {
		return allLives
	}
	known[v] = f.trace(fn.Start, symbols.GoAssembled, 0, c).at(uint64(v))
	return known[v]
}

// leaves is what is alive behind the return of a function that starts at v.
func (p *Program) leaves(v symbols.Vaddr, kind symbols.GoKind) lives {
	switch l, ok := p.left[v]; {
	case kind == symbols.GoCompiled:
		return allLives &^ scratch
	case kind != symbols.GoAssembled:
		return allLives
	case ok:
		return l
	}
	p.left[v] = allLives // in a loop of jumps
	_, f := p.decode(v)
	if f == nil {
		return allLives
	}
	p.findCallers()
	free := noResult
	for _, c := range p.callers[v] {
		if p.kind(c.fn.Start) == symbols.GoCompiled {
			free |= scratch
			break
		}
	}
	l := allLives&^free | own{p}.uses(v) | p.indirect
	// The compiler takes a call to change all registers, but for those of functions
	// that save what they use, and those that it enters in their middle.
	entered := slices.ContainsFunc(p.callers[v], func(c caller) bool { return c.to != v })
	seen := map[symbols.Vaddr]alive{}
	for _, c := range p.callers[v] {
		ask, kind := free&^l, p.kind(c.fn.Start)
		if ask == 0 || kind == symbols.GoCompiled && !entered {
			continue
		}
		left := p.leaves(c.fn.Start, kind)
		if !c.call {
			l |= ask & left
			continue
		}
		in, ok := seen[c.fn.Start]
		if !ok {
			if _, g := p.decode(c.fn.Start); g != nil {
				in = g.trace(c.fn.Start, kind, left, p)
			}
			seen[c.fn.Start] = in
		}
		l |= ask & in.behind(uint64(c.at))
	}
	p.left[v] = l
	return l
}

// findCallers finds what leads into functions in assembly, once: calls, and jumps
// between functions, all of which the assembler gives 32 bits.
func (p *Program) findCallers() {
	if p.callers != nil {
		return
	}
	p.callers = map[symbols.Vaddr][]caller{}
	var assembled, all []symbols.Func
	for fn := range p.file.EachFunc() {
		if fn.End <= fn.Start {
			continue
		}
		all = append(all, fn)
		if p.kind(fn.Start) == symbols.GoAssembled {
			assembled = append(assembled, fn)
		}
	}
	byStart := func(f symbols.Func, v symbols.Vaddr) int { return cmp.Compare(f.Start, v) }
	in := func(v symbols.Vaddr) (symbols.Func, bool) {
		n, ok := slices.BinarySearchFunc(assembled, v, byStart)
		if !ok {
			n--
		}
		if n < 0 || v >= assembled[n].End {
			return symbols.Func{}, false
		}
		return assembled[n], true
	}
	for _, fn := range all {
		code, err := p.file.Text(fn.Start, int(fn.End-fn.Start))
		if err != nil {
			continue
		}
		var sweep *insn.Function
		for n := 0; n+5 <= len(code); n++ {
			at, call := n, code[n] == 0xe8
			if !call && code[n] != 0xe9 {
				if code[n]&0xf0 != 0x80 || n == 0 || code[n-1] != 0x0f {
					continue
				}
				at--
			}
			end := fn.Start + symbols.Vaddr(n+5)
			target := end + symbols.Vaddr(int64(int32(binary.LittleEndian.Uint32(code[n+1:]))))
			to, ok := in(target)
			if !ok || to.Start == fn.Start {
				continue
			}
			if sweep == nil {
				if sweep, err = insn.Sweep(code, uint64(fn.Start), insn.SweepOptions{}); err != nil {
					break
				}
			}
			if v := fn.Start + symbols.Vaddr(at); sweep.Boundary(uint64(v)) || len(sweep.Desyncs()) > 0 {
				p.callers[to.Start] = append(p.callers[to.Start], caller{fn, v, target, call})
			}
		}
	}
	for _, fn := range assembled {
		_, f := p.decode(fn.Start)
		if f == nil {
			continue
		}
		var in alive
		for at, i := range f.sweep.All() {
			if i.Flags.Any(insn.IndirectCall) && f.fromTable(at, i) {
				if in == nil {
					in = f.trace(fn.Start, symbols.GoAssembled, allLives&^noResult, p)
				}
				p.indirect |= in.behind(at) & (noResult | scratch)
			}
		}
	}
}

// fromTable reports whether an indirect call may be one through a table of
// functions, which may keep to a convention of their own. Others are of functions of
// Go, or of C, that may change what theirs says.
func (f *function) fromTable(at uint64, call insn.Inst) bool {
	indexed := func(at uint64, i insn.Inst) bool {
		_, index, _, _, ok := i.Mem(f.code[at-f.start:])
		return ok && index != insn.NoReg
	}
	if indexed(at, call) {
		return true
	}
	for a, i := range f.sweep.All() {
		if i.Flags.Any(insn.MemRead) && i.RegsWritten()&call.RegsRead() != 0 && indexed(a, i) {
			return true
		}
	}
	return false
}
