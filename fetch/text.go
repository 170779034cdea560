package fetch

import (
	"math"
	"strconv"
	"unicode/utf8"

	"kprobe/symbols"
)

// AppendText appends a value as the kernel's trace line prints it: u %u, s %d,
// x 0x%x, char 'c', text in double quotes, symbol SYM+0xOFF/0xSIZE, arrays
// {a,b}, floats in the shortest form that reads back the same, and (fault)
// for what could not be read. Control characters, which would break the line,
// are written as \n, \t, \r or \xHH. sym may be nil: addresses stay numbers.
func AppendText(dst []byte, t Type, v Value, sym Symbolizer) []byte {
	if v.Fault {
		return append(dst, "(fault)"...)
	}
	if t.Layout != nil {
		if out, done := t.appendLayout(dst, v, sym); done {
			return out
		}
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
		dst = append(dst, '\'')
		dst = AppendPlain(dst, t.character(v.Int))
		return append(dst, '\'')
	case Float:
		if t.Size == 4 {
			return strconv.AppendFloat(dst, float64(math.Float32frombits(uint32(v.Int))), 'g', -1, 32)
		}
		return strconv.AppendFloat(dst, math.Float64frombits(v.Int), 'g', -1, 64)
	case SymbolName:
		return AppendSymbol(dst, v.Int, sym)
	case String, UString, SymbolText, Path, FilePath:
		if v.Address {
			return appendHex(dst, v.Int)
		}
		dst = append(dst, '"')
		dst = AppendPlain(dst, v.Bytes)
		return append(dst, '"')
	}
	return appendHex(dst, v.Int)
}

func appendHex(dst []byte, v uint64) []byte {
	dst = append(dst, "0x"...)
	return strconv.AppendUint(dst, v, 16)
}

// AppendSymbol appends an address as SYM+0xOFF/0xSIZE, or as a number where
// sym is nil or knows no name (the kernel's %pS).
func AppendSymbol(dst []byte, addr uint64, sym Symbolizer) []byte {
	if sym == nil {
		return appendHex(dst, addr)
	}
	name, off, size, ok := sym.SymbolAt(symbols.Addr(addr))
	if !ok {
		return appendHex(dst, addr)
	}
	dst = AppendPlain(dst, name)
	dst = append(dst, '+')
	dst = appendHex(dst, off)
	dst = append(dst, '/')
	return appendHex(dst, size)
}

const hexDigits = "0123456789abcdef"

// AppendPlain appends text as it can be shown on a terminal: control characters
// are escaped, \n, \t, \r or \xHH for each byte. Those are C0, DEL, and C1,
// U+0080 to U+009F, whose bytes are escaped outside of UTF-8 too. All other bytes
// are left as they are.
func AppendPlain[S string | []byte](dst []byte, s S) []byte {
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c < 0x7f {
			continue
		}
		n := 1
		if c >= utf8.RuneSelf {
			var size int
			if n, size = control(s[i:min(len(s), i+utf8.UTFMax)]); n == 0 {
				i += size - 1
				continue
			}
		}
		dst = append(dst, s[from:i]...)
		for _, c := range []byte(s[i : i+n]) {
			switch c {
			case '\n':
				dst = append(dst, `\n`...)
			case '\t':
				dst = append(dst, `\t`...)
			case '\r':
				dst = append(dst, `\r`...)
			default:
				dst = append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			}
		}
		from = i + n
		i = from - 1
	}
	return append(dst, s[from:]...)
}

// control gives the size of the character that s starts with, which is not
// ASCII, and the same as n if it is a control character.
func control[S string | []byte](s S) (n, size int) {
	r, size := utf8.DecodeRuneInString(string(s))
	if r == utf8.RuneError && size == 1 {
		r = rune(s[0])
	}
	if r >= 0x80 && r < 0xa0 {
		return size, size
	}
	return 0, size
}
