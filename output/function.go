package output

import (
	"kprobe/internal/quote"
	"kprobe/symbols"
)

// Function is a function that can be probed.
type Function struct {
	Module string       // the file's name
	Name   string       // as a place names it
	Symbol string       // as in the file; "" is the same
	Addr   symbols.Addr // in the process; 0 for a file
	Vaddr  symbols.Vaddr
	Size   uint64 // in bytes; 0 is unknown
	Source string // FILE:LINE of its first instruction; "" is unknown, or not asked for
}

// AppendFunctionJSON appends the object of a function.
func AppendFunctionJSON(dst []byte, fn *Function) []byte {
	dst = quote.AppendJSON(append(dst, `{"name":`...), fn.Name)
	if fn.Symbol != "" {
		dst = quote.AppendJSON(append(dst, `,"symbol":`...), fn.Symbol)
	}
	dst = quote.AppendJSON(append(dst, `,"module":`...), fn.Module)
	dst = appendHex(append(dst, `,"vaddr":"`...), uint64(fn.Vaddr))
	dst = append(dst, '"')
	if fn.Addr != 0 {
		dst = appendHex(append(dst, `,"addr":"`...), uint64(fn.Addr))
		dst = append(dst, '"')
	}
	dst = appendCount(append(dst, `,"size":`...), fn.Size)
	if fn.Source != "" {
		dst = quote.AppendJSON(append(dst, `,"source":`...), fn.Source)
	}
	return append(dst, '}', '\n')
}

// Fact is one line of kprobe check.
type Fact struct {
	Name   string // what was looked at: "tracer"
	OK     bool
	Blocks bool   // not OK, and the process can't be probed so
	Text   string // what was found
	Remedy string // what to do; "" when OK
}

// AppendFactJSON appends the object of a fact.
func AppendFactJSON(dst []byte, f *Fact) []byte {
	state := "ok"
	switch {
	case f.Blocks:
		state = "problem"
	case !f.OK:
		state = "note"
	}
	dst = quote.AppendJSON(append(dst, `{"fact":`...), f.Name)
	dst = quote.AppendJSON(append(dst, `,"state":`...), state)
	dst = quote.AppendJSON(append(dst, `,"text":`...), f.Text)
	if f.Remedy != "" {
		dst = quote.AppendJSON(append(dst, `,"remedy":`...), f.Remedy)
	}
	return append(dst, '}', '\n')
}

// AppendFact appends the lines of a fact: its state, name and text, and below
// them the remedy.
func AppendFact(dst []byte, f *Fact) []byte {
	state := "ok      "
	switch {
	case f.Blocks:
		state = "problem "
	case !f.OK:
		state = "note    "
	}
	dst = append(append(dst, state...), f.Name...)
	dst = append(quote.AppendPlain(append(dst, ": "...), f.Text), '\n')
	if f.Remedy != "" {
		dst = append(quote.AppendPlain(append(dst, "        → "...), f.Remedy), '\n')
	}
	return dst
}

// USDT is a place of a statically defined probe.
type USDT struct {
	Module string       // the file's name
	Place  string       // as definitions take it
	Addr   symbols.Addr // in the process; 0 for a file
	symbols.USDT
}

// AppendUSDTJSON appends the object of a statically defined probe.
func AppendUSDTJSON(dst []byte, u *USDT) []byte {
	dst = quote.AppendJSON(append(dst, `{"provider":`...), u.Provider)
	dst = quote.AppendJSON(append(dst, `,"name":`...), u.Name)
	dst = quote.AppendJSON(append(dst, `,"module":`...), u.Module)
	dst = quote.AppendJSON(append(dst, `,"place":`...), u.Place)
	dst = appendHex(append(dst, `,"vaddr":"`...), uint64(u.Vaddr))
	dst = append(dst, '"')
	if u.Addr != 0 {
		dst = appendHex(append(dst, `,"addr":"`...), uint64(u.Addr))
		dst = append(dst, '"')
	}
	if u.Semaphore != 0 {
		dst = appendHex(append(dst, `,"semaphore":"`...), uint64(u.Semaphore))
		dst = append(dst, '"')
	}
	dst = quote.AppendJSON(append(dst, `,"args":`...), u.Args)
	return append(dst, '}', '\n')
}
