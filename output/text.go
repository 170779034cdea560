package output

import (
	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// Header is the line that names the columns of trace lines, as the kernel's
// trace file does without the columns of interrupt state.
const Header = "#           TASK-PID     CPU#     TIMESTAMP  EVENT\n"

// appendText appends the line of a hit in the columns of the kernel's
// trace_print_context (kernel/trace/trace_output.c): "%16s-%-7d [%03d] ",
// " %5lu.%06lu", ": ", and then what print_kprobe_event and
// print_kretprobe_event (kernel/trace/trace_kprobe.c) print.
func (f *Formatter) appendText(dst []byte, h *results.Hit) []byte {
	dst = f.appendWhose(dst, h)
	dst = f.appendTime(dst, f.Clock.micros(h.Time, f.before))
	if len(f.head) > 0 {
		dst = append(dst, f.head...)
	} else {
		dst = append(f.appendFuncName(append(dst, ':', ' '), h), ": ("...)
	}
	if h.Event.Return {
		dst = f.appendPlace(dst, h.RetIP)
		dst = append(dst, " <- "...)
		dst = f.appendFunc(dst, h)
	} else {
		dst = f.appendPlace(dst, h.IP)
	}
	dst = append(dst, ')')
	fields := h.Program.Fields()
	for i := range f.vals {
		if results.Hidden(fields[i].Name) {
			continue
		}
		dst = append(dst, ' ')
		dst = quote.AppendPlain(dst, fields[i].Name)
		dst = append(dst, '=')
		dst = fetch.AppendText(dst, fields[i].Type, f.vals[i], &f.names)
	}
	dst = append(dst, '\n')
	if h.Stack != nil {
		dst = f.appendStack(dst, h)
	}
	return dst
}

// appendFuncName appends the name of the function that was entered, or returns, for
// events that are named by it.
func (f *Formatter) appendFuncName(dst []byte, h *results.Hit) []byte {
	if h.Event.Return {
		return f.appendFunc(dst, h)
	}
	if name, ok := usdtName(h); ok {
		return quote.AppendPlain(dst, name)
	}
	if name, _, _, ok := f.names.SymbolAt(h.IP); ok {
		return quote.AppendPlain(dst, name)
	}
	return quote.AppendPlain(dst, h.Event.Name)
}

// usdtName is %PROVIDER:NAME of a hit of a statically defined probe.
func usdtName(h *results.Hit) (name string, ok bool) {
	if h.Event.Def == nil || h.Event.Def.Place.Kind != symbols.PlaceUSDT || h.Space == nil {
		return "", false
	}
	u, ok := h.Space.USDTAt(h.Event.Def.Place, h.IP)
	if !ok {
		return "", false
	}
	return u.String(), true
}

// appendPlace appends SYM+0xOFF/0xSIZE as the kernel's %pS does, or the bare
// address where no symbol covers it.
func (f *Formatter) appendPlace(dst []byte, a symbols.Addr) []byte {
	name, off, size, ok := f.names.SymbolAt(a)
	if !ok {
		return appendHex(dst, uint64(a))
	}
	dst = quote.AppendPlain(dst, name)
	dst = appendHex(append(dst, '+'), off)
	return appendHex(append(dst, '/'), size)
}

// appendFunc appends the name of the function that returns.
func (f *Formatter) appendFunc(dst []byte, h *results.Hit) []byte {
	if h.Func != "" {
		if f.names.short && h.Space != nil {
			if full, _, _, _, ok := h.Space.Symbolize(h.IP); ok && full == h.Func {
				short, _, _, _, _ := h.Space.SymbolizeShort(h.IP)
				return quote.AppendPlain(dst, short)
			}
		}
		return quote.AppendPlain(dst, h.Func)
	}
	return appendHex(dst, uint64(h.IP))
}
