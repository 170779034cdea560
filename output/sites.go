package output

import (
	"time"
	"unicode/utf8"

	"kprobe/internal/quote"
	"kprobe/symbols"
)

// Site is an armed place, as kprobe list --sites shows it.
type Site struct {
	PID          int
	Group, Event string
	Addr         symbols.Addr
	Return       bool
	Watch        bool   // it is memory that is watched
	Symbol       string // "" where none covers the address
	Offset       uint64 // from Symbol
	Module       string // "" for the program itself
	Tactic       string // how the place is patched; "" where that isn't known
	Optimized    bool
	Disabled     bool
	Gone         bool
	Waiting      bool          // it has no place yet; Addr is 0
	Age          time.Duration // since it was armed; 0: not known
}

// InjectGroup is the group of events whose calls kprobe changes.
const InjectGroup = "inject"

func (s *Site) kind() string {
	switch {
	case s.Watch:
		return "w"
	case s.Return:
		return "r"
	}
	return "k"
}

// AppendSiteWithin is AppendSite for a terminal of a width, 0: of none: a symbol that makes
// the line wider is shortened.
func AppendSiteWithin(dst []byte, s *Site, width int) []byte {
	n := len(dst)
	dst = AppendSite(dst, s)
	over := utf8.RuneCount(dst[n:]) - 1 - width
	if width <= 0 || over <= 0 || s.Symbol == "" {
		return dst
	}
	short := *s
	short.Symbol = quote.Plain(s.Symbol)
	short.Symbol = middle(short.Symbol, max(utf8.RuneCountInString(short.Symbol)-over, minName))
	return AppendSite(dst[:n], &short)
}

// AppendSite appends a line in the form of the kernel's kprobes/list
// (report_probe in kernel/kprobes.c): address, k, r or w, SYM+0xOFF, the module,
// and what is to be said about the probe. One that waits for its library has
// address 0 and GRP/EVENT instead of a place.
func AppendSite(dst []byte, s *Site) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[uint64(s.Addr)>>shift&15])
	}
	dst = append(append(append(dst, ' ', ' '), s.kind()...), ' ', ' ')
	switch {
	case s.Waiting:
		// There is nothing else to know it by.
		dst = quote.AppendPlain(append(quote.AppendPlain(dst, s.Group), '/'), s.Event)
	case s.Symbol == "":
		dst = appendHex(dst, uint64(s.Addr))
	default:
		dst = append(quote.AppendPlain(dst, s.Symbol), '+')
		dst = appendHex(dst, s.Offset)
	}
	dst = append(dst, ' ', ' ')
	if s.Module == "" {
		dst = append(dst, ' ')
	}
	dst = append(quote.AppendPlain(dst, s.Module), ' ')
	switch {
	case s.Waiting && s.Disabled:
		dst = append(dst, "[GONE][DISABLED]"...)
	case s.Gone:
		dst = append(dst, "[GONE]"...)
	case s.Disabled:
		dst = append(dst, "[DISABLED]"...)
	}
	if s.Optimized {
		dst = append(dst, "[OPTIMIZED]"...)
	}
	if s.Group == InjectGroup {
		dst = append(dst, "[INJECT]"...)
	}
	return append(dst, '\n')
}

// AppendSiteJSON appends the object of an armed place.
func AppendSiteJSON(dst []byte, s *Site) []byte {
	dst = appendPadded(append(dst, `{"type":"site","pid":`...), uint64(s.PID), 1, ' ')
	dst = quote.AppendJSON(append(dst, `,"group":`...), s.Group)
	dst = quote.AppendJSON(append(dst, `,"event":`...), s.Event)
	dst = appendHex(append(dst, `,"addr":"`...), uint64(s.Addr))
	dst = quote.AppendJSON(append(dst, `","kind":`...), s.kind())
	if s.Symbol != "" {
		dst = quote.AppendJSON(append(dst, `,"sym":`...), s.Symbol)
		dst = appendPadded(append(dst, `,"off":`...), s.Offset, 1, ' ')
	}
	if s.Module != "" {
		dst = quote.AppendJSON(append(dst, `,"module":`...), s.Module)
	}
	if s.Tactic != "" {
		dst = quote.AppendJSON(append(dst, `,"tactic":`...), s.Tactic)
	}
	dst = appendBool(append(dst, `,"optimized":`...), s.Optimized)
	dst = appendBool(append(dst, `,"disabled":`...), s.Disabled)
	dst = appendBool(append(dst, `,"gone":`...), s.Gone)
	if s.Waiting {
		dst = append(dst, `,"waiting":true`...)
	}
	if s.Age > 0 {
		dst = appendCount(append(dst, `,"armed_ns":`...), uint64(s.Age))
	}
	return append(dst, '}', '\n')
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, "true"...)
	}
	return append(dst, "false"...)
}
