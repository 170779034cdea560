package detour

import (
	"encoding/binary"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// element is a condition for one character of a text.
type element struct {
	any     bool
	literal byte
	class   *[32]byte // bit set; nil: the literal
}

// pattern is a parsed text operand: segments, with anything between them. A pattern of one segment must match
// the whole text.
type pattern [][]element

// literalPattern matches a text that equals s.
func literalPattern(s string) pattern {
	seg := make([]element, len(s))
	for i := range seg {
		seg[i].literal = s[i]
	}
	return pattern{seg}
}

// parsePattern parses a glob as fetch matches it: *, ?, […], [!…], and \ before a literal character. A [ that
// is never closed is a literal.
func parsePattern(s string) pattern {
	p := pattern{nil}
	for i := 0; i < len(s); i++ {
		e := element{literal: s[i]}
		switch s[i] {
		case '*':
			p = append(p, nil)
			continue
		case '?':
			e.any = true
		case '\\':
			if i+1 < len(s) {
				i++
				e.literal = s[i]
			}
		case '[':
			if set, n := parseClass(s[i:]); n > 0 {
				e.class = set
				i += n - 1
			}
		}
		p[len(p)-1] = append(p[len(p)-1], e)
	}
	return p
}

// parseClass reads a class at the start of s; n is 0 if it is never closed.
func parseClass(s string) (set *[32]byte, n int) {
	set = new([32]byte)
	i, invert := 1, false
	if i < len(s) && s[i] == '!' {
		invert = true
		i++
	}
	for first := true; i < len(s); first = false {
		lo := s[i]
		if lo == ']' && !first {
			if invert {
				for k := range set {
					set[k] = ^set[k]
				}
			}
			return set, i + 1
		}
		hi := lo
		if i+2 < len(s) && s[i+1] == '-' && s[i+2] != ']' {
			hi = s[i+2]
			i += 2
		}
		i++
		for c := int(lo); c <= int(hi); c++ {
			set[c/8] |= 1 << (c % 8)
		}
	}
	return nil, 0
}

// least is the length of the shortest text that can match.
func (p pattern) least() int {
	n := 0
	for _, seg := range p {
		n += len(seg)
	}
	return n
}

// textMatch matches the text whose temporaries are at off. The code continues at yes or no, or at fault if the
// text can't be read. Changes AX, DX, DI, R8 … R10.
func (b *builder) textMatch(off int, p pattern, yes, no, fault asm.Label) {
	b.Load(asm.W64, asm.DX, b.frame.temp(off+textWord))
	b.Test(asm.W64, asm.DX, asm.DX)
	b.Jcc(asm.S, fault)
	b.ShiftImm(asm.Shr, asm.W64, asm.DX, 32)
	b.MovZX(asm.W16, asm.DX, asm.DX)
	b.OpImm(asm.Cmp, asm.W32, asm.DX, int32(p.least()))
	if len(p) == 1 {
		b.Jcc(asm.NE, no)
	} else {
		b.Jcc(asm.B, no)
	}
	first, last := p[0], p[len(p)-1]
	b.Load(asm.W64, asm.R9, b.frame.temp(off+textAddr))
	if len(p) > 1 {
		// R8 = where the last segment must start
		b.Lea(asm.R8, asm.Indexed(asm.R9, asm.DX, 1, int32(-len(last))))
	}
	b.segmentAt(first, no, fault)
	if len(p) == 1 {
		b.Jmp(yes)
		return
	}
	b.OpImm(asm.Add, asm.W64, asm.R9, int32(len(first)))
	for _, seg := range p[1 : len(p)-1] {
		if len(seg) == 0 {
			continue
		}
		// Search the leftmost match of the segment: if any match leads to yes, this one does.
		found, other := b.NewLabel(), b.NewLabel()
		try := b.Mark()
		b.Lea(asm.AX, asm.At(asm.R9, int32(len(seg))))
		b.Op(asm.Cmp, asm.W64, asm.AX, asm.R8)
		b.Jcc(asm.A, no)
		b.segmentAt(seg, other, fault)
		b.Jmp(found)
		b.Bind(other)
		b.OpImm(asm.Add, asm.W64, asm.R9, 1)
		b.Jmp(try)
		b.Bind(found)
		b.OpImm(asm.Add, asm.W64, asm.R9, int32(len(seg)))
	}
	b.Mov(asm.W64, asm.R9, asm.R8)
	b.segmentAt(last, no, fault)
	b.Jmp(yes)
}

// segmentAt continues at no unless the text at R9 matches the segment. Changes AX, DX.
func (b *builder) segmentAt(seg []element, no, fault asm.Label) {
	for i := 0; i < len(seg); {
		e := &seg[i]
		if e.any {
			i++
			continue
		}
		if e.class != nil {
			b.mayFault(fault)
			b.LoadZX(asm.W8, asm.AX, asm.At(asm.R9, int32(i)))
			b.BtMem(asm.W64, asm.Rel(b.data(e.class[:])), asm.AX)
			b.Jcc(asm.AE, no)
			i++
			continue
		}
		n := 0 // number of consecutive literals
		for i+n < len(seg) && n < 8 && !seg[i+n].any && seg[i+n].class == nil {
			n++
		}
		w := asm.W64
		for int(w) > n {
			w >>= 1
		}
		var v [8]byte
		for k := range int(w) {
			v[k] = seg[i+k].literal
		}
		b.MovImm(asm.DX, binary.LittleEndian.Uint64(v[:]))
		b.mayFault(fault)
		b.OpLoad(asm.Cmp, w, asm.DX, asm.At(asm.R9, int32(i)))
		b.Jcc(asm.NE, no)
		i += int(w)
	}
}

// prGetName is prctl's operation that copies the thread's name, at most 16
// bytes with its NUL.
const (
	sysPrctl  = 157
	prGetName = 16
)

// threadName reads the thread's name into the sixteen bytes of temporaries at layout.comm, and sets the text's
// temporaries at off. Changes all textRegs, CX and DX.
func (b *builder) threadName(off int) {
	b.Lea(asm.DI, b.frame.temp(b.layout.comm))
	word := b.NewLabel()
	b.toShared(func(s *Shared) uint64 { return s.name })
	b.setText(off, asm.BE, word)
}

// askName asks the kernel for the thread's name, into the sixteen bytes at DI, and continues with the code at
// scan. If the kernel refuses it, the tracer takes the hit.
func (b *builder) askName(scan uint64) {
	told, refused := b.NewLabel(), b.NewLabel()
	b.mayAsk(AskHit, refused)
	b.strict()
	b.begin(refused)
	b.Mov(asm.W64, asm.R8, asm.SI)
	b.Mov(asm.W64, asm.SI, asm.DI)
	b.MovImm(asm.DI, prGetName)
	b.MovImm(asm.AX, sysPrctl)
	b.Syscall()
	b.asked()
	b.Mov(asm.W64, asm.DI, asm.SI)
	b.Mov(asm.W64, asm.SI, asm.R8)
	b.Test(asm.W32, asm.AX, asm.AX)
	b.JccShort(asm.E, told)
	if b.p.Calls == 0 {
		b.mayAsk(AskHit, refused)
		b.Hlt()
	}
	b.Bind(refused)
	b.StoreImm(asm.W8, asm.At(asm.DI, 0), 0)
	b.Bind(told)
	b.MovImm(asm.DX, fetch.MaxString)
	b.JmpAddr(scan)
}

// isComm reports whether an argument is the thread's name.
func isComm(a *fetch.ArgProgram) bool {
	return a.Store == fetch.StoreText && a.Source == fetch.SourceComm
}
