package output

import (
	"unicode/utf8"

	"kprobe/fetch"
	"kprobe/probe"
	"kprobe/symbols"
)

// Header is the line that names the columns of trace lines, as the kernel's
// trace file does without the columns of interrupt state.
const Header = "#           TASK-PID     CPU#     TIMESTAMP  EVENT\n"

// appendText appends the line of a hit in the columns of the kernel's
// trace_print_context (kernel/trace/trace_output.c): "%16s-%-7d [%03d] ",
// " %5lu.%06lu", ": ", and then what print_kprobe_event and
// print_kretprobe_event (kernel/trace/trace_kprobe.c) print.
func (f *Formatter) appendText(dst []byte, h *probe.Hit) []byte {
	for n := len(h.Comm); n < 16; n++ {
		dst = append(dst, ' ')
	}
	dst = appendComm(dst, h.Comm)
	dst = append(dst, '-')
	start := len(dst)
	dst = appendPadded(dst, uint64(h.TID), 0, ' ')
	for len(dst)-start < 7 {
		dst = append(dst, ' ')
	}
	dst = append(dst, ' ', '[')
	dst = appendPadded(dst, uint64(h.CPU), 3, '0')
	dst = append(dst, ']', ' ', ' ')
	us := f.Clock.at(h.Time) / 1000
	dst = appendPadded(dst, us/1e6, 5, ' ')
	dst = append(dst, '.')
	dst = appendMicros(dst, us%1e6)
	dst = append(dst, f.head...)
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
		dst = append(dst, ' ')
		dst = append(dst, fields[i].Name...)
		dst = append(dst, '=')
		dst = fetch.AppendText(dst, fields[i].Type, f.vals[i], &f.names)
	}
	dst = append(dst, '\n')
	if h.Stack != nil {
		dst = f.appendStack(dst, h)
	}
	return dst
}

// appendPlace appends SYM+0xOFF/0xSIZE as the kernel's %pS does, or the bare
// address where no symbol covers it.
func (f *Formatter) appendPlace(dst []byte, a symbols.Addr) []byte {
	name, off, size, ok := f.names.SymbolAt(a)
	if !ok {
		return appendHex(dst, uint64(a))
	}
	dst = fetch.AppendPlain(dst, name)
	dst = appendHex(append(dst, '+'), off)
	return appendHex(append(dst, '/'), size)
}

// appendFunc appends the name of the function that returns.
func (f *Formatter) appendFunc(dst []byte, h *probe.Hit) []byte {
	if h.Func != "" {
		return fetch.AppendPlain(dst, h.Func)
	}
	return appendHex(dst, uint64(h.IP))
}

// appendComm appends a thread's name. A process may put anything in it; a
// control character would break the line and is shown as a question mark.
func appendComm(dst []byte, comm string) []byte {
	for len(comm) > 0 {
		r, n := utf8.DecodeRuneInString(comm)
		if r == utf8.RuneError && n == 1 {
			r = rune(comm[0])
		}
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			dst = append(dst, '?')
		} else {
			dst = append(dst, comm[:n]...)
		}
		comm = comm[n:]
	}
	return dst
}
