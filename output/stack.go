package output

import (
	"strconv"

	"kprobe/internal/quote"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// frameText is what is known of an address on a stack, looked up once.
type frameText struct {
	text, json []byte
}

// maxFrames bounds the addresses that are remembered.
const maxFrames = 1 << 16

// appendStack appends the lines of a stack in the form of the kernel's stack
// traces (kernel/trace/trace_output.c, trace_stack_print): " => SYM+0xOFF", the
// place itself first. With Lines, calls that were inlined have lines of their
// own, and FILE:LINE follows.
func (f *Formatter) appendStack(dst []byte, h *results.Hit) []byte {
	for _, at := range h.Stack {
		dst = append(dst, f.frame(h, at).text...)
	}
	switch h.StackEnd {
	case symbols.StackTruncated:
		dst = append(dst, " => (truncated: the copy of the stack ends here)\n"...)
	case symbols.StackUnknown:
		dst = append(dst, " => (unknown: nothing says who called this)\n"...)
	}
	return dst
}

// appendStackJSON appends "stack", an array of frames with the innermost first:
// ip, and as far as they are known sym and off, module, file and line. A frame
// with "inlined" true has the ip of the one that it was inlined into.
func (f *Formatter) appendStackJSON(dst []byte, h *results.Hit) []byte {
	dst = append(dst, `,"stack":[`...)
	for i, at := range h.Stack {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, f.frame(h, at).json...)
	}
	dst = append(dst, ']')
	if h.StackEnd != symbols.StackWhole {
		dst = quote.AppendJSON(append(dst, `,"stack_end":`...), h.StackEnd.String())
	}
	return dst
}

// frame describes an address.
func (f *Formatter) frame(h *results.Hit, at symbols.StackFrame) *frameText {
	if f.framesOf != h.Space || len(f.frames) >= maxFrames || f.remapped() {
		f.framesOf, f.frames = h.Space, map[symbols.StackFrame]*frameText{}
		if h.Space != nil {
			f.mapped, f.renamed = h.Space.Mappings(), h.Space.Renamed()
		}
	}
	t := f.frames[at]
	if t == nil {
		t = f.describe(h.Space, at)
		f.frames[at] = t
	}
	return t
}

// remapped reports whether the process has other files mapped than when frames
// were described, or says that other code is where it has no file.
func (f *Formatter) remapped() bool {
	if f.framesOf == nil {
		return false
	}
	now := f.framesOf.Mappings()
	return len(now) != len(f.mapped) || len(now) > 0 && &now[0] != &f.mapped[0] || f.framesOf.Renamed() != f.renamed
}

func (f *Formatter) describe(space *symbols.Space, at symbols.StackFrame) *frameText {
	var frames []symbols.Frame
	var module *symbols.Module
	a, code := at.Addr, at.Addr
	if at.Call {
		code-- // of a call that ends a function what follows is another's
	}
	if space != nil {
		if (f.Lines || f.Form == JSON) && !at.Signal {
			frames = space.Frames(code)
		}
		module = space.ModuleAt(a)
	}
	t := &frameText{}
	inner := max(len(frames)-1, 0)
	for i := range frames[:inner] {
		t.text = appendLine(quote.AppendPlain(append(t.text, " => "...), frames[i].Func), &frames[i])
		t.text = append(t.text, " (inlined)\n"...)
		t.json = appendHex(append(t.json, `{"ip":"`...), uint64(a))
		t.json = quote.AppendJSON(append(t.json, `","sym":`...), frames[i].Func)
		t.json = append(appendLineJSON(t.json, &frames[i]), `,"inlined":true},`...)
	}
	t.text = append(t.text, " => "...)
	t.json = appendHex(append(t.json, `{"ip":"`...), uint64(a))
	t.json = append(t.json, '"')
	name, short, off, ok := "", "", uint64(0), false
	if space != nil {
		name, off, _, _, ok = space.NameAt(code, false)
		off += uint64(a - code)
		short = name
		if ok && f.names.short {
			short, _, _, _, _ = space.NameAt(code, true)
		}
	}
	switch {
	case at.Signal:
		t.text = append(t.text, "<signal handler called>"...)
		t.json = append(t.json, `,"signal":true`...)
	case ok:
		t.text = appendHex(append(quote.AppendPlain(t.text, short), '+'), off)
		t.json = quote.AppendJSON(append(t.json, `,"sym":`...), name)
		t.json = appendPadded(append(t.json, `,"off":`...), off, 1, ' ')
	case module != nil:
		t.text = append(append(quote.AppendPlain(t.text, module.Name), ':'), module.Vaddr(a).String()...)
	default:
		t.text = appendHex(t.text, uint64(a))
	}
	if module != nil {
		t.json = quote.AppendJSON(append(t.json, `,"module":`...), module.Name)
	}
	if len(frames) > 0 {
		t.text = appendLine(t.text, &frames[inner])
		t.json = appendLineJSON(t.json, &frames[inner])
	}
	t.text, t.json = append(t.text, '\n'), append(t.json, '}')
	return t
}

func appendLine(dst []byte, f *symbols.Frame) []byte {
	if f.File == "" || f.Line == 0 {
		return dst
	}
	dst = append(quote.AppendPlain(append(dst, " at "...), f.File), ':')
	return strconv.AppendInt(dst, int64(f.Line), 10)
}

func appendLineJSON(dst []byte, f *symbols.Frame) []byte {
	if f.File == "" || f.Line == 0 {
		return dst
	}
	dst = quote.AppendJSON(append(dst, `,"file":`...), f.File)
	return appendPadded(append(dst, `,"line":`...), uint64(f.Line), 1, ' ')
}
