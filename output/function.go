package output

import (
	"kprobe/fetch"
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
	dst = appendString(append(dst, `{"name":`...), fn.Name)
	if fn.Symbol != "" {
		dst = appendString(append(dst, `,"symbol":`...), fn.Symbol)
	}
	dst = appendString(append(dst, `,"module":`...), fn.Module)
	dst = appendHex(append(dst, `,"vaddr":"`...), uint64(fn.Vaddr))
	dst = append(dst, '"')
	if fn.Addr != 0 {
		dst = appendHex(append(dst, `,"addr":"`...), uint64(fn.Addr))
		dst = append(dst, '"')
	}
	dst = appendCount(append(dst, `,"size":`...), fn.Size)
	if fn.Source != "" {
		dst = appendString(append(dst, `,"source":`...), fn.Source)
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
	dst = appendString(append(dst, `{"fact":`...), f.Name)
	dst = appendString(append(dst, `,"state":`...), state)
	dst = appendString(append(dst, `,"text":`...), f.Text)
	if f.Remedy != "" {
		dst = appendString(append(dst, `,"remedy":`...), f.Remedy)
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
	dst = append(fetch.AppendPlain(append(dst, ": "...), f.Text), '\n')
	if f.Remedy != "" {
		dst = append(fetch.AppendPlain(append(dst, "        → "...), f.Remedy), '\n')
	}
	return dst
}
