package fetch

import (
	"math"
	"strconv"
	"unicode/utf8"

	"kprobe/internal/quote"
	"kprobe/symbols"
)

// AppendText appends a value as the kernel's trace line prints it: u %u, s %d,
// x 0x%x, char 'c', text in double quotes, symbol SYM+0xOFF/0xSIZE, arrays
// {a,b}, floats in the shortest form that reads back the same, and (fault)
// for what could not be read. Text is as quote.AppendText writes it, and three
// periods follow where it was cut. sym may be nil: addresses stay numbers.
func AppendText(dst []byte, t Type, v Value, sym Symbolizer) []byte {
	if v.Fault {
		return append(dst, "(fault)"...)
	}
	if t.Base == Container && t.Layout != nil {
		return t.Layout.Content.appendText(dst, &v, sym)
	}
	if t.Layout != nil {
		if out, done := t.appendLayout(dst, v, sym); done {
			return out
		}
	}
	if t.Base == ID {
		return appendID(dst, &v)
	}
	if t.Count != 0 {
		elem := t.Elem()
		dst = append(dst, '{')
		for i := range v.Elems {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendText(dst, elem, v.Elems[i], sym)
		}
		if t.Layout != nil && t.Layout.More {
			dst = append(dst, ",..."...)
		}
		return append(dst, '}')
	}
	switch t.Base {
	case Unsigned:
		return strconv.AppendUint(dst, v.Int, 10)
	case Signed:
		return strconv.AppendInt(dst, int64(v.Int), 10)
	case Char:
		if c := byte(v.Int); t.Size == 1 && c >= utf8.RuneSelf {
			return append(dst, '\'', '\\', 'x', quote.HexDigits[c>>4], quote.HexDigits[c&15], '\'')
		}
		return quote.AppendChar(dst, t.character(v.Int))
	case Float:
		if t.Size == 4 {
			return strconv.AppendFloat(dst, float64(math.Float32frombits(uint32(v.Int))), 'g', -1, 32)
		}
		return strconv.AppendFloat(dst, math.Float64frombits(v.Int), 'g', -1, 64)
	case SymbolName:
		from := len(dst)
		dst = AppendSymbol(dst, v.Int, sym)
		for _, c := range dst[from:] {
			if c < 0x20 || c >= 0x7f {
				return quote.AppendPlain(dst[:from], string(dst[from:]))
			}
		}
		return dst
	case String, UString, SymbolText, Path, FilePath, Bytes:
		if v.Address {
			return appendHex(dst, v.Int)
		}
		return v.appendQuoted(dst)
	}
	return appendHex(dst, v.Int)
}

// appendQuoted appends a text, and what says that it was cut.
func (v *Value) appendQuoted(dst []byte) []byte {
	dst = quote.AppendText(dst, v.Bytes)
	if v.Truncated {
		dst = append(dst, "..."...)
	}
	return dst
}

func appendHex(dst []byte, v uint64) []byte { return quote.AppendNumber(dst, v) }

// AppendSymbol appends an address as SYM+0xOFF/0xSIZE, or as a number where
// sym is nil or knows no name (the kernel's %pS). The name is as the file has it:
// who prints it quotes it.
func AppendSymbol(dst []byte, addr uint64, sym Symbolizer) []byte {
	if sym == nil {
		return appendHex(dst, addr)
	}
	name, off, size, ok := sym.SymbolAt(symbols.Addr(addr))
	if !ok {
		return appendHex(dst, addr)
	}
	dst = append(append(dst, name...), '+')
	dst = appendHex(dst, off)
	dst = append(dst, '/')
	return appendHex(dst, size)
}

// appendID appends the digits of an ID.
func appendID(dst []byte, v *Value) []byte {
	for i := range v.Elems {
		dst = appendWord(dst, v.Elems[i].Int)
	}
	if len(v.Elems) == 0 {
		dst = appendWord(dst, v.Int)
	}
	return dst
}

// appendWord appends the 16 hexadecimal digits of a word.
func appendWord(dst []byte, v uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, quote.HexDigits[v>>shift&15])
	}
	return dst
}
